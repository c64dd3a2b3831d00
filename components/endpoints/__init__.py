"""Endpoints: asking a model's server over HTTP. Shared by policies, which act, and by judges, which score."""
