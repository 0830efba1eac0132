"""Training, restarting, testing and dumping weights: their arguments, and how they run."""
