"""The files of a run: their names, its checkpoints, its vocabulary, and the list of what it wrote."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from bilm.errors import CheckpointError, VocabularyError
from bilm.io.atomic import replacing
from bilm.io.messages import os_errors_as, quoted
from bilm.vocabulary.vocabulary import Vocabulary

_NEWEST = re.compile(r'^model_checkpoint_path:\s*"(?P<path>(?:[^"\\]|\\.)*)"\s*$', re.MULTILINE)
_NAMED = re.compile(
    r'^(?:all_)?model_checkpoint_paths?:\s*"(?:[^"]*/)?model\.ckpt-([0-9]{1,18})"\s*$', re.MULTILINE
)
_INDEX_FILE = re.compile(r"model\.ckpt-(?P<step>[0-9]{1,18})\.index")


class CheckpointIndex:
    """The checkpoints ``model.ckpt-STEP`` in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state_file(self) -> Path:
        """The file that names the newest checkpoint."""
        return self.path / "checkpoint"

    def prefix(self, step: int) -> Path:
        """The prefix of a step's checkpoint."""
        return self.path / f"model.ckpt-{step}"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, ascending."""
        matches = map(_INDEX_FILE.fullmatch, (file.name for file in self.path.glob("model.ckpt-*.index")))
        return sorted(int(match["step"]) for match in matches if match)

    def newest(self) -> Path:
        """The prefix that the state file names, looked for in this directory first.

        Raises:
            CheckpointError: there is no state file, or it is damaged, or it names none that is there.
        """
        state = self.state_file
        match = _NEWEST.search(self.state())
        if match is None and not state.exists():
            raise CheckpointError(f"{state}: missing" if self.steps() else f"{self.path}: no checkpoint yet")
        if match is None:
            raise CheckpointError(
                f'{state}: damaged; it must have a line model_checkpoint_path: "model.ckpt-N" that names '
                "the newest checkpoint"
            )
        name = Path(match["path"])
        # Copied and moved directories keep working: what an absolute path names is looked for here.
        places = [self.path / name.name, self.path / name]
        if not name.is_absolute():
            places.reverse()
        found = [place for place in places if os.path.isfile(f"{place}.index")]
        if not found:
            raise CheckpointError(f"{places[0]}.index: no such checkpoint")
        return found[0]

    def state(self) -> str:
        """The text of the state file, which is another whenever a checkpoint was saved; "" if there is none.

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            return self.state_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise CheckpointError(f"{self.state_file}: cannot be read: {error.strerror or error}") from error

    def named_steps(self) -> set[int]:
        """The steps whose checkpoints the state file names."""
        return {int(step) for step in _NAMED.findall(self.state())}

    def exists(self) -> bool:
        """Whether there is a checkpoint or the state file of one."""
        return self.state_file.exists() or bool(self.steps())

    def add(self, prefix: Path) -> None:
        """Make a checkpoint that was written the newest.

        Raises:
            OSError: from the file system.
        """
        step = int(prefix.name.rpartition("-")[2])
        names = [self.prefix(other).name for other in self.steps() if other < step] + [prefix.name]
        lines = [f'model_checkpoint_path: "{prefix.name}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        with replacing(self.state_file) as file:
            file.write_text("\n".join(lines) + "\n")


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


class RunVocabulary:
    """The vocabulary files of a run directory; those of bilm-tf have none.

    Args:
        path: of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "vocab.txt"
        self._digest_file = path / "vocab.txt.sha256"

    def _is_there(self) -> bool:
        """Whether the vocabulary file is the copy we made, not one that bilm-tf's user put there."""
        return self.file.is_file() and self._digest_file.is_file()

    def is_intact(self) -> bool:
        """Whether the copy is there and is what it was."""
        return self._is_there() and self._digest() == sha256(self.file.read_bytes())

    def is_lost(self) -> bool:
        """Whether there was a copy and only its sum is left."""
        return self._digest_file.is_file() and not self.file.exists()

    def _digest(self) -> str:
        return self._digest_file.read_text(errors="replace").partition(" ")[0]

    def verify(self) -> None:
        """Refuse a copy that is not what it was.

        Raises:
            CheckpointError: it was changed.
        """
        if self._is_there() and not self.is_intact():
            raise CheckpointError(f"{self.file}: changed since the run began; restore it")

    def check(self, vocabulary: Vocabulary, n_expected: int | None) -> None:
        """Refuse a vocabulary other than the run's.

        Args:
            vocabulary: the other.
            n_expected: words of the model, which is all that is known where there is no copy.

        Raises:
            VocabularyError: says what differs.
        """
        words, expected = vocabulary.words, n_expected
        if self._is_there():
            text = self.file.read_text(encoding="utf-8")
            _refuse_difference(words, text.split("\n")[:-1], self.path)
        elif self.is_lost() and self._digest() != sha256(content(vocabulary)["vocab.txt"]):
            raise VocabularyError(
                f"the vocabulary is not the one of the run in {self.path}: its SHA-256 is not "
                f"{self._digest()[:64]}"
            )
        elif expected is not None and len(words) != expected:
            raise VocabularyError(
                f"the vocabulary has {len(words)} words, the model in {self.path} {expected}; "
                "give the vocabulary that the model was trained with"
            )


def _refuse_difference(given: Sequence[str], expected: Sequence[str], path: Path) -> None:
    if list(given) == list(expected):
        return
    new, gone = len(set(given) - set(expected)), len(set(expected) - set(given))
    line = next(
        (i for i, (a, b) in enumerate(zip(given, expected, strict=False), start=1) if a != b),
        min(len(given), len(expected)) + 1,
    )
    here = quoted(given[line - 1]) if line <= len(given) else "nothing"
    there = quoted(expected[line - 1]) if line <= len(expected) else "nothing"
    raise VocabularyError(
        f"the vocabulary is not the one of the run in {path}: {len(given)} words instead of {len(expected)}, "
        f"{new} new, {gone} gone; first difference at line {line}: {here} instead of {there}"
    )


def content(vocabulary: Vocabulary) -> dict[str, bytes]:
    """What is in the files of a vocabulary, by their names."""
    text = "".join(f"{word}\n" for word in vocabulary.words).encode()
    return {"vocab.txt": text, "vocab.txt.sha256": f"{sha256(text)}  vocab.txt\n".encode()}
