"""Preparing a run directory for writing: room for the run, and a single writer."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from bilm.errors import CheckpointError
from bilm.io.locks import FileLock, HeldError
from bilm.run_directory.checkpoints import CheckpointIndex
from bilm.run_directory.files import LOCK_FILE, RunFiles
from bilm.run_directory.older_runs import files_of
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE

_LOG = logging.getLogger(__name__)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Be the one process that writes in a run directory; it is made, and removed if it stays empty.

    Raises:
        CheckpointError: another process writes there, or it cannot be written.
    """
    require_directory(path)
    made = [place for place in (path, *path.parents) if not place.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        found = [place.stat() for place in made]
        lock = FileLock(path / LOCK_FILE)
    except HeldError as error:
        raise CheckpointError(
            f"{path}: {error.holder} is training in it; wait for it to finish, or give another directory"
        ) from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error.strerror or error}") from error
    if not lock.is_supported:
        _LOG.warning("%s: this file system has no locks; make sure that no other process trains in it", path)
    try:
        with lock:
            yield
    finally:
        with contextlib.suppress(OSError):  # of those that are not empty
            for place, before in zip(made, found, strict=True):
                if os.path.samestat(place.stat(), before):
                    place.rmdir()


def require_directory(path: Path) -> None:
    """Refuse what can be no run directory, as far as that can be told without writing.

    Raises:
        CheckpointError: it is a file, or cannot be written.
    """
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise CheckpointError(f"{nearest}: exists and is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise CheckpointError(f"{path}: cannot be written: no permission to write in {nearest}")


def room_for_run(
    path: Path, overwrite: bool, wanted: Mapping[str, bytes], inputs: Collection[Path] = ()
) -> RunFiles:
    """The files of the run that a new one takes the place of; none in most cases.

    A run that ended before its first checkpoint may always be replaced.

    Args:
        path: of the directory.
        overwrite: replace a run with checkpoints.
        wanted: files of the new run. One that is there already, with the same bytes, is no hindrance: it
            stays as it is, and stays the user's.
        inputs: files that the command reads.

    Raises:
        CheckpointError: something would be lost: a run, a file that no run wrote, or an input.
    """
    require_directory(path)
    files = files_of(path)
    if files.has_checkpoint() and not overwrite:
        raise CheckpointError(
            f"{path}: already holds a run; continue it with `bilm restart`, give another `save_dir`, "
            "or replace it with overwrite=True"
        )
    read = [path / name for name in files.owned() if files.is_one_of(name, inputs)]
    for file in (file for file in read if not _holds(file, wanted.get(file.name))):
        raise CheckpointError(
            f"{file}: is an input of this command and would be lost; give a copy of it, or another directory "
            "for the run"
        )
    strangers = [file for file in files.strangers() if not _holds(file, wanted.get(file.name))]
    if strangers:
        more = f" (nor were {len(strangers) - 1} more)" if len(strangers) > 1 else ""
        raise CheckpointError(
            f"{strangers[0]}: was not written by the run in this directory{more}, and is in the way of a new "
            "one; move it away, or give another directory for the run"
        )
    for file in read:
        files.disown(file.name)
    return files


def room_for_steps(index: CheckpointIndex, step: int) -> RunFiles:
    """The files of a run that is gone on with from a step.

    Raises:
        CheckpointError: what is to be written is there already, and is not of the run.
    """
    files = files_of(index.path)
    later = {index.prefix(other).name for other in index.steps() if other > step}
    names = later | {METRICS_FILE, CALLS_FILE}
    for file in files.strangers():
        if file.name in names or file.stem in names:
            raise CheckpointError(
                f"{file}: was not written by the run in this directory, and is in the way of files "
                f"after step {step:,}; move it away"
            )
    return files


def _holds(file: Path, content: bytes | None) -> bool:
    return content is not None and file.is_file() and file.read_bytes() == content
