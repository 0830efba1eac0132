"""Reading and writing of weights as TensorFlow checkpoints in bilm-tf's form.

Arrays are float32 and keyed by bilm's names. Names and shapes are compared with the options before any
array is read.
"""

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import CheckpointError
from bilm.io import atomic, messages, outputs
from bilm.weights.arrays import Arrays, as_weights, check_shapes
from bilm.weights.names import ADAGRAD, GLOBAL_STEP, TRAIN_PERPLEXITY, WeightName

_MOST_STEPS = 1 << 62

_VARIABLES = "lm/"

# Errors of TensorFlow's reader for damaged files; the class depends on the place of the damage.
_READER_ERRORS = (tf.errors.OpError, ValueError, TypeError, RuntimeError, LookupError, OSError)


class CheckpointFile:
    """A TensorFlow checkpoint (``prefix.index``, ``prefix.data-...``) of bilm-tf or bilm.

    TensorFlow reads the files and compares checksums as it reads; a malicious file may end the process. The
    graph that TensorFlow 1 wrote (``prefix.meta``) is not needed.

    Args:
        prefix: common prefix of the files' paths.

    Attributes:
        prefix: the same as a string, also ``str()`` of the checkpoint.

    Raises:
        CheckpointError: the checkpoint does not exist or is damaged.
    """

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = str(prefix)
        self._kept: dict[str, Any] = {}
        if not os.path.isfile(f"{self.prefix}.index"):
            raise CheckpointError(f"{self.prefix}.index: no such checkpoint")
        try:
            self._reader = tf.train.load_checkpoint(self._plain_prefix())
            dtypes = self._reader.get_variable_to_dtype_map()
            shapes = self._reader.get_variable_to_shape_map()
            self._tensors = {name: tf.TensorSpec(shapes[name], dtypes[name]) for name in sorted(shapes)}
            # A missing or truncated data file is detected without reading it.
            folder, start = os.path.split(f"{self.prefix}.data-")
            files = (file for file in Path(folder).iterdir() if file.name.startswith(start))
            stored = sum(file.stat().st_size for file in files)
            needed = sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in self._tensors.values())
            if needed > stored:
                raise ValueError(f"its arrays need {needed:,} bytes, its data files have {stored:,}")
        except (*_READER_ERRORS, MemoryError) as error:  # MemoryError: from a damaged size in the index
            raise self._damaged(error) from error

    def __str__(self) -> str:
        return self.prefix

    def _plain_prefix(self) -> str:
        """Return a prefix of the same files that TensorFlow's reader does not take for a pattern."""
        if not re.search(r"[*?[\\\udc80-\udcff]", self.prefix):  # or bytes that are not UTF-8
            return self.prefix
        links, prefix = tempfile.mkdtemp(prefix="bilm-"), Path(self.prefix)
        # Kept as long as this object: the reader opens files only when it needs them.
        weakref.finalize(self, shutil.rmtree, links, ignore_errors=True)
        for file in prefix.parent.iterdir():
            if file.name.startswith(f"{prefix.name}."):
                os.symlink(file.absolute(), f"{links}/model{file.name[len(prefix.name) :]}")
        return f"{links}/model"

    def step(self) -> int:
        """Return the number of training steps; 0 if the checkpoint does not contain it.

        Raises:
            CheckpointError: the value is not a number of steps.
        """
        step = self.numbers(GLOBAL_STEP) if GLOBAL_STEP in self._tensors else np.array(0)
        if step.shape or not 0 <= step < _MOST_STEPS:
            raise CheckpointError(f"{self.prefix}: {GLOBAL_STEP} is {step}, which is not a number of steps")
        return int(step)

    def check(self, names: Iterable[WeightName], suffix: str = "") -> None:
        """Compare names and shapes with a model's, without reading arrays.

        Args:
            names: names of the model's variables.
            suffix: `ADAGRAD` for their accumulators.

        Raises:
            WeightsError: variables are missing, misshapen or unexpected; the message names them.
        """
        expected = {name.tf1 + suffix: name.shape for name in names}
        stored = self._of_model(suffix)
        check_shapes({name: tuple(tensor.shape) for name, tensor in stored.items()}, expected, self.prefix)

    def read(self, names: Iterable[WeightName], suffix: str = "") -> Arrays:
        """Read the variables of a model, by bilm's names; see `check` for the arguments.

        Raises:
            WeightsError: see `check`.
        """
        names = [*names]
        self.check(names, suffix)
        return {name.own: self._read(name.tf1 + suffix) for name in names}

    def accumulators(self, names: Sequence[WeightName]) -> Arrays:
        """Read the Adagrad accumulators, by bilm's names of the variables; empty without accumulators."""
        return self.read(names, ADAGRAD) if self._of_model(ADAGRAD) else {}

    def _of_model(self, suffix: str) -> dict[str, tf.TensorSpec]:
        """Return the names of a model's variables, or of their accumulators, with shapes and types."""
        names = [name for name in self._tensors if name.startswith(_VARIABLES)]
        return {name: self._tensors[name] for name in names if name.endswith(ADAGRAD) == bool(suffix)}

    def extra(self, name: str) -> Any:  # noqa: ANN401
        """Read an array, or a string as bytes; None if it is missing."""
        if name not in self._tensors:
            return None
        if name in self._kept:
            return self._kept.pop(name)
        try:
            return self._reader.get_tensor(name)
        except _READER_ERRORS as error:
            raise self._damaged(error) from error

    def numbers(self, name: str) -> np.ndarray:
        """Read an array of integers or finite floats.

        Raises:
            CheckpointError: the array is of another type, or not finite.
        """
        return np.asarray(self.extra(name)) if self._tensors[name].dtype.is_integer else self._read(name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of an array; None if it is missing."""
        return tuple(self._tensors[name].shape) if name in self._tensors else None

    def verify(self) -> None:
        """Read everything once, to compare the checksums.

        Raises:
            CheckpointError: the checkpoint is damaged or has weights that are not finite.
        """
        for name, tensor in self._tensors.items():
            if name.startswith(_VARIABLES) and tensor.dtype.is_floating:
                self._read(name)
            else:
                self.extra(name)

    def keep(self, names: Iterable[str]) -> None:
        """Read arrays of weights, as `verify`, and keep each until it is first asked for."""
        self._kept = {name: self._read(name) for name in names}

    def _read(self, name: str) -> np.ndarray:
        if not (dtype := self._tensors[name].dtype).is_floating:
            raise CheckpointError(f"{self.prefix}: {name!r:.80} is {dtype.name}, expected floats")
        return as_weights(self.extra(name), f"{self.prefix}: {name}", CheckpointError)

    def _damaged(self, error: Exception) -> CheckpointError:
        return CheckpointError(f"{self.prefix}: damaged, or not a checkpoint: {messages.reason(error)}")


_PARTS = outputs.Kind("the parts of a checkpoint", lambda directory: False)


def write_checkpoint(
    prefix: str | Path,
    names: Sequence[WeightName],
    weights: Mapping[str, tf.Tensor],
    accumulators: Mapping[str, tf.Tensor],
    step: int,
    train_perplexity: float,
    extras: Mapping[str, tf.Tensor] | None = None,
) -> None:
    """Write a checkpoint with bilm-tf's names, which bilm-tf can restore too.

    Args:
        prefix: common prefix of the files' paths.
        names: names of the weights.
        weights: weights by bilm's names.
        accumulators: Adagrad's accumulators by the same names; may be empty.
        step: number of training steps of the model.
        train_perplexity: training perplexity of the last step.
        extras: further tensors, under names that bilm-tf does not use.

    Raises:
        CheckpointError: the checkpoint cannot be written; no part of it is left.
    """
    numbers = {GLOBAL_STEP: step, TRAIN_PERPLEXITY: train_perplexity}
    tensors = {name: tf.constant(number, tf.float32) for name, number in numbers.items()}
    tensors |= {name.tf1: weights[name.own] for name in names}
    tensors |= {name.tf1 + ADAGRAD: accumulators[name.own] for name in names if name.own in accumulators}
    tensors |= extras or {}
    prefix = Path(prefix)
    # The same name for all steps, so that the next checkpoint removes the leftovers of a killed process.
    held = atomic.writing(prefix.with_name(prefix.name.rpartition("-")[0] or prefix.name), kind=_PARTS)
    failures = messages.os_errors_as(CheckpointError, f"{prefix}: cannot be written", tf.errors.OpError)
    with failures, held as (directory,):
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(directory / prefix.name),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.convert_to_tensor(tensor) for tensor in tensors.values()],
            )
        # The index last: without it the data file is not a checkpoint.
        files = sorted(directory.iterdir(), key=lambda file: file.suffix == ".index")
        for file in files:
            atomic.sync(file)
        for file in files:  # at once, since they may replace those of the same step
            os.replace(file, prefix.parent / file.name)
        atomic.sync(prefix.parent)
        directory.rmdir()  # so that it gets no name
