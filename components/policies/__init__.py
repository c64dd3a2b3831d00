"""Policies: what chooses the next action. Scripted ones that need no model, and models."""
