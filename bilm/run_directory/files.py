"""What is a file of a run: names, the mark of a run that bilm began, checkpoints, the copy of the vocabulary.

A new run refuses a directory in which anything has the name of a file of a run. From then on whatever has
such a name there belongs to the run, except for the user's files that its mark lists.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bilm.errors import CheckpointError, VocabularyError
from bilm.io.atomic import replacing
from bilm.io.json import parse_json
from bilm.io.messages import os_errors_as, quoted
from bilm.io.outputs import run_files
from bilm.vocabulary.vocabulary import Vocabulary

MARK_FILE = "bilm-run.json"
LOCK_FILE = "bilm.lock"
EVENTS_SUFFIX = ".bilm"
"""Ends the names of our TensorBoard files, which no other program writes."""

_VOCABULARY, _DIGEST = "vocab.txt", "vocab.txt.sha256"
_NEWEST = re.compile(r'^model_checkpoint_path:\s*"(?P<path>(?:[^"\\]|\\.)*)"\s*$', re.MULTILINE)
_INDEX_FILE = re.compile(r"model\.ckpt-(?P<step>[0-9]{1,18})\.index")


class CheckpointIndex:
    """The checkpoints ``model.ckpt-STEP`` in a directory.

    TensorFlow's state file ``checkpoint`` names the newest; the others are found by their names.
    """

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
        prefix = next((place for place in places if os.path.isfile(f"{place}.index")), None)
        if prefix is None:
            raise CheckpointError(f"{places[0]}.index: no such checkpoint")
        return prefix

    def state(self) -> str:
        """The text of the state file, which is another whenever a checkpoint was saved; "" without one.

        Raises:
            CheckpointError: it cannot be read.
        """
        try:
            return self.state_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise CheckpointError(f"{self.state_file}: cannot be read: {error.strerror or error}") from error

    def exists(self) -> bool:
        """Whether there is a checkpoint or the state file of one."""
        return self.state_file.exists() or bool(self.steps())

    def make_newest(self, step: int, obsolete: Collection[int] = ()) -> None:
        """Name a checkpoint that was written as the newest, and remove obsolete ones.

        Raises:
            OSError: from the file system.
        """
        names = [self.prefix(other).name for other in self.steps() if other < step and other not in obsolete]
        lines = [f'model_checkpoint_path: "{self.prefix(step).name}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in [*names, self.prefix(step).name]]
        with replacing(self.state_file) as file:
            file.write_text("\n".join(lines) + "\n")
        for prefix in map(self.prefix, obsolete):
            # The index first: without it there is no checkpoint.
            files = [file for file in run_files(self.path) if file.name.startswith(f"{prefix.name}.")]
            for file in sorted(files, key=lambda file: file.suffix != ".index"):
                file.unlink(missing_ok=True)


def require_room(
    path: Path, overwrite: bool, wanted: Mapping[str, bytes], inputs: Collection[Path] = ()
) -> frozenset[str]:
    """Refuse a directory in which a new run would take the place of something else.

    A run of ours that ended before its first checkpoint may always be replaced.

    Args:
        path: of the directory, which need not exist.
        overwrite: replace a run of ours with checkpoints.
        wanted: files of the new run by name. One of the user's that has the same bytes already is no
            hindrance: it stays as it is, and stays the user's.
        inputs: files that the call reads.

    Returns:
        The names of these files of the user's.

    Raises:
        CheckpointError: something would be lost: a run, a file that no run wrote, or an input.
    """
    present = {file.name: file for file in run_files(path) if file.name != LOCK_FILE}
    is_ours, has_checkpoint = MARK_FILE in present, CheckpointIndex(path).exists()
    if has_checkpoint and not (is_ours and overwrite):
        raise CheckpointError(f"{path}: already holds a run; {_remedy(is_ours, 'options.json' in present)}")
    same = {name for name, file in present.items() if _holds(file, wanted.get(name))}
    read = {name for name, file in present.items() if any(_is_same(file, other) for other in inputs)}
    for name in sorted(read - same):
        raise CheckpointError(
            f"{path / name}: is an input of this command and would be lost; give a copy of it, or another "
            "directory for the run"
        )
    users = _users_files(path) if is_ours else frozenset(present)
    strangers = sorted(users - same)
    if strangers:
        more = f" (nor were {len(strangers) - 1} more)" if len(strangers) > 1 else ""
        raise CheckpointError(
            f"{path / strangers[0]}: was not written by the run in this directory{more}, and is in the way "
            "of a new one; move it away, or give another directory for the run"
        )
    return frozenset(same & (read | users))


def _remedy(is_ours: bool, has_options: bool) -> str:
    restart = "continue it with `bilm restart`, " if has_options else "its options.json is missing; "
    if is_ours:
        return f"{restart}give another `save_dir`, or replace it with overwrite=True"
    return f"{restart}give another `save_dir`, or remove it (without {MARK_FILE} it is not replaced)"


def mark(path: Path, users_files: Collection[str]) -> None:
    """Mark a directory as that of a run of ours.

    Args:
        path: of the directory.
        users_files: names of files that belong to the user all the same.

    Raises:
        OSError: from the file system.
    """
    with replacing(path / MARK_FILE) as file:
        file.write_text(json.dumps({"users_files": sorted(users_files)}) + "\n")


def mark_in_place(path: Path) -> None:
    """Mark the directory of a run that is continued and has no mark, such as one of bilm-tf's.

    Raises:
        OSError: from the file system.
    """
    if not (path / MARK_FILE).exists():
        is_users = (path / _VOCABULARY).exists() and not (path / _DIGEST).exists()
        mark(path, [_VOCABULARY] if is_users else [])


def _users_files(path: Path) -> frozenset[str]:
    """The files of the user's among those with names of a run; of a damaged mark the vocabulary."""
    try:
        return frozenset(parse_json((path / MARK_FILE).read_bytes())["users_files"])
    except (OSError, ValueError, TypeError, KeyError):
        return frozenset([_VOCABULARY])


