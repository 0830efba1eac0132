"""A training run: started, resumed, recorded and described."""
