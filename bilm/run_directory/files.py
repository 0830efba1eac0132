"""Files of a run directory: lock, mark, checkpoints and vocabulary.

A new run refuses a directory that contains a file with the name of a run's file. bilm marks the directory of
a new run; then all files with such names belong to the run.
"""

import contextlib
import hashlib
import logging
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from bilm.errors import CheckpointError, VocabularyError
from bilm.io import atomic, foreign, messages, outputs, run_files
from bilm.options import Options
from bilm.options.options_file import read_options
from bilm.options.recipes import OF_BILM_TF
from bilm.vocabulary.vocabulary import Vocabulary

_LOG = logging.getLogger(__name__)

_NEWEST = re.compile(r'^model_checkpoint_path:\s*"(?P<path>(?:[^"\\]|\\.)*)"\s*$', re.MULTILINE)
_INDEX_FILE = re.compile(re.escape(run_files.CHECKPOINT) + r"(?P<step>[0-9]{1,18})\.index")


class CheckpointIndex:
    """Checkpoints ``model.ckpt-STEP`` in a directory.

    TensorFlow's state file ``checkpoint`` names the newest; the others are found by file name.

    Args:
        path: run directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state_file = path / run_files.STATE_FILE

    def prefix(self, step: int | str) -> Path:
        """Return the prefix of the checkpoint of a step."""
        return self.path / f"{run_files.CHECKPOINT}{step}"

    def steps(self) -> list[int]:
        """List the steps with a checkpoint, ascending."""
        names = (file.name for file in self.path.glob(f"{run_files.CHECKPOINT}*.index"))
        matches = map(_INDEX_FILE.fullmatch, names)
        return sorted(int(match["step"]) for match in matches if match)

    def newest(self) -> Path:
        """Return the prefix named in the state file.

        Raises:
            CheckpointError: the state file is missing or damaged, or names a checkpoint that does not exist.
        """
        if (match := _NEWEST.search(self.state())) is None:
            problem = f"{self.state_file}: missing" if self.steps() else f"{self.path}: no checkpoint yet"
            if self.state_file.exists():
                line = 'a line model_checkpoint_path: "model.ckpt-N" that names the newest checkpoint'
                problem = f"{self.state_file}: damaged; it must have {line}"
            raise CheckpointError(problem)
        name = Path(match["path"])
        # In this directory first, because the run may have been copied or moved.
        for place in (self.path / name.name, self.path / name):
            if os.path.isfile(f"{place}.index"):
                return place
        raise CheckpointError(f"{place}.index: no such checkpoint")

    def state(self) -> str:
        """Read the state file, which changes with every save; "" without a state file.

        Raises:
            CheckpointError: the state file cannot be read.
        """
        if not self.state_file.exists():
            return ""
        return outputs.read_file(self.state_file, CheckpointError).decode("utf-8", "replace")

    def exists(self) -> bool:
        """Return true if there is a checkpoint or a state file."""
        return self.state_file.exists() or bool(self.steps())

    def make_newest(self, step: int, obsolete: Collection[int] = ()) -> None:
        """Record a written checkpoint as the newest; remove obsolete ones and those without an index.

        Raises:
            OSError: a file cannot be written or removed.
        """
        names = [self.prefix(other).name for other in self.steps() if other < step and other not in obsolete]
        lines = [f'model_checkpoint_path: "{self.prefix(step).name}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in [*names, self.prefix(step).name]]
        atomic.write(self.state_file, ("\n".join(lines) + "\n").encode())
        present = run_files.run_files(self.path)
        files = [file for file in present if file.name.startswith(run_files.CHECKPOINT)]
        kept = {file.stem for file in files if file.suffix == ".index"}
        kept -= {self.prefix(step).name for step in obsolete}
        # The index first: without it there is no checkpoint.
        for file in sorted(files, key=lambda file: file.suffix != ".index"):
            if file.stem not in kept:
                file.unlink(missing_ok=True)


def is_run(path: Path) -> bool:
    """Return true for a run directory: one with the mark or the lock of bilm, or with checkpoints."""
    return (path / run_files.LOCK_FILE).exists() or is_begun(path)


def is_begun(path: Path) -> bool:
    """Return true for a run whose model has been made, unlike one that still reads its text."""
    return (path / run_files.MARK_FILE).exists() or CheckpointIndex(path).exists()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[atomic.FileLock]:
    """Create and lock a run directory, and yield the lock; an empty directory is removed at the end.

    Raises:
        CheckpointError: another process writes there, or the directory cannot be written.
    """
    if os.path.lexists(path) and not path.is_dir():
        raise CheckpointError(f"{path}: is not a directory; give the name of one to write")
    made = [place for place in (path, *path.parents) if not place.exists()]
    with contextlib.ExitStack() as held:
        for place in reversed(made):
            held.callback(_remove_if_empty, place)
        try:
            with messages.os_errors_as(CheckpointError, f"{path}: cannot be written"):
                path.mkdir(parents=True, exist_ok=True)
                lock = held.enter_context(atomic.FileLock(path / run_files.LOCK_FILE))
        except atomic.HeldError as error:
            remedy = f"wait for it to finish (remove {run_files.LOCK_FILE} if its host failed)"
            remedy += ", or give another directory"
            raise CheckpointError(f"{path}: {error} is training in it; {remedy}") from error
        if not lock.is_supported:
            remedy = "make sure that no other process trains in it"
            _LOG.warning("%s: this file system has no locks; %s", path, remedy)
        yield lock


def _remove_if_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.rmdir()


def require_replaceable(path: Path, overwrite: bool, inputs: Collection[Path] = ()) -> None:
    """Check that a new run in a directory would not overwrite anything else.

    A run of bilm without checkpoints may always be replaced.

    Args:
        path: run directory, which need not exist.
        overwrite: allow replacing a run of bilm with checkpoints.
        inputs: files and run directories that the call reads.

    Raises:
        CheckpointError: a run, a file not written by a run, or an input would be lost.
    """
    existing = [file for file in inputs if file.exists()]
    if path.exists() and any(map(path.samefile, existing)):
        raise CheckpointError(f"{path}: is an input of this command; give another directory for the run")
    present = {file.name: file for file in run_files.run_files(path) if file.name != run_files.LOCK_FILE}
    is_ours = run_files.MARK_FILE in present
    if CheckpointIndex(path).exists() and not (is_ours and overwrite):
        way = "replace it with overwrite=True" if is_ours else f"remove it (it has no {run_files.MARK_FILE})"
        finish = "finish it with `resume` if it was interrupted, " * is_ours
        remedy = f"{finish}continue it with `bilm restart`, give another directory, or {way}"
        raise CheckpointError(f"{path}: already holds a run; {remedy}")
    # A user's, in the directory of a continued run of bilm-tf: our own has its digest beside it.
    users = {run_files.VOCABULARY_FILE} if run_files.DIGEST_FILE not in present else set()
    for name, file in present.items():
        if not is_ours or name in users or (file.exists() and any(map(file.samefile, existing))):
            problem = "is an input of this command, or was not written by the run in this directory"
            remedy = "move it away, or give another directory for the run"
            raise CheckpointError(f"{file}: {problem}, and would be lost; {remedy}")


def remove_run(path: Path) -> None:
    """Remove the files of a run of bilm.

    Raises:
        OSError: a file cannot be removed.
    """
    if not (path / run_files.MARK_FILE).exists():
        return
    files = [file for file in run_files.run_files(path) if file.name != run_files.LOCK_FILE]
    # What makes it a run first, so that a half-removed one is not taken for a run; the mark last.
    places = {run_files.STATE_FILE: 0, run_files.MARK_FILE: 3}
    for file in sorted(files, key=lambda file: places.get(file.name, 1 if file.suffix == ".index" else 2)):
        file.unlink(missing_ok=True)


def vocabulary_files(vocabulary: Vocabulary) -> dict[str, bytes]:
    """Return the content of the vocabulary files of a run, by file name."""
    text = "".join(f"{word}\n" for word in vocabulary.words).encode()
    digest = f"{_sha256(text)}  {run_files.VOCABULARY_FILE}\n".encode()
    # The digest first: a vocabulary without one is a user's, see `require_replaceable`.
    return {run_files.DIGEST_FILE: digest, run_files.VOCABULARY_FILE: text}


def verify_vocabulary(path: Path) -> None:
    """Check that the run's copy of its vocabulary is unchanged; runs of bilm-tf have no copy.

    Raises:
        CheckpointError: the copy was changed, or cannot be read.
    """
    file, digest = path / run_files.VOCABULARY_FILE, _recorded_digest(path)
    if digest is not None and file.exists() and digest != _sha256(outputs.read_file(file, CheckpointError)):
        raise CheckpointError(f"{file}: changed since the run began; restore it")


def check_vocabulary(path: Path, vocabulary: Vocabulary) -> None:
    """Check that a vocabulary is the one of the run, if the run has recorded it.

    Raises:
        VocabularyError: the vocabularies differ.
    """
    text = vocabulary_files(vocabulary)[run_files.VOCABULARY_FILE]
    if _recorded_digest(path) in (None, _sha256(text)):
        return
    copy = path / run_files.VOCABULARY_FILE
    raise VocabularyError(f"the vocabulary is not the run's, whose copy is {copy}")


def _recorded_digest(path: Path) -> str | None:
    file = path / run_files.DIGEST_FILE
    if not file.exists():
        return None
    return outputs.read_file(file, CheckpointError).decode("utf-8", "replace").partition(" ")[0]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read_run_options(path: Path) -> Options:
    """Read the options of a run; keys that bilm-tf's ``options.json`` lacks have the values of bilm-tf.

    Raises:
        CheckpointError: the path is not a run directory; the message says what it is, if known.
        OptionsError: the options are invalid.
    """
    file = path / run_files.OPTIONS_FILE
    if not file.is_file():
        problem = run_files.own_output(path) or "no such directory"
        if is_run(path) and not is_begun(path):
            problem = "a training there is still reading its text, or was killed meanwhile"
        elif path.exists():
            problem = (
                foreign.what_it_is(path)
                or "no options.json in it; restore it, or give weights with their options"
            )
        raise CheckpointError(f"{path}: not a run directory: {problem}")
    options = read_options(file, missing=OF_BILM_TF)
    if options.n_tokens_vocab is None:
        problem = "its options.json goes with dumped weights"
        remedy = "give their file as `model`, or restore the options that the run was trained with"
        raise CheckpointError(f"{path}: not a run directory: {problem}; {remedy}")
    return options
