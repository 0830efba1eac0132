"""The network, written once, and its use at inference."""
