"""A training run on disk: files, checkpoints, state and records."""