def remove_run(path: Path, keep: Collection[str] = ()) -> None:
    """Remove the files of a run of ours; where some are kept, the mark stays with them.

    Args:
        path: of the directory.
        keep: names of files that stay, as do the user's.

    Raises:
        OSError: from the file system.
    """
    if not (path / MARK_FILE).exists():
        return
    files = [file for file in run_files(path) if file.name not in (LOCK_FILE, *keep, *_users_files(path))]
    if keep:
        files = [file for file in files if file.name != MARK_FILE]
    # The state file first: without it the rest is no run that could be half there. The mark last.
    for file in sorted(files, key=lambda file: (file.name == MARK_FILE, file.name != "checkpoint")):
        file.unlink(missing_ok=True)


def _holds(file: Path, content: bytes | None) -> bool:
    return content is not None and file.is_file() and file.read_bytes() == content


def _is_same(file: Path, other: Path) -> bool:
    return file.exists() and other.exists() and file.samefile(other)


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """The content of a vocabulary's files in a run, by their names."""
    text = "".join(f"{word}\n" for word in vocabulary.words).encode()
    return {_VOCABULARY: text, _DIGEST: f"{_sha256(text)}  {_VOCABULARY}\n".encode()}


class RunVocabulary:
    """The copy of its vocabulary in a run directory, with its SHA-256; bilm-tf's have none.

    Args:
        path: of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / _VOCABULARY
        self._digest_file = path / _DIGEST

    def verify(self) -> None:
        """Refuse a copy that is not what it was.

        Raises:
            CheckpointError: it was changed, or cannot be read.
        """
        if not (self.file.is_file() and self._digest_file.is_file()):
            return
        with os_errors_as(CheckpointError, f"{self.file}: cannot be read"):
            if self._digest() != _sha256(self.file.read_bytes()):
                raise CheckpointError(f"{self.file}: changed since the run began; restore it")

    def check(self, vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary other than the run's, as far as the run knows it.

        Raises:
            VocabularyError: says what differs.
        """
        if not self._digest_file.is_file():  # of a vocabulary file beside bilm-tf's run nothing is known
            return
        if self.file.is_file():
            text = self.file.read_text(encoding="utf-8")
            _refuse_difference(vocabulary.words, text.split("\n")[:-1], self.path)
        elif self._digest() != _sha256(vocabulary_files(vocabulary)[_VOCABULARY]):
            raise VocabularyError(
                f"the vocabulary is not the one of the run in {self.path}: its SHA-256 is not "
                f"{self._digest()[:64]}"
            )

    def _digest(self) -> str:
        return self._digest_file.read_text(errors="replace").partition(" ")[0]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _refuse_difference(words: Sequence[str], expected: Sequence[str], path: Path) -> None:
    if list(words) == list(expected):
        return
    new, gone = len(set(words) - set(expected)), len(set(expected) - set(words))
    line = next(
        (i for i, (a, b) in enumerate(zip(words, expected, strict=False), start=1) if a != b),
        min(len(words), len(expected)) + 1,
    )
    here = quoted(words[line - 1]) if line <= len(words) else "nothing"
    there = quoted(expected[line - 1]) if line <= len(expected) else "nothing"
    raise VocabularyError(
        f"the vocabulary is not the one of the run in {path}: {len(words)} words instead of {len(expected)}, "
        f"{new} new, {gone} gone; first difference at line {line}: {here} instead of {there}"
    )
