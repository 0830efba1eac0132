"""Descriptions of models, training curves, nearest neighbours, and pictures of them."""
