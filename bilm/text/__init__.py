"""Text as lines: decompressed, decoded, kept from pipes, and recognised when it is read again."""
