"""Words to ids and to characters."""
