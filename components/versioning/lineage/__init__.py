"""Which rollouts made this model, and which models did this rollout touch? Walks over locks, pointers, manifests and ledgers."""
