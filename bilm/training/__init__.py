"""A training step and what it needs."""
