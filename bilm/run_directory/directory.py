"""The run directory: options, vocabulary and checkpoints of one model.

Its layout is that of a bilm-tf save directory (``options.json``, ``checkpoint``, ``model.ckpt-N.*``), and
directories written by bilm-tf can be read unchanged. bilm adds ``vocab.txt``, a copy of the vocabulary with
its SHA-256, records, and the mark described in `bilm.run_directory.files`.
"""

import contextlib
import json
import logging
import math
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.errors import CheckpointError, DataError, OptionsError, checked
from bilm.io import PathLike, atomic, messages, run_files
from bilm.io.json_objects import Count, JsonObject, whole_lines
from bilm.io.shards import Shard
from bilm.options import Options
from bilm.run_directory import files, state
from bilm.run_directory.records import WRITER, read_calls
from bilm.training.optimizers import TrainingOptimizer
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights import distribution, names
from bilm.weights.arrays import Arrays
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint

_LOG = logging.getLogger(__name__)
_LONGEST_STEP = 18  # digits
_TRIES = 20  # to read while a training removes old checkpoints


class RunDirectory:
    """One model on disk. Use `create` or `open`.

    Attributes:
        path: path of the directory.
        options: options of the model.
        names: names of the model's weights.
        index: checkpoints of the directory.

    Example:
        >>> import bilm
        >>> run = bilm.RunDirectory.open("run")
        >>> run.options.n_tokens_vocab, run.latest().step(), run.weights()["softmax/b"].shape
        (73, 12, (73,))
    """

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.names = names.weight_names(options)
        self.index = files.CheckpointIndex(path)

    @classmethod
    @checked
    def create(
        cls,
        path: PathLike,
        options: Options,
        vocabulary: Vocabulary,
        overwrite: bool = False,
        inputs: Collection[Path] = (),
        steps: bytes | None = None,
    ) -> "RunDirectory":
        """Start a new run.

        Args:
            path: directory to create.
            options: options of the model.
            vocabulary: vocabulary of the model.
            overwrite: replace an existing run; other files stay.
            inputs: files that the training reads.
            steps: content of ``text.json``; None without one.

        Raises:
            CheckpointError: the directory already holds a run and `overwrite` is not set, a file not written
                by a run is in the way, or the directory cannot be written.
        """
        run = cls(Path(path), options)
        files.require_replaceable(run.path, overwrite, inputs)
        try:
            with run._written():
                run.path.mkdir(parents=True, exist_ok=True)
                files.remove_run(run.path)
            run.take_over(vocabulary, steps)
        except BaseException:  # also of a signal
            run.discard_unsaved()
            raise
        return run

    def _written(self) -> contextlib.AbstractContextManager[None]:
        """Context in which errors of writing become `CheckpointError`."""
        return messages.os_errors_as(CheckpointError, f"{self.path}: cannot be written", DataError)

    @classmethod
    @checked
    def open(cls, path: PathLike) -> "RunDirectory":
        """Open a run directory of bilm or bilm-tf.

        Raises:
            CheckpointError: the path is not a run directory, or its vocabulary file was changed.
            OptionsError: its options are invalid.
        """
        path = Path(path)
        run = cls(path, files.read_run_options(path))
        files.verify_vocabulary(path)
        return run

    @property
    def vocabulary_file(self) -> Path:
        """Path of the run's copy of its vocabulary, or of a user's ``vocab.txt.gz``; may be missing."""
        places = [self.path / name for name in distribution.VOCABULARY_NAMES]
        return next(filter(Path.is_file, places), places[0])

    def take_over(self, vocabulary: Vocabulary, steps: bytes | None = None) -> None:
        """Mark a directory as a run of bilm before training begins or continues; keeps the files it has.

        Args:
            vocabulary: vocabulary of the model.
            steps: content of ``text.json``; None without one.

        Raises:
            CheckpointError: the directory cannot be written.
        """
        with self._written():
            if not (mark := self.path / run_files.MARK_FILE).exists():
                atomic.write(mark, (json.dumps({"written_by": WRITER}) + "\n").encode())
            if not (file := self.path / run_files.OPTIONS_FILE).exists():
                atomic.write(file, (json.dumps(self.options.to_json(), indent=1) + "\n").encode())
            if not (self.path / run_files.VOCABULARY_FILE).exists():
                for name, data in files.vocabulary_files(vocabulary).items():
                    atomic.write(self.path / name, data)
            if steps is not None and not (file := self.path / run_files.TEXT_FILE).exists():
                atomic.write(file, steps)

    def latest(self, read: bool = True) -> CheckpointFile:
        """Find the newest readable checkpoint; its names and shapes fit the options.

        Warns if the checkpoint named in the file ``checkpoint`` is damaged and an older one is used.

        Args:
            read: read the whole file and compare checksums; otherwise only names and shapes.

        Raises:
            CheckpointError: there is no checkpoint, or all are damaged.
            WeightsError: the checkpoint does not fit the options.
        """
        return self._settled(lambda: self._newest_whole(None if read else ()))

    @checked
    def choose(self, checkpoint: PathLike | int) -> CheckpointFile:
        """Find a checkpoint by name; its weights are read once, to compare checksums, and kept until used.

        Args:
            checkpoint: ``latest``, ``best`` (lowest heldout perplexity), a step, or the name of its files
                without their endings, such as ``model.ckpt-12``.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
            OptionsError: `checkpoint` has another value.
            WeightsError: the checkpoint does not fit the options.
        """
        name = str(checkpoint)
        if Path(name).parent.resolve() == self.path.resolve():  # a prefix, as results have it
            name = Path(name).name
        weights = [weight.tf1 for weight in self.names]
        if name == "latest":
            return self._settled(lambda: self._newest_whole(weights))
        is_step = name.isdecimal() and len(name) <= _LONGEST_STEP
        named = self.index.prefix(name) if is_step else self.path / name
        if name != "best" and not is_step and name not in {file.stem for file in self.path.glob("*.index")}:
            choices = "latest, best, a step or the name of a checkpoint"
            raise OptionsError(f"`checkpoint` is {name!r:.80}; give {choices}")

        def find() -> CheckpointFile:
            if is_step and int(name) not in (steps := self.index.steps()):
                there = f"those of the steps {', '.join(map(str, steps))}" if steps else "none"
                raise CheckpointError(f"{named}: no such checkpoint; there are {there}")
            if name != "best":
                return self._checked(named, weights)
            best = state.best_step(self._newest_whole(None))
            if best is None:
                raise CheckpointError(f"{self.path}: no best checkpoint: no heldout text was scored")
            return self._checked(self.index.prefix(best), weights)

        return self._settled(find)

    def _settled(self, find: Callable[[], CheckpointFile]) -> CheckpointFile:
        """Find a checkpoint; try again if a training process saved or removed some meanwhile."""
        for _ in range(_TRIES):
            before = self.index.state()
            try:
                return find()
            except CheckpointError:
                if self.index.state() == before:
                    raise
        return find()

    def _newest_whole(self, tensors: Collection[str] | None) -> CheckpointFile:
        """Find the newest checkpoint from which these tensors, or with None all, can be read."""
        problem, before = None, self.index.state()
        ways: list[Callable[[], Path]] = [self.index.newest]
        ways += [partial(self.index.prefix, step) for step in reversed(self.index.steps())]
        for find in ways:
            try:
                checkpoint = self._checked(find(), tensors)
            except CheckpointError as error:
                problem = problem or error
                continue
            if problem is not None:
                if self.index.state() != before:
                    raise problem
                _LOG.warning("%s; using %s instead", problem, checkpoint.prefix)
            return checkpoint
        raise problem or CheckpointError(f"{self.path}: no checkpoint yet")

    def _checked(self, prefix: Path, tensors: Collection[str] | None) -> CheckpointFile:
        checkpoint = CheckpointFile(prefix)
        checkpoint.check(self.names)
        if tensors is None:
            checkpoint.verify()
        else:
            checkpoint.keep(tensors)
        return checkpoint

    @checked
    def weights(self, checkpoint: PathLike | int = "latest") -> Arrays:
        """Read the weights of a checkpoint, by bilm's names.

        Args:
            checkpoint: see `choose`.

        Raises:
            CheckpointError: as `choose`.
            OptionsError: as `choose`.
            WeightsError: the checkpoint does not fit the options.
        """
        return self.choose(checkpoint).read(self.names)

    def save(
        self,
        model: keras.Model,
        optimizer: TrainingOptimizer,
        step: int,
        train_perplexity: float,
        extras: Mapping[str, tf.Tensor] | None = None,
        *,
        obsolete: Collection[int] = (),
    ) -> Path:
        """Write a checkpoint, make it the newest, and return its prefix, ``model.ckpt-STEP``.

        Args:
            model: model to save.
            optimizer: optimizer to save.
            step: training steps of the model.
            train_perplexity: perplexity of the last step.
            extras: further tensors by name, see `bilm.run_directory.state.RunState.tensors`.
            obsolete: steps whose checkpoints are removed afterwards.

        Raises:
            CheckpointError: it cannot be written; the previous checkpoint stays the newest.
        """
        prefix = self.index.prefix(step)
        with self._written():
            variables, extras = model.named_weights(), {**(extras or {}), **optimizer.slots()}
            sums = optimizer.accumulators(variables)
            write_checkpoint(prefix, self.names, variables, sums, step, train_perplexity, extras)
            self.index.make_newest(step, obsolete)
        return prefix

    def obsolete(self, keep: int, first: int, step: int, spare: Container[int | None] = ()) -> list[int]:
        """Return the steps whose checkpoints are obsolete once another one is saved.

        Args:
            keep: number of checkpoints to keep, including the new one.
            first: step at which the call began; checkpoints up to this step are kept.
            step: step of the new checkpoint; later checkpoints are left alone.
            spare: further steps to keep.
        """
        own = [other for other in self.index.steps() if first < other < step]
        return [other for other in own[: max(0, len(own) + 1 - keep)] if other not in spare]

    def discard_unsaved(self, lock: atomic.FileLock | None = None) -> None:
        """Remove a run without checkpoints.

        Args:
            lock: lock of the directory; without it in its place, another run may be there.
        """
        with contextlib.suppress(OSError):
            if not self.index.exists() and (lock is None or lock.is_in_place):
                files.remove_run(self.path)


