"""Modules of the commands."""
