"""GRPO on a policy's own episodes: TRL trains, a Player plays, and what lies between them is here."""
