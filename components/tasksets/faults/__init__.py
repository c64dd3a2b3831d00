"""Repair tasks out of source distributions: a fault is put into a released package, and its own tests prove it."""
