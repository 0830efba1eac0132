"""The training loop: steps, validation, records and checkpoints, and when each is due."""
