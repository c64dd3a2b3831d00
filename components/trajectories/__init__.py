"""The record of an episode, and where records are kept."""
