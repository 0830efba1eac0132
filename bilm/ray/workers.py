"""What Ray's workers run: a model each, and the batches of text that they get."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bilm.embedding.packing import Layers
from bilm.embedding.parquet_output import TOKENS, embedded, texts_of
from bilm.errors import BilmError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.scoring import Scorer
    from bilm.run_directory.model_source import ModelArguments

_Model = TypeVar("_Model")

Batch = "pa.Table | Mapping[str, np.ndarray]"
"""What ``map_batches`` gives: with ``batch_format="pyarrow"`` or ``"numpy"``."""


class _Worker(Generic[_Model]):
    """Opens a model when it is made, in the process that runs it.

    Ray passes on the error of a call, but of a constructor's only the text: so the first call raises it.
    """

    def __init__(self, column: str, n_threads: int | None, open_model: Callable[[], _Model]) -> None:
        self._column = column
        self._failure: BilmError | None = None
        try:
            use_threads(n_threads)
            self._model: _Model = open_model()
        except BilmError as error:
            self._failure = error

    @property
    def model(self) -> _Model:
        if self._failure is not None:
            raise self._failure
        return self._model


class Embed(_Worker["ElmoEmbedder"]):
    """Vectors of sentences, for ``dataset.map_batches(bilm.ray.Embed, ...)``: one model a worker.

    Sentences of a batch are packed as `bilm.ElmoEmbedder` does it, and their vectors are the same.

    Args:
        model: by its path, which every machine must have; or `ModelArguments`.
        vocab_file: of a word-level model, instead of the one that comes with it.
        column: of the batches, with a sentence each, words separated by whitespace; `text` is that of
            ``ray.data.read_text``.
        layers: ``all``, ``top``, ``average`` or the number of one from 0.
        dtype: ``float16`` or ``float32``.
        n_threads: of TensorFlow in this process; as TensorFlow chooses by default.
        settings: `batch_size`, `batch_tokens`, `max_cached_words` and `cuda_device` of `ElmoEmbedder`.

    A call takes a batch as a dictionary of arrays or as an Arrow table, and gives it back as a table with two
    more columns: `tokens`, and `vectors` as lists of lists, (layers, words, dim) for all layers, else
    (words, dim); a blank sentence has no words.

    Raises:
        BilmError: when it is called: the model cannot be read, or a batch has no such column.

    Example:
        >>> embed = Embed("run", column="line")
        >>> embed({"line": np.array(["Time flies"])}).column_names
        ['line', 'tokens', 'vectors']
    """

    def __init__(
        self,
        model: str | Path | ModelArguments,
        vocab_file: str | Path | None = None,
        *,
        column: str = "text",
        layers: Layers = "all",
        dtype: str = "float16",
        n_threads: int | None = None,
        **settings: Any,
    ) -> None:
        self._layers, self._dtype = layers, dtype

        def open_model() -> ElmoEmbedder:
            from bilm.embedding.embedder import ElmoEmbedder

            return ElmoEmbedder.of_arguments(_arguments(model), vocab_file, **settings)

        super().__init__(column, n_threads, open_model)

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """Embed a batch; see the class."""
        return embedded(self.model, as_table(batch), self._layers, self._dtype, self._column)


class Score(_Worker["Scorer"]):
    """Log-probabilities of sentences, for ``dataset.map_batches(bilm.ray.Score, ...)``: one model a worker.

    They are those of ``bilm score``: natural, each sentence by itself, words outside the vocabulary as
    ``<UNK>``.

    Args:
        model: by its path, which every machine must have: a run, or weights with their softmax; or
            `ModelArguments`.
        vocab_file: see `bilm.test`.
        column: see `Embed`.
        n_threads: see `Embed`.

    A call gives the batch back as an Arrow table with more columns: `tokens`; `known`, a list of booleans
    (words,); `forward` and `backward`, lists of floats (words + 1,), see
    `bilm.embedding.scoring.SentenceScore`. The scores of a blank sentence are null, as is `backward` for a
    model of one direction.

    Raises:
        BilmError: when it is called: the model cannot be read or has no softmax, or a batch lacks the column.
    """

    def __init__(
        self,
        model: str | Path | ModelArguments,
        vocab_file: str | Path | None = None,
        *,
        column: str = "text",
        n_threads: int | None = None,
    ) -> None:
        def open_model() -> Scorer:
            from bilm.embedding.scoring import Scorer
            from bilm.models.predictor import open_predictor

            stored = _arguments(model).open(takes_files=False)
            predictor = open_predictor(stored, None if vocab_file is None else Path(vocab_file))
            self.name, self.step = stored.source, stored.step
            return Scorer(predictor.load([])[0], predictor.vocabulary)

        super().__init__(column, n_threads, open_model)

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """Score a batch; see the class."""
        import pyarrow as pa

        table = as_table(batch)
        sentences = [text.split() for text in texts_of(table, self._column)]
        made = self.model(words for words in sentences if words)
        scores = [next(made) if words else None for words in sentences]
        table = table.append_column(TOKENS, pa.array(sentences, pa.list_(pa.string())))
        for name, values in (
            ("known", [None if score is None else score.is_known for score in scores]),
            ("forward", [None if score is None else score.forward for score in scores]),
            ("backward", [None if score is None else score.backward for score in scores]),
        ):
            kind = pa.bool_() if name == "known" else pa.float32()
            table = table.append_column(name, pa.array(values, pa.list_(kind)))
        return table


def use_threads(n_threads: int | None) -> None:
    """Let TensorFlow use so many threads, if it does not run yet."""
    if n_threads is None:
        return
    importlib.import_module("bilm.backend.keras_backend")  # before TensorFlow, which imports Keras
    import tensorflow as tf

    with suppress(RuntimeError):  # it runs: the process is not Ray's, or has had a model before
        tf.config.threading.set_intra_op_parallelism_threads(n_threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def as_table(batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
    """A batch of ``map_batches`` as an Arrow table.

    Raises:
        DataError: it is neither a table nor a dictionary of columns.
    """
    import pyarrow as pa

    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, Mapping):
        return pa.table({name: pa.array(column) for name, column in batch.items()})
    raise DataError(
        f"a batch is {type(batch).__name__}; give map_batches batch_format='pyarrow' or 'numpy' for it"
    )


def _arguments(model: str | Path | ModelArguments) -> ModelArguments:
    from bilm.run_directory.model_source import ModelArguments

    return model if isinstance(model, ModelArguments) else ModelArguments(model=model)
