"""Weights: their names, their file formats, and their transfer into a model."""
