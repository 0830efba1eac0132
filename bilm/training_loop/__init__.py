"""A call of training from step to step: validation, records, checkpoints, and when each is due."""
