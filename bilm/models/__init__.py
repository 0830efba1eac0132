"""The network, for training and inference."""
