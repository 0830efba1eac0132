"""Which files of a directory its run wrote: the list that the run keeps there, ``bilm-files.txt``.

A name is added before the file is made, so that nothing is without its owner when a process is killed.
Only what is on the list is ever replaced or removed. A file that is written once has its SHA-256 beside
its name: changed by somebody else it is no longer the run's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from bilm.errors import CheckpointError
from bilm.io.atomic import replacing
from bilm.io.reasons import os_errors_as

LIST_FILE = "bilm-files.txt"
LOCK_FILE = "bilm.lock"
EVENTS_SUFFIX = ".bilm"
"""Ends the names of our TensorBoard files, which no other program writes."""

_CHECKPOINT = r"model\.ckpt-[0-9]{1,18}"
_NAME = re.compile(
    r"options\.json|vocab\.txt|vocab\.txt\.sha256|checkpoint|metrics\.jsonl|calls\.jsonl"
    rf"|diverged-[0-9]+(-[0-9]+)?\.txt|{_CHECKPOINT}"
)
_PART = re.compile(rf"({_CHECKPOINT})\.(index|meta|data-[0-9]{{5}}-of-[0-9]{{5}})")
_EVENTS = re.compile(rf"events\.out\.tfevents\..+{re.escape(EVENTS_SUFFIX)}")

Names = dict[str, str | None]
"""Names of files, or of checkpoints without their endings; the SHA-256 of what is written once."""


class RunFiles:
    """The files of a run.

    Args:
        path: of the directory.
        names: what the run wrote; by default what its list says.

    Attributes:
        is_listed: whether there is a list; older versions and bilm-tf kept none.
    """

    def __init__(self, path: Path, names: Names | None = None) -> None:
        self.path = path
        self._list = path / LIST_FILE
        self.is_listed = self._list.is_file()
        self._names = self._read() if names is None else names

    def _read(self) -> Names:
        if not self._list.exists():
            return {}
        with os_errors_as(CheckpointError, f"{self._list}: cannot be read"):
            lines = self._list.read_bytes().split(b"\n")[:-1]  # what lacks its end was not claimed
        entries = (line.decode("ascii", "replace").partition("\t") for line in lines)
        return {name: digest or None for name, _, digest in entries if _NAME.fullmatch(name)}

    def write(self) -> None:
        """Make the list of what is there.

        Raises:
            OSError: from the file system.
        """
        self._names = {name: digest for name, digest in self._names.items() if self._parts(name)}
        with replacing(self._list) as file:
            file.write_bytes(b"".join(_line(*entry) for entry in self._names.items()))
        self.is_listed = True

    def claim(self, name: str, content: bytes | None = None) -> None:
        """Note that the run is about to write a file, or a checkpoint.

        Args:
            name: of the file; of a checkpoint without its endings.
            content: of a file that is written once.

        Raises:
            CheckpointError: there is one that the run did not write.
            OSError: from the file system.
        """
        digest = None if content is None else sha256(content)
        if not self.owns(name) and self._parts(name):
            raise CheckpointError(f"{self._parts(name)[0]}: was not written by this run; move it away")
        if name in self._names and self._names[name] == digest:
            return
        self._names[name] = digest
        with open(self._list, "ab", buffering=0) as file:
            file.write(_line(name, digest))
            os.fsync(file.fileno())

    def owns(self, name: str) -> bool:
        """Whether the run wrote what has this name."""
        if _EVENTS.fullmatch(name):
            return True
        if name not in self._names:
            return False
        digest, parts = self._names[name], self._parts(name)
        return digest is None or not parts or digest == sha256(parts[0].read_bytes())

    def owned(self) -> list[str]:
        """The names of what is there and of the run."""
        return [name for name in self._present() if self.owns(name)]

    def strangers(self) -> list[Path]:
        """The files that have names as a run gives them, and are not of the run."""
        return [part for name in self._present() if not self.owns(name) for part in self._parts(name)]

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint of the run, whole or not."""
        return any(name == "checkpoint" or re.fullmatch(_CHECKPOINT, name) for name in self.owned())

    def is_one_of(self, name: str, files: Collection[Path]) -> bool:
        """Whether what has a name is one of some files, by whatever path or link these are given."""
        stats = [file.stat() for file in files if file.exists()]
        parts = [part.stat() for part in self._parts(name) if part.exists()]
        return any(os.path.samestat(part, one) for part in parts for one in stats)

    def remove(self, name: str) -> None:
        """Delete what is of the run and has this name.

        Raises:
            OSError: from the file system.
        """
        if self.owns(name):
            for part in self._parts(name):
                part.unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Delete the run, its list last.

        Raises:
            OSError: from the file system.
        """
        # The state file first: without it the rest is no longer a run that could be half there.
        for name in sorted(self.owned(), key=lambda name: name != "checkpoint"):
            self.remove(name)
        self._list.unlink(missing_ok=True)
        self._names, self.is_listed = {}, False

    def disown(self, name: str) -> None:
        """Leave what has this name to the user."""
        self._names.pop(name, None)

    def _parts(self, name: str) -> list[Path]:
        """The files of a name that are there; of a checkpoint the index first: without it there is none."""
        if not re.fullmatch(_CHECKPOINT, name):
            return [self.path / name] if os.path.lexists(self.path / name) else []
        parts = [file for file in self.path.glob(f"{name}.*") if _PART.fullmatch(file.name)]
        return sorted(parts, key=lambda file: (file.suffix != ".index", file.name))

    def _present(self) -> list[str]:
        return sorted(set(self._names_there()))

    def _names_there(self) -> Iterator[str]:
        for file in self.path.iterdir() if self.path.is_dir() else ():
            part = _PART.fullmatch(file.name)
            if part or _NAME.fullmatch(file.name) or _EVENTS.fullmatch(file.name):
                yield part[1] if part else file.name


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _line(name: str, digest: str | None) -> bytes:
    return f"{name}\t{digest}\n".encode() if digest else f"{name}\n".encode()
