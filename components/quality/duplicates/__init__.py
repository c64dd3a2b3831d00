"""Duplicates: which episodes, and which tasks, are the same or nearly so; what evaluation and training share; the one split."""
