"""Weights as TensorFlow checkpoints, of bilm-tf's form, to and from arrays.

Arrays are float32 and keyed by our own names. Names and shapes are compared with the options before any
array is read.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import CheckpointError, WeightsError
from bilm.io import atomic, messages
from bilm.weights.hdf5_file import Arrays, as_weights, check_shapes
from bilm.weights.names import ADAGRAD, GLOBAL_STEP, TRAIN_PERPLEXITY, WeightName

_MOST_STEPS = 1 << 62

_VARIABLES = "lm/"

# What TensorFlow's reader raises for damaged files, depending on where the damage is.
_READER_ERRORS = (tf.errors.OpError, ValueError, TypeError, RuntimeError, LookupError, OSError)


class CheckpointFile:
    """A TensorFlow checkpoint (``prefix.index``, ``prefix.data-...``), bilm-tf's or our own.

    TensorFlow reads it, and compares the checksums of what it reads; a file that was made to harm may end
    the process. The graph that TensorFlow 1 wrote next to it (``.meta``) is not needed.

    Args:
        prefix: of the names of its files.

    Attributes:
        prefix: as a string.

    Raises:
        CheckpointError: there is no such checkpoint, or it is damaged.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        if not os.path.isfile(f"{self.prefix}.index"):
            raise CheckpointError(f"{self.prefix}.index: no such checkpoint")
        try:
            self._reader = tf.train.load_checkpoint(self._plain_prefix())
            dtypes = self._reader.get_variable_to_dtype_map()
            shapes = self._reader.get_variable_to_shape_map()
            self._tensors = {name: tf.TensorSpec(shapes[name], dtypes[name]) for name in sorted(shapes)}
            self._compare_sizes()
        except _READER_ERRORS as error:
            raise self._damaged(error) from error

    def _compare_sizes(self) -> None:
        """Notice a data file that is missing or cut off, without reading it."""
        prefix = Path(self.prefix)
        files = [file for file in prefix.parent.iterdir() if file.name.startswith(f"{prefix.name}.data-")]
        stored = sum(file.stat().st_size for file in files)
        needed = sum(math.prod(tensor.shape) * tensor.dtype.size for tensor in self._tensors.values())
        if needed > stored:
            raise ValueError(f"its arrays need {needed:,} bytes, its data files have {stored:,}")

    def _plain_prefix(self) -> str:
        """The files under a name that TensorFlow's reader does not take for a pattern."""
        if not set("*?[\\") & set(self.prefix):
            return self.prefix
        links, prefix = tempfile.mkdtemp(prefix="bilm-"), Path(self.prefix)
        # Not before this object goes: the reader opens files only when it needs them.
        weakref.finalize(self, shutil.rmtree, links, ignore_errors=True)
        for file in prefix.parent.iterdir():
            if file.name.startswith(f"{prefix.name}."):
                os.symlink(file.absolute(), f"{links}/model{file.name[len(prefix.name) :]}")
        return f"{links}/model"

    def step(self) -> int:
        """The number of training steps of the checkpoint; 0 if it does not have it.

        Raises:
            CheckpointError: its value is not a number of steps.
        """
        step = self.numbers(GLOBAL_STEP) if GLOBAL_STEP in self._tensors else np.array(0)
        if step.shape or not 0 <= step < _MOST_STEPS:
            raise CheckpointError(f"{self.prefix}: {GLOBAL_STEP} is {step}, which is not a number of steps")
        return int(step)

    def check(self, names: Iterable[WeightName], suffix: str = "") -> None:
        """Compare names and shapes with those of a model, without reading arrays.

        Args:
            names: of its variables.
            suffix: `ADAGRAD` for their accumulators.

        Raises:
            WeightsError: names the variables that are missing, misshapen or unknown.
        """
        expected = {name.tf1 + suffix: name.shape for name in names}
        found = {
            name: tensor
            for name, tensor in self._tensors.items()
            if name.startswith(_VARIABLES) and name.endswith(ADAGRAD) == bool(suffix)
        }
        check_shapes({name: tuple(tensor.shape) for name, tensor in found.items()}, expected, self.prefix)
        for name, tensor in found.items():
            if not tensor.dtype.is_floating:
                raise WeightsError(
                    f"{self.prefix}: {name} is {tensor.dtype.name}, expected an array of floats"
                )

    def weights(self, names: Sequence[WeightName], suffix: str = "") -> Arrays:
        """The variables of a model by its own names; the arguments are those of `check`.

        Raises:
            WeightsError: as `check`.
        """
        self.check(names, suffix)
        return {name.own: self._read(name.tf1 + suffix) for name in names}

    def accumulators(self, names: Sequence[WeightName]) -> Arrays:
        """The Adagrad accumulators by the variables' own names; empty if there are none at all."""
        return self.weights(names, ADAGRAD) if any(n.endswith(ADAGRAD) for n in self._tensors) else {}

    def extra(self, name: str) -> Any:  # noqa: ANN401
        """An array or, as bytes, a string that bilm-tf does not write; None if it is missing."""
        if name not in self._tensors:
            return None
        try:
            return self._reader.get_tensor(name)
        except _READER_ERRORS as error:
            raise self._damaged(error) from error

    def numbers(self, name: str) -> np.ndarray:
        """An array of integers or finite floats that bilm-tf does not write.

        Raises:
            CheckpointError: it is something else.
        """
        tensor = self._tensors[name]
        if tensor.dtype.is_integer:
            return np.asarray(self.extra(name))
        if not tensor.dtype.is_floating:
            raise CheckpointError(
                f"{self.prefix}: {messages.excerpt(name)} is {tensor.dtype.name}, expected numbers"
            )
        return self._read(name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of an array; None if it is missing."""
        return tuple(self._tensors[name].shape) if name in self._tensors else None

    def verify(self) -> None:
        """Read everything once, which compares the checksums.

        Raises:
            CheckpointError: the checkpoint is damaged, or holds weights that are not finite.
        """
        for name, tensor in self._tensors.items():
            if name.startswith(_VARIABLES) and tensor.dtype.is_floating:
                self._read(name)
            else:
                self.extra(name)

    def _read(self, name: str) -> np.ndarray:
        return as_weights(self.extra(name), f"{self.prefix}: {name}", CheckpointError)

    def _damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self.prefix}: damaged, or not a checkpoint: {messages.reason(error)}")


def write_checkpoint(
    prefix: str | Path,
    names: Sequence[WeightName],
    weights: Mapping[str, tf.Tensor],
    accumulators: Mapping[str, tf.Tensor],
    step: int,
    train_perplexity: float,
    extras: Mapping[str, tf.Tensor] | None = None,
) -> None:
    """Write a checkpoint under bilm-tf's names, which its own loader can restore as well.

    Args:
        prefix: of the files.
        names: of the weights.
        weights: by our own names.
        accumulators: of Adagrad, by the same names; may be empty.
        step: steps behind the model.
        train_perplexity: of the last step.
        extras: further contents, under names that are not bilm-tf's.

    Raises:
        CheckpointError: it could not be written; no part of it is left.
    """
    tensors: dict[str, tf.Tensor] = {
        GLOBAL_STEP: tf.constant(step, tf.float32),
        TRAIN_PERPLEXITY: tf.constant(train_perplexity, tf.float32),
    }
    tensors |= {name.tf1: weights[name.own] for name in names}
    tensors |= {name.tf1 + ADAGRAD: accumulators[name.own] for name in names if name.own in accumulators}
    tensors |= extras or {}
    prefix = Path(prefix)
    # The same name for all steps, so that the next checkpoint removes what a killed process left.
    staged = atomic.Staging(prefix.with_name(prefix.name.rpartition("-")[0] or prefix.name))
    failures = messages.os_errors_as(CheckpointError, f"{prefix}: cannot be written", tf.errors.OpError)
    with failures, staged as staging:
        staging.new.mkdir()
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(staging.new / prefix.name),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.convert_to_tensor(tensor) for tensor in tensors.values()],
            )
        # The index last: without it the data file is not a checkpoint.
        for file in sorted(staging.new.iterdir(), key=lambda file: file.suffix == ".index"):
            atomic.sync(file)
            os.replace(file, prefix.parent / file.name)
        atomic.sync(prefix.parent)
