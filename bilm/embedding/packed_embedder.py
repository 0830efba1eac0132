"""Vectors of sentences that are packed into rows and run through the network, on one or more devices."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np

from bilm.backend.keras_backend import Placement, Tensor, backend, keras
from bilm.backend.settings import TOKENS_AT_ONCE, Spec, power_of_two
from bilm.embedding.packing import Layers, Packing, number_types, pack, pack_in_turn
from bilm.embedding.word_vectors import WordVectors
from bilm.errors import OptionsError, require_positive
from bilm.models import sentence_encoder as inference
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.models.encoder import Encoder, States
from bilm.vocabulary.file import BOS, EOS
from bilm.vocabulary.vocabulary import Vocabulary

_LONG = 16384  # tokens, of which the whole rows do without windows


class LongRows:
    """Runs packed rows in windows; its graph is compiled once.

    Args:
        encoder: the network; its state is zero where a sentence begins.
        layers: which are wanted, as `bilm.embedding.embedder.ElmoEmbedder.embed_chunk` takes them.
        dtype: of the vectors.
    """

    def __init__(self, encoder: Encoder, layers: Layers, dtype: str) -> None:
        self._encoder, self._layers, self._dtype = encoder, layers, dtype
        self._run = backend.compiled(self._window, encoder, self._specs())

    def __call__(self, table: np.ndarray, packing: Packing, numbers: np.ndarray) -> np.ndarray:
        """Vectors of words.

        Args:
            table: vectors of distinct words, float32 (words, projection_dim).
            packing: where the tokens are.
            numbers: of the word of each token in the table, int32 (tokens,).

        Returns:
            Vectors (layers, words, dim) of the tokens that are words, sentence after sentence; with one
            layer or a mean, (1, words, dim).
        """
        n_directions = self._encoder.options.n_directions
        tokens = packing.fill(numbers, n_directions)
        places = packing.places(*[packing.is_word] * n_directions)
        order = np.argsort(places, axis=1)  # of words, as each direction comes to them
        sorted_places = np.take_along_axis(places, order, axis=1)
        begins, n_rows = packing.begins, packing.n_rows
        n_layers = self._encoder.options.lstm.n_layers + 1 if self._layers == "all" else 1
        width = self._encoder.options.lstm.projection_dim
        result = np.empty((n_layers, places.shape[1], n_directions * width), self._dtype)
        states = self._encoder.zero_states(n_rows)
        for steps in windows(packing.n_steps, n_rows):
            window = table, tokens[:, steps], begins[steps]
            if backend.FIXED_SHAPES:
                window = _padded(*window)
            found, states = self._run(*window, states)
            for direction, vectors in enumerate(map(keras.ops.convert_to_numpy, found)):
                first, end = np.searchsorted(
                    sorted_places[direction], [steps.start * n_rows, steps.stop * n_rows]
                )
                there = sorted_places[direction, first:end] - steps.start * n_rows
                columns = slice(direction * width, (direction + 1) * width)
                result[:, order[direction, first:end], columns] = vectors[:, there]
        return result

    def _window(
        self, table: Tensor, tokens: Tensor, begins: Tensor, states: States
    ) -> tuple[list[Tensor], States]:
        """By direction, vectors of all places, (layers, places, projection_dim); and the states after."""
        ops = keras.ops
        every = ops.arange(ops.size(begins), dtype="int32")
        n_directions = self._encoder.options.n_directions
        layers, after = inference.run_packed(
            self._encoder, table, tokens, ops.stack([every] * n_directions), begins, states=states
        )
        by_direction = []
        for direction in range(n_directions):
            words = backend.gather(table, ops.reshape(tokens[direction], (-1,)))
            stack = [words, *(layer[direction] for layer in layers)]
            by_direction.append(ops.cast(self._chosen(stack), self._dtype))
        return by_direction, after

    def _chosen(self, stack: list[Tensor]) -> Tensor:
        if self._layers == "all":
            return keras.ops.stack(stack)
        if self._layers == "average":
            return keras.ops.mean(keras.ops.stack(stack), axis=0, keepdims=True)
        return stack[-1 if isinstance(self._layers, str) else self._layers][None]

    def _specs(self) -> list[Any]:
        width, n_directions = self._encoder.options.lstm.projection_dim, self._encoder.options.n_directions
        states = keras.tree.map_structure(
            lambda state: Spec((None, *state.shape[1:]), "float32"), self._encoder.zero_states(1)
        )
        return [
            Spec((None, width), "float32"),
            Spec((n_directions, None, None), "int32"),
            Spec((None, None), "bool"),
            states,
        ]


def _padded(
    table: np.ndarray, tokens: np.ndarray, begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A window with as many words and steps as the next power of two, so that few sizes are compiled.

    Only the last window of the rows has its steps padded, since the others have all the same number.
    """
    n_words, n_steps = map(power_of_two, (len(table), len(begins)))
    if len(begins) == window_size(begins.shape[1]):
        n_steps = len(begins)
    return (
        np.pad(table, [(0, n_words - len(table)), (0, 0)]),
        np.pad(tokens, [(0, 0), (0, n_steps - len(begins)), (0, 0)]),
        np.pad(begins, [(0, n_steps - len(begins)), (0, 0)]),
    )


