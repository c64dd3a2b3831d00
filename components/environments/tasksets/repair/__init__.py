"""The taskset `repair`: short Python files with one fault each, made from a library of programs by a seeded generator."""
