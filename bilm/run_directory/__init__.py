"""A training on disk: which files are its own, its checkpoints, its state and its records."""
