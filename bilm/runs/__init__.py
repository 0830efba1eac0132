"""The calls that train, restart, test, predict and dump weights."""
