"""A training run on disk: its files, checkpoints, state and records."""
