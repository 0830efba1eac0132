"""Files of embeddings: texts read in chunks, and their vectors written in parts until they are complete."""
