"""A learned process reward model: one number per step of an episode, read by a head on a causal language model."""
