"""Weights in every format: names, files, and their transfer into a model."""
