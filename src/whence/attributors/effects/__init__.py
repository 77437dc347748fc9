"""Effects: what would change without a sample."""
