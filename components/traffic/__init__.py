"""Traffic of a running service: a receiver of its spans and of feedback on them, and the episodes that a night takes from them."""
