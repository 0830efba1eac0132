"""Vectors of sentences that are packed into rows and run through the network, on one or more devices."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from bilm.backend.keras_backend import Placement, Tensor, backend, keras
from bilm.backend.settings import TOKENS_AT_ONCE, power_of_two
from bilm.data.packing import Layers, Packing, number_types, pack, pack_in_turn
from bilm.errors import OptionsError, require_positive
from bilm.models import sentence_encoder as inference
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.models.encoder import States
from bilm.vocabulary.file import BOS, EOS
from bilm.vocabulary.vocabulary import Vocabulary

_BATCH_TOKENS = 16384
_CACHE_BYTES = 1 << 28


class PackedEmbedder:
    """A model and what is remembered of its words; graphs are compiled once for each choice of layers.

    It can be copied and pickled; vectors of words are left out then.

    Args:
        model: from zero state, or carrying the states of its rows.
        vocabulary: of a word-level model, else None.
        placement: where the model is.
        limits: `batch_size`, `batch_tokens` and `max_cached_words` of `bilm.ElmoEmbedder`, if they are given.
    """

    def __init__(
        self,
        model: BidirectionalLanguageModel,
        vocabulary: Vocabulary | None,
        placement: Placement,
        limits: Mapping[str, int],
    ) -> None:
        self.model, self.vocabulary, self._placement, self._limits = model, vocabulary, placement, limits
        self._width = model.options.lstm.projection_dim
        self.max_rows = limits.get("batch_size", model.max_batch_size if model.stateful else None)
        self.batch_tokens = limits.get("batch_tokens", _BATCH_TOKENS)
        n_words = limits.get("max_cached_words", _CACHE_BYTES // (4 * self._width))
        self._words = inference.WordVectors(model.encoder, vocabulary, n_words)
        self._graphs: dict[tuple[Layers, str, bool], Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """What it is made of again, for pickle and copy."""
        return _copied, (
            self.model.__getstate__(),
            self.vocabulary,
            self._limits,
            self._placement.cuda_device,
        )

    def copied_to(self, cuda_device: int | None) -> PackedEmbedder:
        """One on another device, with its own copy of the model."""
        return _copied(self.model.__getstate__(), self.vocabulary, self._limits, cuda_device)

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
        if isinstance(layers, int) and not 0 <= layers < self.model.n_layers:
            raise OptionsError(f"layer {layers}: the model has layers 0 to {self.model.n_layers - 1}")
        if isinstance(layers, str) and layers not in ("all", "top", "average"):
            raise OptionsError(f"layers is {layers!r}; give all, top, average or the number of a layer")
        if not sentences:
            return []
        self.model.home.require()
        lengths = [len(words) + 2 for words in sentences]
        if self.model.stateful:
            packing = pack_in_turn(lengths, min(len(sentences), self.max_rows or len(sentences)))
        else:
            packing = pack(lengths, self.max_rows)
        types, numbers = number_types([token for words in sentences for token in (BOS, *words, EOS)])
        # Rows are worth windows that take twice the tokens that are computed together otherwise.
        is_long = packing.n_steps * packing.n_rows > 2 * min(self.batch_tokens, _BATCH_TOKENS)
        in_windows = backend.FIXED_SHAPES or (is_long and not self.model.stateful)
        with self._placement.scope():
            run = self._graph(layers, dtype, in_windows)
            embed = self._in_windows if in_windows else self._at_once
            vectors = embed(run, self._words(types), packing, numbers)
        parts = np.split(vectors, np.cumsum(packing.lengths - 2)[:-1], axis=1)
        return [np.ascontiguousarray(part if layers == "all" else part[0]) for part in parts]

    def _at_once(self, run: Any, table: np.ndarray, packing: Packing, numbers: np.ndarray) -> np.ndarray:  # noqa: ANN401
        """Vectors of words.

        Args:
            run: of `_graph`.
            table: vectors of distinct words, float32 (words, projection_dim).
            packing: where the tokens are.
            numbers: of the word of each token in the table, int32 (tokens,).

        Returns:
            Vectors (layers, words, dim) of the tokens that are words, sentence after sentence; with one
            layer or a mean, (1, words, dim).
        """
        is_word, n_directions = packing.is_word, self.model.options.n_directions
        tokens, places = packing.fill(numbers, n_directions), packing.places(*[is_word] * n_directions)
        rows = packing.row_lengths if self.model.stateful else packing.begins
        return keras.ops.convert_to_numpy(run(table, numbers[is_word], tokens, places, rows))

    def _in_windows(self, run: Any, table: np.ndarray, packing: Packing, numbers: np.ndarray) -> np.ndarray:  # noqa: ANN401
        """As `_at_once`, in windows of as many steps as the LSTM takes at once: the bits are the same."""
        n_rows, n_directions = packing.n_rows, self.model.options.n_directions
        tokens, begins = packing.fill(numbers, n_directions), packing.begins
        places = packing.places(*[packing.is_word] * n_directions)
        order = np.argsort(places, axis=1)  # of words, as each direction comes to them
        sorted_places = np.take_along_axis(places, order, axis=1)
        if backend.FIXED_SHAPES:  # few sizes are compiled: powers of two, and whole windows
            table = np.pad(table, [(0, power_of_two(len(table)) - len(table)), (0, 0)])
        result: Any = None
        states = self.model.encoder.zero_states(n_rows)
        size = max(1, TOKENS_AT_ONCE // n_rows)
        for start in range(0, packing.n_steps, size):
            steps = slice(start, start + size)
            window = tokens[:, steps], begins[steps]
            if backend.FIXED_SHAPES and start + size > packing.n_steps:
                last = packing.n_steps - start
                more = (0, power_of_two(last) - last)
                window = np.pad(window[0], [(0, 0), more, (0, 0)]), np.pad(window[1], [more, (0, 0)])
            found, states = run(table, *window, states)
            for direction, vectors in enumerate(map(keras.ops.convert_to_numpy, found)):
                if result is None:
                    shape = len(vectors), places.shape[1], n_directions * self._width
                    result = np.empty(shape, vectors.dtype)
                first, end = np.searchsorted(
                    sorted_places[direction], [start * n_rows, (start + size) * n_rows]
                )
                there = sorted_places[direction, first:end] - start * n_rows
                columns = slice(direction * self._width, (direction + 1) * self._width)
                result[:, order[direction, first:end], columns] = vectors[:, there]
        return result

    def _graph(self, layers: Layers, dtype: str, in_windows: bool) -> Any:  # noqa: ANN401
        """The graph that gives these layers, of whole rows or of a window, made once."""
        key = layers, dtype, in_windows
        if key in self._graphs:
            return self._graphs[key]
        encoder, stateful = self.model.encoder, self.model.stateful
        ops, n_directions = keras.ops, self.model.options.n_directions

        def chosen(words: list[Tensor], lstm_layers: list[list[Tensor]]) -> list[Tensor]:
            """By direction, vectors (layers, tokens, projection_dim)."""
            by_direction = []
            for stack in zip(words, *lstm_layers, strict=True):
                if layers == "all":
                    vectors = ops.stack(stack)
                elif layers == "average":
                    vectors = ops.mean(ops.stack(stack), axis=0, keepdims=True)
                else:
                    vectors = stack[-1 if isinstance(layers, str) else layers][None]
                by_direction.append(ops.cast(vectors, dtype))
            return by_direction

        def whole(table: Tensor, words: Tensor, tokens: Tensor, places: Tensor, rows: Tensor) -> Tensor:
            arguments = {"lengths" if stateful else "begins": rows}
            lstm_layers = self.model.run_packed(table, tokens, places, **arguments)
            return ops.concatenate(
                chosen([backend.gather(table, words)] * n_directions, lstm_layers), axis=-1
            )

        def window(
            table: Tensor, tokens: Tensor, begins: Tensor, states: States
        ) -> tuple[list[Tensor], States]:
            every = ops.stack([ops.arange(ops.size(begins), dtype="int32")] * n_directions)
            lstm_layers, after = inference.run_packed(encoder, table, tokens, every, begins, states=states)
            words = [backend.gather(table, ops.reshape(tokens[i], (-1,))) for i in range(n_directions)]
            return chosen(words, lstm_layers), after

        table, tokens = (
            keras.KerasTensor((None, self._width), "float32"),
            keras.KerasTensor((n_directions, None, None), "int32"),
        )
        begins, numbers = keras.KerasTensor((None, None), "bool"), keras.KerasTensor((None,), "int32")
        if in_windows:
            states = keras.tree.map_structure(
                lambda state: keras.KerasTensor((None, *state.shape[1:]), "float32"), encoder.zero_states(1)
            )
            self._graphs[key] = backend.compiled(window, encoder, [table, tokens, begins, states])
        else:
            places = keras.KerasTensor((n_directions, None), "int32")
            specs = [table, numbers, tokens, places, numbers if stateful else begins]
            self._graphs[key] = backend.compiled(whole, encoder, specs)
        return self._graphs[key]


def _copied(
    model_state: dict[str, Any],
    vocabulary: Vocabulary | None,
    limits: Mapping[str, int],
    cuda_device: int | None,
) -> PackedEmbedder:
    placement = Placement(cuda_device)
    model = BidirectionalLanguageModel.__new__(BidirectionalLanguageModel)
    with placement.scope():
        model.__setstate__(model_state)
    return PackedEmbedder(model, vocabulary, placement, limits)


class Embedder:
    """Copies of a model, one a device, that embed chunks of sentences; as many threads may call it at a time.

    Args:
        copies: at least one.

    Attributes:
        model: the model, which makes the vectors of whole batches.
        vocabulary: of a word-level model.
        n_layers: layers of a result.
        dim: width of a result.
        stateful: whether the LSTM state is carried from batch to batch.
        n_at_once: chunks that are embedded at the same time: the number of devices.
    """

    def __init__(self, copies: Sequence[PackedEmbedder]) -> None:
        self._copies = tuple(copies)
        self._free: SimpleQueue[PackedEmbedder] = SimpleQueue()
        for embedder in self._copies:
            self._free.put(embedder)
        self.model, self.vocabulary = self._copies[0].model, self._copies[0].vocabulary
        self.n_layers, self.dim, self.stateful = self.model.n_layers, self.model.dim, self.model.stateful
        self.n_at_once = len(self._copies)

    def __getstate__(self) -> tuple[PackedEmbedder, ...]:
        """Return the copies, for pickle and copy."""
        return self._copies

    def __setstate__(self, copies: tuple[PackedEmbedder, ...]) -> None:
        """Make it again."""
        Embedder.__init__(self, copies)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model's shape and weights."""
        digest = hashlib.sha256(json.dumps(self.model.options.to_inference_json(), sort_keys=True).encode())
        for variable in self.model.encoder.weights:
            digest.update(variable.numpy().tobytes())
        return digest.hexdigest()

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together; see `PackedEmbedder.is_chunk`."""
        return self._copies[0].is_chunk(n_sentences, n_tokens)

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Args:
            sentences: words of each.
            layers: which of them, see `bilm.data.packing.Layers`.
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
