"""The gateway: a server that puts a policy behind the APIs that agents speak, and records each session as episodes."""
