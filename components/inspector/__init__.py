"""Rollout inspector and review desk: the server of a local page."""