def is_long(packing: Packing, batch_tokens: int) -> bool:
    """Whether rows are worth the windows: they take twice the tokens that are computed together otherwise."""
    return packing.n_steps * packing.n_rows > 2 * min(batch_tokens, _LONG)


def window_size(n_rows: int) -> int:
    """Steps that the LSTM takes at once."""
    return max(1, TOKENS_AT_ONCE // n_rows)


def windows(n_steps: int, n_rows: int) -> list[slice]:
    """Steps run together, as many as the LSTM takes at once, so that the bits are those of whole rows."""
    size = window_size(n_rows)
    return [slice(start, min(start + size, n_steps)) for start in range(0, n_steps, size)]


_BATCH_TOKENS = 16384
_CACHE_BYTES = 1 << 28


@dataclass(frozen=True)
class Limits:
    """How much is worked on together, and remembered; None for the default.

    Attributes:
        batch_size: see `bilm.embedding.packing.pack`; for a model that carries the state by default all of
            its rows.
        batch_tokens: tokens of a chunk, with whole sentences.
        max_cached_words: distinct words whose vectors are remembered.

    Raises:
        OptionsError: one of them is below 1.
    """

    batch_size: int | None = None
    batch_tokens: int | None = None
    max_cached_words: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_positive(**{name: number for name, number in vars(self).items() if number is not None})


class PackedEmbedder:
    """A model and what is remembered of its words; graphs are compiled once for each choice of layers.

    It can be copied and pickled; vectors of words are left out then.

    Args:
        model: from zero state, or carrying the states of its rows.
        vocabulary: of a word-level model, else None.
        placement: where the model is.
        limits: see `Limits`.

    Raises:
        OptionsError: `batch_tokens` for a model that carries the state.
    """

    def __init__(
        self,
        model: BidirectionalLanguageModel,
        vocabulary: Vocabulary | None,
        placement: Placement,
        limits: Limits,
    ) -> None:
        if model.stateful and limits.batch_tokens is not None:
            raise OptionsError("batch_tokens: with stateful=True, give batch_size instead")
        self.model, self.vocabulary, self._placement, self._limits = model, vocabulary, placement, limits
        self.max_rows = limits.batch_size or (model.max_batch_size if model.stateful else None)
        self.batch_tokens = limits.batch_tokens or _BATCH_TOKENS
        n_words = limits.max_cached_words or _CACHE_BYTES // (4 * model.options.lstm.projection_dim)
        self._words = WordVectors(model.encoder, vocabulary, n_words)
        self._compiled: dict[tuple[Layers, str], Any] = {}
        self._long: dict[tuple[Layers, str], LongRows] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of again, for pickle and copy."""
        return {
            "model": self.model.__getstate__(),
            "vocabulary": self.vocabulary,
            "cuda_device": self._placement.cuda_device,
            "limits": self._limits,
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Make it again."""
        placement = Placement(saved["cuda_device"])
        model = BidirectionalLanguageModel.__new__(BidirectionalLanguageModel)
        with placement.scope():
            model.__setstate__(saved["model"])
        PackedEmbedder.__init__(self, model, saved["vocabulary"], placement, saved["limits"])

    def copied_to(self, placement: Placement) -> PackedEmbedder:
        """One on another device, with its own copy of the model."""
        other = object.__new__(PackedEmbedder)
        other.__setstate__(self.__getstate__() | {"cuda_device": placement.cuda_device})
        return other

    def with_rows(self, batch_size: int) -> PackedEmbedder:
        """The same with another number of rows; what is compiled and remembered is shared.

        Raises:
            OptionsError: it is below 1, or above that of the rows whose state is carried.
        """
        require_positive(batch_size=batch_size)
        if self.model.stateful and batch_size > self.model.max_batch_size:
            raise OptionsError(
                f"batch_size is {batch_size}, and the state of {self.model.max_batch_size} sentences is "
                "carried; give the embedder a larger batch_size"
            )
        other = object.__new__(PackedEmbedder)
        other.__dict__ |= self.__dict__ | {"max_rows": batch_size}
        return other

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together, whatever follows.

        With state carried these are whole batches.
        """
        if self.model.stateful and n_sentences % (self.max_rows or 1):
            return False
        return n_tokens >= self.batch_tokens

    def __call__(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.

        Raises:
            OptionsError: there is no such layer.
            ProcessError: the process was forked after the model was made.
        """
        if not sentences:
            return []
        self.model.home.require()
        with self._placement.scope():
            return self._run(layers, dtype, sentences)

    def _run(self, layers: Layers, dtype: str, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        run = self._compile(layers, dtype)  # which looks at the layers first
        lengths = [len(words) + 2 for words in sentences]
        if self.model.stateful:
            packing = pack_in_turn(lengths, min(len(sentences), self.max_rows or len(sentences)))
        else:
            packing = pack(lengths, self.max_rows)
        types, numbers = number_types([token for words in sentences for token in (BOS, *words, EOS)])
        if backend.FIXED_SHAPES or (not self.model.stateful and is_long(packing, self.batch_tokens)):
            return self._run_long(self._words(types), packing, numbers, layers, dtype)
        is_word = packing.is_word
        n_directions = self.model.options.n_directions
        found = run(
            self._words(types),
            numbers[is_word],
            packing.fill(numbers, n_directions),
            packing.places(*[is_word] * n_directions),
            packing.row_lengths if self.model.stateful else packing.begins,
        )
        result = keras.ops.convert_to_numpy(found)
        parts = np.split(result, np.cumsum([len(words) for words in sentences])[:-1])
        return [np.ascontiguousarray(np.moveaxis(part, 0, -2)) for part in parts]

    def _run_long(
        self, table: np.ndarray, packing: Packing, numbers: np.ndarray, layers: Layers, dtype: str
    ) -> list[np.ndarray]:
        """Vectors of sentences whose rows are run in windows."""
        if (layers, dtype) not in self._long:
            self._long[layers, dtype] = LongRows(self.model.encoder, layers, dtype)
        result = self._long[layers, dtype](table, packing, numbers)
        parts = np.split(result, np.cumsum(packing.lengths - 2)[:-1], axis=1)
        return [np.ascontiguousarray(part if layers == "all" else part[0]) for part in parts]

    def _compile(self, layers: Layers, dtype: str) -> Any:  # noqa: ANN401
        """The graph that gives these layers, made once."""
        if isinstance(layers, int) and not 0 <= layers < self.model.n_layers:
            raise OptionsError(f"layer {layers}: the model has layers 0 to {self.model.n_layers - 1}")
        if isinstance(layers, str) and layers not in ("all", "top", "average"):
            raise OptionsError(f"layers is {layers!r}; give all, top, average or the number of a layer")
        if (layers, dtype) not in self._compiled:
            n_directions, stateful = self.model.options.n_directions, self.model.stateful

            def run(
                table: Tensor, words: Tensor, tokens: Tensor, places: Tensor, begins_or_lengths: Tensor
            ) -> Tensor:
                rows = {"lengths" if stateful else "begins": begins_or_lengths}
                lstm_layers = self.model.run_packed(table, tokens, places, **rows)
                found = [[backend.gather(table, words)] * n_directions, *lstm_layers]
                return keras.ops.cast(_choose(found, layers), dtype)

            specs = [
                Spec((None, self.model.options.lstm.projection_dim), "float32"),
                Spec((None,), "int32"),
                Spec((n_directions, None, None), "int32"),
                Spec((n_directions, None), "int32"),
                Spec((None,), "int32") if stateful else Spec((None, None), "bool"),
            ]
            self._compiled[layers, dtype] = backend.compiled(run, self.model.encoder, specs)
        return self._compiled[layers, dtype]


def _choose(found: list[list[Tensor]], layers: Layers) -> Tensor:
    """Layers of words, each (words, projection_dim) by direction -> (words, layers, dim) or (words, dim)."""
    ops = keras.ops
    if layers == "all":
        flat = ops.concatenate([part for layer in found for part in layer], axis=1)
        return ops.reshape(flat, (-1, len(found), flat.shape[1] // len(found)))
    if layers == "average":
        found = [[ops.mean(ops.stack(parts), axis=0) for parts in zip(*found, strict=True)]]
    return ops.concatenate(found[-1 if isinstance(layers, str) else layers], axis=1)


class Embedder:
    """Copies of a model, one a device, that embed chunks of sentences; as many threads may call it at a time.

    Args:
        copies: at least one.
    """

    def __init__(self, copies: Sequence[PackedEmbedder]) -> None:
        self._copies = tuple(copies)
        self._free: SimpleQueue[PackedEmbedder] = SimpleQueue()
        for embedder in self._copies:
            self._free.put(embedder)

    def __getstate__(self) -> tuple[PackedEmbedder, ...]:
        """Return the copies, for pickle and copy."""
        return self._copies

    def __setstate__(self, copies: tuple[PackedEmbedder, ...]) -> None:
        """Make it again."""
        Embedder.__init__(self, copies)

    @property
    def model(self) -> BidirectionalLanguageModel:
        """The model, which makes the vectors of whole batches."""
        return self._copies[0].model

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary of a word-level model."""
        return self._copies[0].vocabulary

    @property
    def n_layers(self) -> int:
        """Layers of a result."""
        return self.model.n_layers

    @property
    def dim(self) -> int:
        """Width of a result."""
        return self.model.dim

    @property
    def stateful(self) -> bool:
        """Whether the LSTM state is carried from batch to batch."""
        return self.model.stateful

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model's shape and weights."""
        digest = hashlib.sha256(json.dumps(self.model.options.to_inference_json(), sort_keys=True).encode())
        for variable in self.model.encoder.weights:
            digest.update(variable.numpy().tobytes())
        return digest.hexdigest()

    @property
    def n_at_once(self) -> int:
        """Chunks that are embedded at the same time: the number of its devices."""
        return len(self._copies)

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together; see `PackedEmbedder.is_chunk`."""
        return self._copies[0].is_chunk(n_sentences, n_tokens)

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Args:
            sentences: words of each.
            layers: which of them, see `bilm.embedding.packing.Layers`.
            dtype: of the result.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.
        """
        embedder = self._free.get()
        try:
            return embedder(sentences, layers, dtype)
        finally:
            self._free.put(embedder)

    def no_vectors(self, layers: Layers, dtype: str) -> np.ndarray:
        """Vectors of a blank sentence: (layers, 0, dim) for all layers, else (0, dim)."""
        return np.zeros((self.n_layers, 0, self.dim) if layers == "all" else (0, self.dim), dtype)
