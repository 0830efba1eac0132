"""Using a model: vectors and probabilities of the sentences of a text."""
