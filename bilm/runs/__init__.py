"""A training on its way: begun, gone on with, recorded and described."""
