"""The run directory: options, vocabulary and checkpoints of one model.

It has the form of a bilm-tf save directory (``options.json``, ``checkpoint``, ``model.ckpt-N.*``),
and a directory written by bilm-tf is taken as it is. Beside those files stand ``vocab.txt``, a copy
of the vocabulary, ``vocab.txt.sha256``, and `bilm.run_directory.files`' list of what the run wrote.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Container, Mapping
from pathlib import Path

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.errors import CheckpointError
from bilm.io.atomic import replacing
from bilm.io.reasons import os_errors_as
from bilm.options import Options
from bilm.options.file import read_options
from bilm.run_directory.averages import read_weights
from bilm.run_directory.checkpoint_choice import CheckpointChoice
from bilm.run_directory.checkpoints import CheckpointIndex
from bilm.run_directory.files import RunFiles
from bilm.run_directory.model_state import restore_model, save_model
from bilm.run_directory.place import room_for_run, room_for_steps
from bilm.run_directory.run_options import read_run_options
from bilm.run_directory.vocabulary_copy import RunVocabulary, content
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import weight_names
from bilm.weights.shapes import Arrays
from bilm.weights.vocabulary_transfer import Remapping


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
