"""Foreign weights: the names of each format, the files, and their transfer into a model."""
