"""Suites: what is expected of each table of the build, with a severity each. Declared here, judged by Great Expectations.

`critical` stops the build; `warning` puts the failing rows in quarantine; `info` is reported. Only `warning`s must be about single
rows, since a quarantine needs to know which.
"""
