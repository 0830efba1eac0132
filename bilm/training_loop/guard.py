"""Changes to a run directory by others during training, noticed at each save."""

from __future__ import annotations

import logging
import os

from bilm.errors import CheckpointError
from bilm.io.reasons import os_errors_as
from bilm.run_directory.directory import RunDirectory

_LOG = logging.getLogger(__name__)
_KEPT = ("options.json", "vocab.txt", "vocab.txt.sha256")


class RunGuard:
    """Knows the directory that a training began in, and what has to be there for the run to be read.

    Args:
        run: that is written.

    Raises:
        CheckpointError: it cannot be read.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        with os_errors_as(CheckpointError, f"{run.path}: cannot be read"):
            # Held open, so that no other directory gets its number.
            self._handle = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY)
            kept = [run.path / name for name in _KEPT]
            self._kept = {file.name: file.read_bytes() for file in kept if file.is_file()}

    def check(self) -> None:
        """Make sure that what is written belongs to a run; write again what was removed of it.

        Raises:
            CheckpointError: the directory is another than in the beginning, or cannot be written.
        """
        path = self.run.path
        with os_errors_as(CheckpointError, f"{path}: cannot be written"):
            if not self._is_in_place():
                raise CheckpointError(
                    f"{path}: is not the directory in which this run began, which was moved or removed; "
                    "nothing was saved since. Put it back, and continue with resume=True"
                )
            for name, content in self._kept.items():
                if not (path / name).exists():
                    _LOG.warning("%s: removed during training; written again", path / name)
                    self.run.write(name, content)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self.run.path.stat(), os.fstat(self._handle))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def __enter__(self) -> RunGuard:
        """Watch."""
        return self

    def __exit__(self, *error: object) -> None:
        """Watch no longer."""
        os.close(self._handle)
