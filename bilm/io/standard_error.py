"""Standard error of the process, held back while libraries print to it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_back(shows_on_error: bool = False) -> Iterator[None]:
    """Keep out of sight what is printed to standard error, by libraries outside Python too.

    Args:
        shows_on_error: whether to print it after all when the block raises an `Exception`.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with tempfile.TemporaryFile() as held:
            os.dup2(held.fileno(), 2)
            try:
                yield
            except Exception:
                if shows_on_error:
                    held.seek(0)
                    os.write(terminal, held.read())
                raise
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
