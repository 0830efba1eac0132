"""The run directory: options, vocabulary and checkpoints of one model.

It has the form of a bilm-tf save directory (``options.json``, ``checkpoint``, ``model.ckpt-N.*``),
and a directory written by bilm-tf is taken as it is. Beside those files stand ``vocab.txt``, a copy
of the vocabulary, and ``vocab.txt.sha256``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import tensorflow as tf

from bilm.atomic import replacing
from bilm.checkpoint_index import CheckpointIndex
from bilm.errors import CheckpointError, OptionsError
from bilm.keras_backend import keras
from bilm.optimizer_state import accumulators, restore_state, slots
from bilm.options import Options
from bilm.options_file import load_options, warn_of_unknown
from bilm.remap import Remapping
from bilm.run_state import read_state
from bilm.run_vocabulary import RunVocabulary, Words
from bilm.shown import quoted
from bilm.weights.files import Arrays, CheckpointFile, write_checkpoint
from bilm.weights.names import weight_names
from bilm.weights.transfer import named_weights, set_weights

_LOG = logging.getLogger(__name__)
_LONGEST_STEP = 18  # digits


class RunDirectory:
    """One model on disk. Use `create` or `open`."""

    def __init__(self, path: Path, options: Options) -> None:
        self.path = path
        self.options = options
        self.names = weight_names(options)
        self.index = CheckpointIndex(path)
        self._vocabulary = RunVocabulary(path)
        self._made_directories: list[Path] = []

    @classmethod
    def create(
        cls, path: str | Path, options: Options, vocabulary: Words, overwrite: bool = False
    ) -> RunDirectory:
        """Start a new run.

        Raises:
            CheckpointError: the directory holds a run already and `overwrite` is not set, or it
                cannot be written.
        """
        path = Path(path)
        refuse_existing_run(path, overwrite)
        run = cls(path, options)
        run._made_directories = [place for place in (path, *path.parents) if not place.exists()]
        try:
            path.mkdir(parents=True, exist_ok=True)
            for old in run._files():
                old.unlink()
            run._vocabulary.write(vocabulary)
            with replacing(path / "options.json") as file:
                file.write_text(json.dumps(options.to_json(), indent=1) + "\n")
        except OSError as error:
            run.discard_unsaved()
            raise CheckpointError(f"{path}: cannot be written: {error.strerror or error}") from error
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """Open a run of ours or of bilm-tf.

        Raises:
            CheckpointError: it is not a run directory, or its vocabulary file was changed.
            OptionsError: its options are invalid.
        """
        path = Path(path)
        if not (path / "options.json").is_file():
            found = "no options.json in it" if path.is_dir() else "no such directory"
            raise CheckpointError(f"{path}: not a run directory: {found}")
        unknown: list[str] = []
        options = load_options(path / "options.json", unknown)
        if options.n_tokens_vocab is None:
            raise OptionsError(
                f"{path / 'options.json'}: n_tokens_vocab: missing; these are options for inference, "
                "restore those that the run was trained with"
            )
        run = cls(path, options)
        warn_of_unknown(path / "options.json", unknown)
        run._vocabulary.verify()
        return run

    @property
    def vocabulary_file(self) -> Path:
        """The run's copy of its vocabulary; bilm-tf's directories have none."""
        return self._vocabulary.file

    def check_vocabulary(self, vocabulary: Words) -> None:
        """Refuse a vocabulary other than the run's.

        Raises:
            VocabularyError: says what differs.
        """
        self._vocabulary.check(vocabulary, self.options.n_tokens_vocab)

    def latest(self) -> CheckpointFile:
        """The newest checkpoint that can be read; its names and shapes fit the options.

        A damaged one is passed over with a warning for the one before it.

        Raises:
            CheckpointError: there is none, or all are damaged.
            WeightsError: it is that of another model.
        """
        first: CheckpointError | None = None
        for prefix in self.index.newest_first():
            try:
                checkpoint = self._checked(prefix)
            except CheckpointError as error:
                first = first or error
                continue
            if first is not None:
                _LOG.warning("%s; going back to %s", first, checkpoint.prefix)
            return checkpoint
        raise first or CheckpointError(f"{self.path}: no checkpoint yet")

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
            state = read_state(self.latest())
            if state is None or state.best is None:
                raise CheckpointError(
                    f"{self.path}: no best checkpoint is known; it was not trained with --heldout-prefix"
                )
            return self._checked(self.index.prefix(state.best.step))
        if not (which.isascii() and which.isdecimal() and len(which) <= _LONGEST_STEP):
            raise OptionsError(f"checkpoint {quoted(which)}: must be latest, best or the number of a step")
        prefix = self.index.prefix(int(which))
        if int(which) not in self.index.steps():
            have = ", ".join(f"{step}" for step in self.index.steps()) or "none"
            raise CheckpointError(f"{prefix}: no such checkpoint; steps there: {have}")
        return self._checked(prefix)

    def _checked(self, prefix: Path) -> CheckpointFile:
        checkpoint = CheckpointFile(prefix)
        checkpoint.check(self.names)
        checkpoint.verify()
        return checkpoint

    def weights(self, which: str = "latest") -> Arrays:
        """The weights of a checkpoint, see `choose`, by our own names."""
        return self.choose(which).weights(self.names)

    def restore(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer | None = None,
        checkpoint: CheckpointFile | None = None,
        remapping: Remapping | None = None,
    ) -> int:
        """Set model and optimizer from a checkpoint, the newest if none is given.

        Args:
            model: of the run's options.
            optimizer: its own, or None.
            checkpoint: of the run.
            remapping: to the vocabulary of the model, if that is not the run's. It carries the state of
                Adagrad alone; any other optimizer starts anew.

        Returns:
            The number of steps behind it.

        Raises:
            CheckpointError: no checkpoint, or a damaged one.
            WeightsError: its arrays do not fit the options.
        """
        checkpoint = checkpoint or self.latest()
        variables = named_weights(model)
        weights = checkpoint.weights(self.names)
        set_weights(
            variables, weights if remapping is None else remapping.weights(weights), checkpoint.prefix
        )
        del weights
        if optimizer is not None and not restore_state(
            optimizer, variables, checkpoint, self.names, remapping
        ):
            _LOG.warning(
                "%s: no state of the optimizer %s%s; it starts anew",
                checkpoint.prefix,
                optimizer.name,
                "" if remapping is None else " that fits another vocabulary",
            )
        return checkpoint.step()

    def save(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        step: int,
        train_perplexity: float,
        extras: Mapping[str, tf.Tensor] | None = None,
    ) -> Path:
        """Write a checkpoint and make it the newest.

        Args:
            model: the model.
            optimizer: with its state.
            step: steps behind the model.
            train_perplexity: of the last step.
            extras: what else goes into it, see `bilm.run_state.RunState`.

        Returns:
            Its prefix, ``model.ckpt-STEP``.

        Raises:
            CheckpointError: it could not be written; the one before stays the newest.
        """
        variables = named_weights(model)
        extras = {**(extras or {}), **slots(optimizer)}
        prefix = self.index.prefix(step)
        write_checkpoint(
            prefix,
            self.names,
            variables,
            accumulators(optimizer, variables),
            step,
            train_perplexity,
            extras,
        )
        try:
            self.index.add(prefix)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be written: {error.strerror or error}") from error
        return prefix

    def discard_unsaved(self) -> None:
        """Leave nothing of a run that ended before its first checkpoint; one with a checkpoint stays."""
        if self.index.state_file.exists():
            return
        with contextlib.suppress(OSError):
            for file in self._files():
                file.unlink()
            for directory in self._made_directories:
                directory.rmdir()

    def _files(self) -> Iterable[Path]:
        """The files of a run, and nothing else that may lie in its directory."""
        # The state file first: without it the rest is no longer a run that could be half there.
        for pattern in ("checkpoint", "model.ckpt-*", "vocab.txt", "vocab.txt.sha256", "options.json"):
            yield from self.path.glob(pattern)
        for pattern in ("metrics.jsonl", "calls.jsonl", "events.out.tfevents.*"):
            yield from self.path.glob(pattern)


def refuse_existing_run(path: str | Path, overwrite: bool) -> None:
    """Refuse a directory in which a run would be lost.

    Raises:
        CheckpointError: it holds a run and `overwrite` is not set, is not a directory, or cannot be
            written; as far as that can be told without writing.
    """
    path = Path(path)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise CheckpointError(f"{nearest}: exists and is not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise CheckpointError(f"{path}: cannot be written: no permission to write in {nearest}")
    if not overwrite and ((path / "options.json").exists() or (path / "checkpoint").exists()):
        raise CheckpointError(
            f"{path}: already holds a run; continue it with `bilm restart`, give another --save-dir, "
            "or --overwrite to lose it"
        )
