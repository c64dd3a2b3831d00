"""Interoperability: read logs of other agents as trajectories, and write trajectories in other formats."""
