"""Preferences: which of two ways was better, from episodes with scores. One rule, in `pairing`, for messages and episodes."""
