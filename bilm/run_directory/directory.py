"""The run directory: options, vocabulary and checkpoints of one model.

It has the form of a bilm-tf save directory (``options.json``, ``checkpoint``, ``model.ckpt-N.*``),
and a directory written by bilm-tf is taken as it is. Beside those files stand ``vocab.txt``, a copy
of the vocabulary, with its SHA-256, records, and the mark of `bilm.run_directory.files`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.errors import BilmError, CheckpointError, OptionsError, WeightsError
from bilm.io import PathLike
from bilm.io.atomic import FileLock, HeldError, replacing
from bilm.io.foreign import what_it_is
from bilm.io.messages import os_errors_as, quoted, shown
from bilm.options import Options
from bilm.options.file import OptionsFile, read_options
from bilm.run_directory.files import (
    LOCK_FILE,
    MARK_FILE,
    CheckpointIndex,
    RunVocabulary,
    mark,
    mark_in_place,
    remove_run,
    require_room,
    vocabulary_files,
)
from bilm.run_directory.state import HELDOUT, read_state, read_weights, restore_model, save_model
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.hdf5_file import Arrays
from bilm.weights.names import weight_names
from bilm.weights.stored_model import require_size
from bilm.weights.transfer import Remapping

_LOG = logging.getLogger(__name__)
_TRIES = 20  # to read beside a training that removes what is read
_LONGEST_STEP = 18  # digits

Choice = tuple[CheckpointFile, BilmError | None]
"""A checkpoint, and why the one that should be the newest was passed over."""


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
        stats = [place.stat() for place in made]
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
            for place, before in zip(made, stats, strict=True):
                if os.path.samestat(place.stat(), before):
                    place.rmdir()


def require_directory(path: Path) -> None:
    """Refuse a path that cannot become a run directory, as far as that can be told without writing.

    Raises:
        CheckpointError: it is a file, or cannot be written.
    """
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise CheckpointError(f"{nearest}: exists and is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise CheckpointError(f"{path}: cannot be written: no permission to write in {nearest}")


class RunDirectory:
    """One model on disk. Use `create` or `open`.

    Attributes:
        path: of the directory.
        options: of the model.
        missing: keys of options that its ``options.json`` lacks.
        names: of the model's weights.
        index: of its checkpoints.

    Example:
        >>> import bilm
        >>> run = bilm.RunDirectory.open("run")
        >>> run.options.n_tokens_vocab, run.latest().step(), run.weights()["softmax/b"].shape
        (73, 12, (73,))
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.missing: list[str] = []
        self.names = weight_names(options)
        self.index = CheckpointIndex(path)
        self._vocabulary = RunVocabulary(path)

    @classmethod
    def create(
        cls,
        path: str | Path,
        options: Options,
        vocabulary: Vocabulary,
        overwrite: bool = False,
        inputs: Collection[Path] = (),
    ) -> RunDirectory:
        """Start a new run.

        Args:
            path: of the directory; it is made.
            options: of the model.
            vocabulary: of the model.
            overwrite: replace the run that is there; other files stay.
            inputs: files that are read in training.

        Raises:
            CheckpointError: the directory holds a run already and `overwrite` is not set, a file is in the
                way that no run wrote, or it cannot be written.
        """
        run = cls(Path(path), options)
        wanted = vocabulary_files(vocabulary) | {"options.json": run._options_text()}
        require_directory(run.path)
        users_files = require_room(run.path, overwrite, wanted, inputs)
        try:
            with run._written():
                run.path.mkdir(parents=True, exist_ok=True)
                remove_run(run.path, users_files)
                mark(run.path, users_files)
                for name in wanted.keys() - users_files:
                    run._write(name, wanted[name])
        except CheckpointError:
            run.discard_unsaved()
            raise
        return run

    def _options_text(self) -> bytes:
        return (json.dumps(self.options.to_json(), indent=1) + "\n").encode()

    def _written(self) -> contextlib.AbstractContextManager[None]:
        """While the directory is written to."""
        return os_errors_as(CheckpointError, f"{self.path}: cannot be written")

    def _write(self, name: str, data: bytes) -> None:
        with replacing(self.path / name) as file:
            file.write_bytes(data)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """Open a run of ours or of bilm-tf.

        Raises:
            CheckpointError: it is not a run directory, or its vocabulary file was changed.
            OptionsError: its options are invalid.
        """
        path = Path(path)
        read = _read_run_options(path)
        run = cls(path, read.options)
        run.missing = read.missing
        read.warn_of_unknown(path / "options.json")
        run._vocabulary.verify()
        return run

    def check_readable(self) -> None:
        """Make sure that the next command can read the run.

        Raises:
            CheckpointError: its vocabulary was changed, or there is no checkpoint.
            OptionsError: its options were removed or changed.
        """
        read_options(self.path / "options.json")
        self._vocabulary.verify()
        if not self.index.exists():
            raise CheckpointError(f"{self.path}: no checkpoint yet")

    @property
    def vocabulary_file(self) -> Path:
        """The run's copy of its vocabulary; bilm-tf's directories have none."""
        return self._vocabulary.file

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary other than the run's.

        Raises:
            VocabularyError: says what differs.
        """
        self._vocabulary.check(vocabulary)
        require_size(vocabulary, self.options.n_tokens_vocab, str(self.path))

    def take_over(self, vocabulary: Vocabulary) -> None:
        """Make a run that is continued one of ours; a vocabulary that is there stays.

        Raises:
            CheckpointError: it cannot be written.
        """
        with self._written():
            mark_in_place(self.path)
            if not self.vocabulary_file.exists():
                for name, data in vocabulary_files(vocabulary).items():
                    self._write(name, data)

    def latest(self, read: bool = True) -> CheckpointFile:
        """The newest checkpoint that can be read; its names and shapes fit the options.

        Where that is not the one which the file ``checkpoint`` names, a warning says why.

        Args:
            read: whether to read it all and compare the checksums; else names and shapes only.

        Raises:
            CheckpointError: there is none, or all are damaged.
            WeightsError: it is that of another model.
        """
        checkpoint, problem = self._settled(lambda: self._newest_whole(read))
        if problem is not None:
            _LOG.warning("%s; using %s instead", problem, checkpoint.prefix)
        return checkpoint

    def choose(self, which: str) -> CheckpointFile:
        """A checkpoint by name.

        Args:
            which: ``latest``, ``best`` (lowest heldout perplexity) or a step.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
            OptionsError: `which` is none of these.
            WeightsError: it is that of another model.
        """
        if which == "latest":
            return self.latest()
        if which == "best":
            return self._settled(lambda: (self._best(), None))[0]
        if not (which.isascii() and which.isdecimal() and len(which) <= _LONGEST_STEP):
            raise OptionsError(f"checkpoint {quoted(which)}: must be latest, best or the number of a step")
        return self._settled(lambda: (self._of_step(int(which)), None))[0]

    def _settled(self, find: Callable[[], Choice]) -> Choice:
        """Find a checkpoint while no training saves and removes checkpoints."""
        for _ in range(_TRIES):
            state = self.index.state()
            try:
                choice = find()
            except CheckpointError:
                if self.index.state() == state:
                    raise
                continue
            if choice[1] is None or self.index.state() == state:
                return choice
        return find()

    def _newest_whole(self, read: bool) -> Choice:
        problem: BilmError | None = None
        named: Path | None = None
        try:
            named = self.index.newest()
        except CheckpointError as error:
            problem = error
        others = [
            prefix for prefix in map(self.index.prefix, reversed(self.index.steps())) if prefix != named
        ]
        for prefix in [*([named] if named else []), *others]:
            try:
                return self._checked(prefix, read), problem
            except WeightsError as error:
                if prefix == named:  # it is the options that do not fit
                    raise
                problem = problem or error
            except CheckpointError as error:
                problem = problem or error
        raise problem or CheckpointError(f"{self.path}: no checkpoint yet")

    def _best(self) -> CheckpointFile:
        state = read_state(self.latest())
        if state is None or state.best is None:
            is_validated = state is not None and HELDOUT in state.settings
            raise CheckpointError(
                f"{self.path}: no best checkpoint: "
                + ("no validation yet" if is_validated else "the run was trained without heldout text")
            )
        return self._checked(self.index.prefix(state.best.step))

    def _of_step(self, step: int) -> CheckpointFile:
        prefix, steps = self.index.prefix(step), self.index.steps()
        if step not in steps:
            have = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(f"{prefix}: no such checkpoint; there are those of steps: {have}")
        return self._checked(prefix)

    def _checked(self, prefix: Path, read: bool = True) -> CheckpointFile:
        checkpoint = CheckpointFile(prefix)
        checkpoint.check(self.names)
        if read:
            checkpoint.verify()
        return checkpoint

    def weights(self, which: str = "latest", weights: str | None = None) -> Arrays:
        """The weights of a checkpoint, by our own names.

        Args:
            which: see `choose`.
            weights: ``"raw"``, or ``"averaged"`` for their averages over the training; None for the averages
                where the run has kept some.

        Raises:
            CheckpointError: as `choose`, or averages are asked for, and there are none.
            OptionsError: as `choose`, or `weights` is none of these.
            WeightsError: it is that of another model.
        """
        return read_weights(self.choose(which), self.names, weights)

    def restore(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer | None = None,
        checkpoint: CheckpointFile | None = None,
        remapping: Remapping | None = None,
        weights: str | None = None,
    ) -> int:
        """Set model and optimizer from a checkpoint, the newest if none is given.

        Args:
            model: of the run's options.
            optimizer: its own, or None.
            checkpoint: of the run.
            remapping: to the vocabulary of the model, if that is not the run's. It carries the state of
                Adagrad and Adam; any other optimizer starts anew.
            weights: see `weights`.

        Returns:
            The number of steps behind it.

        Raises:
            CheckpointError: no checkpoint, or a damaged one, or as `weights`.
            OptionsError: as `weights`.
            WeightsError: its arrays do not fit the options.
        """
        checkpoint = checkpoint or self.latest()
        restore_model(model, optimizer, checkpoint, self.names, remapping, weights)
        return checkpoint.step()

    def save(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        step: int,
        train_perplexity: float,
        extras: Mapping[str, tf.Tensor] | None = None,
        *,
        obsolete: Collection[int] = (),
    ) -> Path:
        """Write a checkpoint, make it the newest, and return its prefix, ``model.ckpt-STEP``.

        Args:
            model: the model.
            optimizer: with its state.
            step: steps behind the model.
            train_perplexity: of the last step.
            extras: what else goes into it, see `bilm.run_directory.state.RunState`.
            obsolete: steps whose checkpoints are removed then.

        Raises:
            CheckpointError: it could not be written; the one before stays the newest.
        """
        prefix = self.index.prefix(step)
        with self._written():
            if not (self.path / "options.json").exists():  # removed by somebody, and no run without it
                self._write("options.json", self._options_text())
            save_model(prefix, self.names, model, optimizer, step, train_perplexity, extras or {})
            self.index.make_newest(step, obsolete)
        return prefix

    def obsolete(self, keep: int, first: int, step: int, spare: Container[int | None] = ()) -> list[int]:
        """The steps of a call whose checkpoints go when that of another step is saved.

        Args:
            keep: how many stay, the new one among them.
            first: steps behind the model when the call began; checkpoints up to there are left alone.
            step: of the new checkpoint; what is later was given up.
            spare: steps that stay beyond them.
        """
        own = [other for other in self.index.steps() if first < other < step]
        return [other for other in own[: max(0, len(own) + 1 - keep)] if other not in spare]

    def discard_unsaved(self) -> None:
        """Remove a run that ended before its first checkpoint, but for the text of a batch that diverged."""
        if not self.index.exists():
            with contextlib.suppress(OSError):
                remove_run(self.path, [file.name for file in self.path.glob("diverged-*.txt")])


def _read_run_options(path: Path) -> OptionsFile:
    """Read the options of a run.

    Raises:
        CheckpointError: it is not a run directory; says what it is, as far as that is known.
        OptionsError: its options are invalid, or not those that it was trained with.
    """
    file = path / "options.json"
    has_checkpoints = CheckpointIndex(path).exists()
    if not file.is_file():
        if (path / MARK_FILE).exists():
            raise CheckpointError(
                f"{path}: its options.json is missing; restore it (calls.jsonl there has the options of each "
                "call), or train into another directory"
            )
        raise CheckpointError(f"{path}: not a run directory: {_what_else(path)}")
    read = read_options(file)
    if read.options.n_tokens_vocab is None:
        if not has_checkpoints:
            raise CheckpointError(
                f"{path}: not a run directory: its options.json goes with dumped weights, and it has no "
                "checkpoints; give it as `model`"
            )
        raise OptionsError(
            f"{file}: n_tokens_vocab: missing; these are options for inference, restore those that the run "
            "was trained with"
        )
    return read


def _what_else(path: Path) -> str:
    if not path.exists():
        return "no such directory"
    what = what_it_is(path)
    if what is not None:
        return f"it is {what}"
    return "no options.json in it" if path.is_dir() else "a file; a model that is a file is given as `model`"


# Options for which bilm-tf has no value of its own, and would not run without; its other keys are optional.
_TRAINING = frozenset(
    "unroll_steps batch_size dropout all_clip_norm_val n_negative_samples_batch n_epochs".split()
)


def complete_options(
    run: RunDirectory,
    checkpoint: CheckpointFile,
    given: Collection[str] = (),
    needed: Collection[str] | None = None,
) -> Options:
    """A run's options with what its ``options.json`` lacks, which is told in a line.

    A checkpoint of ours has the options that it was trained with. One of bilm-tf's has none, and what
    bilm-tf would miss is assumed.

    Args:
        run: the run.
        checkpoint: of it.
        given: keys that have a value from elsewhere.
        needed: the keys that matter; None for all.

    Raises:
        CheckpointError: the checkpoint is damaged.
    """
    wanted = [key for key in run.missing if key not in given and (needed is None or key in needed)]
    if not wanted:
        return run.options
    state = read_state(checkpoint)
    saved: Any = {} if state is None else state.settings.get("options")
    saved = saved if isinstance(saved, dict) else {}
    options = run.options.with_values({key: saved[key] for key in wanted if key in saved})
    values, before = options.to_json(), run.options.to_json()
    changed = [key for key in wanted if key in saved and values[key] != before[key]]
    assumed = [key for key in wanted if key not in saved and key in _TRAINING]
    for keys, source in ((changed, "taken from the checkpoint"), (assumed, "assumed")):
        if keys:
            pairs = ", ".join(f"{key} {shown(values[key])}" for key in keys)
            _LOG.warning("%s lacks some options; %s: %s", run.path / "options.json", source, pairs)
    return options


def load_options_latest_checkpoint(save_dir: PathLike) -> tuple[dict[str, Any], str]:
    """The content of ``options.json``, and the prefix of the newest checkpoint.

    Raises:
        BilmError: it is no run directory, or holds no checkpoint.

    Example:
        >>> from bilm.training import load_options_latest_checkpoint
        >>> options, checkpoint = load_options_latest_checkpoint("run")
        >>> options["lstm"]["dim"], checkpoint
        (24, 'run/model.ckpt-12')
    """
    run = RunDirectory.open(str(save_dir))
    return run.options.to_json(), str(run.latest().prefix)