class RunModel(distribution.StoredModel):
    """Model in a checkpoint of a run of bilm or bilm-tf; the checkpoint is chosen on first use.

    Args:
        path: run directory.
        which: name of the checkpoint, see `RunDirectory.choose`; None for the newest.

    Attributes:
        run: opened run directory.
        which: name of the checkpoint.

    Raises:
        BilmError: as `RunDirectory.open`.
    """

    def __init__(self, path: Path, which: PathLike | int | None = None) -> None:
        self.path, self.files = path, [path]
        self.run = RunDirectory.open(path)
        self.options, self.names = self.run.options, self.run.names
        self.n_predicted = self.options.n_tokens_vocab
        beside = self.run.vocabulary_file, path / run_files.TEXT_FILE
        present = [distribution.ModelFile(file) if file.is_file() else None for file in beside]
        self.vocabulary_file, self.text_file = present
        self.which = "latest" if which is None else which

    @cached_property
    def weight_file(self) -> CheckpointFile:
        """Checkpoint of the model.

        Raises:
            BilmError: as `RunDirectory.weights`.
        """
        self._index_state = self.run.index.state()
        return self.run.choose(self.which)

    @classmethod
    def interrupted(cls, path: Path, command: str, in_place: bool = False) -> "RunModel | None":
        """Return the newest checkpoint of a call to resume; None if there is no checkpoint.

        Args:
            path: run directory.
            command: ``train`` or ``restart``.
            in_place: true for a restart in the directory of its run, which resumes only a restart.

        Raises:
            BilmError: as `RunDirectory.open` and `RunDirectory.latest`, or another command wrote the
                checkpoint.
        """
        if not files.CheckpointIndex(path).exists():
            return None
        model = cls(path)
        model.weight_file = model.run.latest()  # resuming needs all of it
        record = state.recorded(model.weight_file)
        writer = record and record.section("settings").take("command", str, None)
        if writer == command or (record and writer is None):
            last = next(reversed(read_calls(path / run_files.CALLS_FILE)), None) if in_place else None
            if last is None or last.step != model.step or last.n_done:
                return model
            before = model.run_state
            has_ended = not before.must_evaluate and before.n_done >= before.plan.n_steps
            # A restart that was killed before its first checkpoint begins again.
            return None if last.n_done == 0 or has_ended else model
        if in_place:
            return None
        by = "by bilm-tf" if record is None else f"by bilm {writer}"
        problem = f"written {by}, not by the bilm {command} that is to be resumed"
        raise CheckpointError(f"{model.source}: {problem}; `bilm restart` continues from it")

    @cached_property
    def run_state(self) -> state.RunState:
        """Training state of the checkpoint.

        Raises:
            CheckpointError: the state cannot be read.
        """
        return state.read_state(self.weight_file)

    @property
    def step(self) -> int:
        """Training steps of the checkpoint."""
        return self.weight_file.step()

    def predicting_options(self) -> Options:
        """Return the options of the run."""
        return self.options

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Check that a vocabulary is the one of the run.

        Raises:
            VocabularyError: the vocabularies differ.
        """
        files.check_vocabulary(self.path, vocabulary)
        distribution.require_size(vocabulary, self.n_predicted, str(self.path))

    @cached_property
    def recorded(self) -> JsonObject:
        """Training state of the checkpoint, for questions of single keys; empty without a readable one."""
        return state.recorded(self.weight_file) or JsonObject("", {})

    def has_ended_on(self, shards: Collection[Shard]) -> bool:
        """Return true if the checkpoint is at the end of a schedule on the text of these files."""
        settings = self.recorded.section("settings")
        if self.recorded.take("n_done", int, 0) < settings.section("options").take("n_steps", int, math.inf):
            return False
        return _are_of(settings.section("train_prefix"), shards)

    @property
    def log_bytes(self) -> int:
        """Length of ``metrics.jsonl`` at the checkpoint in bytes; a killed call wrote later lines."""
        return self.recorded.take("log_bytes", Count, whole_lines(self.path / run_files.METRICS_FILE))

    def best_on(self, heldout: Collection[Shard] | None) -> state.Best | None:
        """Return the best validation of the run on the heldout text of these files, or on any; or None."""
        best = self.recorded.take("best", state.Best | None, None)
        if best is None or heldout is None:
            return best
        with contextlib.suppress(CheckpointError):
            scored = state.recorded(CheckpointFile(self.run.index.prefix(best.step))) or JsonObject("", {})
            if _are_of(scored.section("settings").section("heldout_prefix"), heldout):
                return best
        return None

    def require_in_place(self) -> None:
        """Check that training may continue in the run's own directory.

        Raises:
            CheckpointError: the checkpoint does not exist or is damaged, or a file that bilm did not write
                has the name of a record.
            OptionsError: the checkpoint is not the newest.
        """
        newest = self.weight_file
        is_unchanged = self.which == "latest" and self.run.index.state() == self._index_state
        if self.run.index.exists() and not is_unchanged:
            newest = self.run.choose("latest")
        if self.source != newest.prefix:
            problem = f"is not the newest of {self.path}, whose later steps would be overwritten"
            raise OptionsError(f"`checkpoint` {self.which}: {self.source} {problem}; give `save_to`")
        for file in (self.path / name for name in run_files.CHANGED):
            if file.is_symlink() and file.is_file():
                raise CheckpointError(f"{file}: is a link, whose target would change; copy the target here")
        records = [self.path / name for name in (run_files.METRICS_FILE, run_files.CALLS_FILE)]
        if not (self.path / run_files.MARK_FILE).exists() and state.recorded(self.weight_file) is None:
            for file in filter(Path.exists, records):  # bilm-tf writes no records
                raise CheckpointError(f"{file}: was not written by the run in this directory; move it away")


def load_options_latest_checkpoint(tf_save_dir: PathLike) -> tuple[dict[str, Any], str]:
    """Return the content of ``options.json`` and the prefix of the newest checkpoint.

    Args:
        tf_save_dir: run directory.

    Raises:
        BilmError: the path is not a run directory, or the run has no checkpoint.

    Example:
        >>> from bilm.training import load_options_latest_checkpoint
        >>> options, checkpoint = load_options_latest_checkpoint("run")
        >>> options["lstm"]["dim"], checkpoint
        (24, 'run/model.ckpt-12')
    """
    run = RunDirectory.open(str(tf_save_dir))
    return run.options.to_json(), str(run.latest().prefix)


def _are_of(text: JsonObject, shards: Collection[Shard]) -> bool:
    """Return whether files have the contents of those of a recorded text."""
    read = text.take("shards", Sequence[Shard], ())
    return {shard.content for shard in read} == {shard.content for shard in shards}
