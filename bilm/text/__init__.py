"""Reading text: decompression, decoding, pipes, and noticing changes between passes."""
