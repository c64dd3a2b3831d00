"""What happens in a night, and in which order."""
