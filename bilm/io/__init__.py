"""Files: reading JSON and HDF5 with clear errors; outputs written whole or not at all; locks."""

import os

PathLike = str | os.PathLike[str]
"""What a file is given by."""

STDIN = "-"
"""The name that stands for standard input."""


def is_url(path: PathLike) -> bool:
    """Whether a path is that of another file system, such as ``s3://bucket/text``."""
    return "://" in os.fspath(path)
