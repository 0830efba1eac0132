"""The run directory: options, vocabulary and checkpoints of one model.

It has the form of a bilm-tf save directory (``options.json``, ``checkpoint``, ``model.ckpt-N.*``),
and a directory written by bilm-tf is taken as it is. Beside those files stand ``vocab.txt``, a copy
of the vocabulary, ``vocab.txt.sha256``, and `bilm.run_directory.files`' list of what the run wrote.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.errors import BilmError, CheckpointError, OptionsError, WeightsError
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.foreign import what_it_is
from bilm.io.json import parse_json, shown
from bilm.io.locks import FileLock, HeldError
from bilm.io.messages import os_errors_as, quoted
from bilm.options import Options
from bilm.options.file import OptionsFile, read_options
from bilm.run_directory.files import (
    LOCK_FILE,
    CheckpointIndex,
    Names,
    RunFiles,
    RunVocabulary,
    content,
    sha256,
)
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, CallRecord, read_calls, read_metrics
from bilm.run_directory.state import is_resumable, read_state, read_weights, restore_model, save_model
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.hdf5_file import Arrays
from bilm.weights.names import WeightName, weight_names
from bilm.weights.transfer import Remapping


def files_of(path: Path) -> RunFiles:
    """The files of the run in a directory, by its list or, where it has none, by what they contain."""
    files = RunFiles(path)
    return files if files.is_listed or not path.is_dir() else RunFiles(path, _told_by_content(path))


def _told_by_content(path: Path) -> Names:
    """The files that only a run of bilm or bilm-tf can have written."""
    calls, index = _calls(path), CheckpointIndex(path)
    names: Names = {}
    if calls:
        names[CALLS_FILE] = None
    if _are_metrics(path / METRICS_FILE, bool(calls)):
        names[METRICS_FILE] = None
    if RunVocabulary(path).is_intact():
        names |= {"vocab.txt": sha256((path / "vocab.txt").read_bytes()), "vocab.txt.sha256": None}
    named = index.named_steps()
    if (calls and _is_of_call(path / "options.json", calls[-1])) or (named and _is_of_run(path)):
        names["options.json"] = None
        names |= {"checkpoint": None} if named else {}
        names |= {index.prefix(step).name: None for step in named}
    return names | {index.prefix(step).name: None for step in index.steps() if _is_ours(index.prefix(step))}


def _calls(path: Path) -> tuple[CallRecord, ...]:
    try:
        return read_calls(path / CALLS_FILE)
    except BilmError:
        return ()


def _are_metrics(file: Path, may_be_empty: bool) -> bool:
    try:
        metrics = read_metrics(file)
    except BilmError:
        return False
    return may_be_empty or metrics.last is not None


def _is_of_call(file: Path, call: CallRecord) -> bool:
    try:
        return bool(parse_json(file.read_bytes()) == call.options)
    except (OSError, ValueError):
        return False


def _is_of_run(path: Path) -> bool:
    try:
        return read_options(path / "options.json").options.n_tokens_vocab is not None
    except BilmError:
        return False


def _is_ours(prefix: Path) -> bool:
    try:
        return is_resumable(CheckpointFile(prefix))
    except CheckpointError:
        return False


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


def read_run_options(path: Path) -> OptionsFile:
    """Read the options of a run.

    Args:
        path: of the directory.

    Raises:
        CheckpointError: it is not a run directory; says what it is, as far as that is known.
        OptionsError: its options are invalid, or not those that it was trained with.
    """
    file = path / "options.json"
    if not file.is_file():
        raise CheckpointError(f"{path}: not a run directory: {_what_else(path)}")
    read = read_options(file)
    if read.options.n_tokens_vocab is None:
        if not CheckpointIndex(path).exists():
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


_TRIES = 20  # to read beside a training that removes what is read

Found: TypeAlias = tuple[CheckpointFile, BilmError | None]
"""A checkpoint, and why it is not the one that should be the newest."""

_LONGEST_STEP = 18  # digits


class CheckpointChoice:
    """The checkpoints of a run, each checked before it is handed out.

    Args:
        index: of the directory.
        names: of the model's weights.
    """

    def __init__(self, index: CheckpointIndex, names: Sequence[WeightName]) -> None:
        self.index = index
        self.names = names

    def latest(self, read: bool = True) -> CheckpointFile:
        """As `bilm.run_directory.directory.RunDirectory.latest`."""
        checkpoint, problem = self._settled(lambda: self._newest_whole(read))
        if problem is not None:
            _LOG.warning("%s; using %s instead", problem, checkpoint.prefix)
        return checkpoint

    def choose(self, which: str) -> CheckpointFile:
        """As `bilm.run_directory.directory.RunDirectory.choose`."""
        if which == "latest":
            return self.latest()
        if which == "best":
            return self._settled(lambda: (self._best(), None))[0]
        if not (which.isascii() and which.isdecimal() and len(which) <= _LONGEST_STEP):
            raise OptionsError(f"checkpoint {quoted(which)}: must be latest, best or the number of a step")
        return self._settled(lambda: (self._of_step(int(which)), None))[0]

    def _settled(self, find: Callable[[], Found]) -> Found:
        """What is found when no training has saved and removed checkpoints meanwhile."""
        for _ in range(_TRIES):
            state = self.index.state()
            try:
                found = find()
            except CheckpointError:
                if self.index.state() == state:
                    raise
                continue
            if found[1] is None or self.index.state() == state:
                return found
        return find()

    def _newest_whole(self, read: bool) -> Found:
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
        raise problem or CheckpointError(f"{self.index.path}: no checkpoint yet")

    def _best(self) -> CheckpointFile:
        state = read_state(self.latest())
        if state is None or state.best is None:
            raise CheckpointError(
                f"{self.index.path}: no best checkpoint: the run was trained without heldout text"
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


class RunDirectory:
    """One model on disk. Use `create` or `open`.

    Attributes:
        path: of the directory.
        options: of the model.

    Example:
        >>> import bilm
        >>> run = bilm.RunDirectory.open("run")
        >>> run.options.n_tokens_vocab, run.latest().step(), run.weights()["softmax/b"].shape
        (73, 12, (73,))
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.missing: list[str] = []  # options that its file lacks
        self.names = weight_names(options)
        self.index = CheckpointIndex(path)
        self._vocabulary = RunVocabulary(path)
        self._checkpoints = CheckpointChoice(self.index, self.names)
        self.files = RunFiles(path)

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
        text = json.dumps(options.to_json(), indent=1) + "\n"
        wanted = content(vocabulary) | {"options.json": text.encode()}
        run.files = room_for_run(run.path, overwrite, wanted, inputs)
        try:
            with run._written():
                run.path.mkdir(parents=True, exist_ok=True)
                run.files.remove_all()
                run.files.write()
                for name, data in wanted.items():
                    if not (run.path / name).exists():
                        run.write(name, data)
        except CheckpointError:
            run.discard_unsaved()
            raise
        return run

    def _written(self) -> contextlib.AbstractContextManager[None]:
        """While the directory is written to."""
        return os_errors_as(CheckpointError, f"{self.path}: cannot be written")

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the run that stays as it is.

        Raises:
            CheckpointError: another one is there.
            OSError: from the file system.
        """
        self.files.claim(name, data)
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
        read = read_run_options(path)
        run = cls(path, read.options)
        run.missing = read.missing
        read.warn_of_unknown(path / "options.json")
        run._vocabulary.verify()
        return run

    def check_readable(self) -> None:
        """Make sure that the next command can read the run.

        Raises:
            CheckpointError: its vocabulary was changed, or there is no checkpoint.
            OptionsError: its options were changed to what is none.
        """
        read_options(self.path / "options.json")
        self._vocabulary.verify()
        self.index.newest()

    @property
    def vocabulary_file(self) -> Path:
        """The run's copy of its vocabulary; bilm-tf's directories have none."""
        return self._vocabulary.file

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary other than the run's.

        Raises:
            VocabularyError: says what differs.
        """
        self._vocabulary.check(vocabulary, self.options.n_tokens_vocab)

    def keep_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Make the copy of its vocabulary that a run of bilm-tf has not; one that is there stays.

        Raises:
            CheckpointError: it cannot be written.
        """
        if not self.vocabulary_file.exists():
            with self._written():
                for name, data in content(vocabulary).items():
                    self.write(name, data)

    def latest(self, read: bool = True) -> CheckpointFile:
        """The newest checkpoint that can be read; its names and shapes fit the options.

        Where that is not the one which the file ``checkpoint`` names, a warning says why.

        Args:
            read: whether to read it all and compare the checksums; else names and shapes only.

        Raises:
            CheckpointError: there is none, or all are damaged.
            WeightsError: it is that of another model.
        """
        return self._checkpoints.latest(read)

    def choose(self, which: str) -> CheckpointFile:
        """A checkpoint by name.

        Args:
            which: ``latest``, ``best`` (lowest heldout perplexity) or a step.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
            OptionsError: `which` is none of these.
            WeightsError: it is that of another model.
        """
        return self._checkpoints.choose(which)

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
    ) -> Path:
        """Write a checkpoint, make it the newest, and return its prefix, ``model.ckpt-STEP``.

        Args:
            model: the model.
            optimizer: with its state.
            step: steps behind the model.
            train_perplexity: of the last step.
            extras: what else goes into it, see `bilm.run_directory.state.RunState`.

        Raises:
            CheckpointError: it could not be written; the one before stays the newest.
        """
        prefix = self.index.prefix(step)
        with self._written():
            self.files.claim(prefix.name)
            save_model(prefix, self.names, model, optimizer, step, train_perplexity, extras or {})
            self.files.claim("checkpoint")
            self.index.add(prefix)
        return prefix

    def prune(self, keep: int, first: int, last: int, spare: Container[int | None] = ()) -> None:
        """Delete all but the newest checkpoints of a call; what the run did not write stays.

        Args:
            keep: how many stay.
            first: steps behind the model when the call began; checkpoints up to there are left alone.
            last: the newest of the call; what is later was given up.
            spare: steps that stay beyond them.
        """
        steps = (step for step in self.index.steps() if first < step <= last)
        own = [step for step in steps if self.files.owns(self.index.prefix(step).name)]
        for step in own[:-keep]:
            if step not in spare:
                self.files.remove(self.index.prefix(step).name)

    def take_over(self, step: int) -> None:
        """Make ready to write in a run that others wrote, from a step on.

        Raises:
            CheckpointError: what is to be written is there already, and is not of the run.
        """
        self.files = room_for_steps(self.index, step)

    def make_ready(self, vocabulary: Vocabulary) -> None:
        """List the files of the run, and write the copy of its vocabulary again if that was removed.

        Raises:
            CheckpointError: the directory cannot be written.
        """
        with self._written():
            self.files.write()
            if self._vocabulary.is_lost():
                self.write("vocab.txt", content(vocabulary)["vocab.txt"])

    def discard_unsaved(self) -> None:
        """Leave nothing of a run that ended before its first checkpoint; one with a checkpoint stays."""
        if not self.files.has_checkpoint():
            with contextlib.suppress(OSError):
                self.files.remove_all()


# What bilm-tf has no value of its own for, and would not run without; its other keys are optional there too.
_TRAINING = frozenset(
    "unroll_steps batch_size dropout all_clip_norm_val n_negative_samples_batch n_epochs".split()
)


def complete_options(
    run: RunDirectory, which: str, given: Collection[str] = (), needed: Collection[str] | None = None
) -> Options:
    """A run's options with what its ``options.json`` lacks, which is told in a line.

    A checkpoint of ours has the options that it was trained with. One of bilm-tf's has none, and what
    bilm-tf would miss is assumed.

    Args:
        run: The run.
        which: The checkpoint, see `RunDirectory.choose`.
        given: Keys that have a value from elsewhere.
        needed: The keys that matter; None for all.

    Raises:
        BilmError: As `RunDirectory.choose`, if there is a key to look for.
    """
    wanted = [key for key in run.missing if key not in given and (needed is None or key in needed)]
    if not wanted:
        return run.options
    state = read_state(run.choose(which))
    saved: Any = {} if state is None else state.settings.get("options")
    saved = saved if isinstance(saved, dict) else {}
    options = run.options.with_values({key: saved[key] for key in wanted if key in saved})
    values, before = options.to_json(), run.options.to_json()
    found = [key for key in wanted if key in saved and values[key] != before[key]]
    assumed = [key for key in wanted if key not in saved and key in _TRAINING]
    for keys, source in (
        (found, "taken from the checkpoint"),
        (assumed, "assumed"),
    ):
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
