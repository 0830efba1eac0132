"""Vectors of sentences and texts from a trained model."""
