"""Is the new agent better, and how surely? Over records: this component plays nothing and logs nothing.

`metrics.agent_result` reads trajectories, `comparison.compare` pairs two agents, `promotion.decide` gives the verdict.
"""
