"""The command line, and nothing else: each command parses, calls a flow or a component, prints."""
