"""Rewards: what each step and each episode of a recorded trajectory is worth, and which of two ways was better."""
