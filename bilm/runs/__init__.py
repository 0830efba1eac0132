"""The calls of train, restart, test and dump_weights: what they are asked for, and how they go."""
