"""The launcher: a small process that starts commands for a large one. Standard library alone, so that it starts fast.

It runs beside its owner as a package of its own (see components/sandboxes/launcher.py), so nothing here imports Ratchet.
"""
