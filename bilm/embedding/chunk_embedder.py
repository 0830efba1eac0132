"""Embedding of chunks of sentences, packed into rows, on one or more devices."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from bilm.backend.keras_backend import Tensor, backend, keras, on_device, require_ready
from bilm.backend.settings import TOKENS_AT_ONCE, power_of_two
from bilm.data import packing
from bilm.errors import OptionsError, require_flags, require_positive
from bilm.io import in_groups
from bilm.io.background import map_in_order
from bilm.models import sentence_encoder as inference
from bilm.models.bidirectional_lm import InferenceModel
from bilm.models.encoder import Encoder, States
from bilm.options import Precision
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.vocabulary.vocabulary_file import BOS, EOS

_Item = TypeVar("_Item")
_BATCH_TOKENS = 16384


@dataclass(frozen=True, kw_only=True)
class EmbedderSettings:
    """Settings of an embedder, checked before a model is read; `bilm.ElmoEmbedder` describes them.

    None stands for the default.

    Raises:
        OptionsError: a setting is of another kind, out of range, or excludes another; the message names it.
    """

    stateful: bool = False
    batch_size: int | None = None
    batch_tokens: int | None = None
    max_cached_words: int | None = None
    cuda_device: int | Sequence[int] | None = None
    precision: str | None = None
    with_softmax: bool = False

    def __post_init__(self) -> None:
        require_flags(stateful=self.stateful, with_softmax=self.with_softmax)
        if self.stateful and self.batch_size is None:
            object.__setattr__(self, "batch_size", 64)  # as AllenNLP
        numbers = ("batch_size", "batch_tokens", "max_cached_words")
        require_positive(**{name: n for name in numbers if (n := getattr(self, name)) is not None})
        Precision(self.precision or Precision.FLOAT32)
        if not self.devices:
            raise OptionsError("cuda_device: names no device")
        for device in self.devices:
            on_device(device)  # raises an error for a missing one
        if self.stateful and len(self.devices) > 1:
            raise OptionsError("`cuda_device`: the state is carried on one device; give one")
        if self.stateful and self.batch_tokens is not None:
            raise OptionsError("batch_tokens: with stateful=True, give batch_size instead")

    @cached_property
    def devices(self) -> list[int | None]:
        """Devices, see `bilm.backend.keras_backend.on_device`."""
        device = self.cuda_device
        return [*device] if isinstance(device, Iterable) and not isinstance(device, str) else [device]


class SoftmaxRows(NamedTuple):
    """Rows of a softmax: (words, projection_dim) by the words of a vocabulary."""

    vocabulary: Vocabulary
    kernel: np.ndarray


class PackedModel(InferenceModel):
    """A model on one device that embeds sentences packed into rows; each choice of layers is compiled once.

    Args:
        encoder: the encoder of the model.
        vocabulary: vocabulary of a word-level model, else None.
        device: device of the model, see `bilm.backend.keras_backend.on_device`.
        settings: settings of the embedder.
        rows: rows of the softmax, which ``concat`` adds; or None.
    """

    def __init__(
        self,
        encoder: Encoder,
        vocabulary: Vocabulary | None,
        device: int | None,
        settings: EmbedderSettings,
        rows: SoftmaxRows | None = None,
    ) -> None:
        with on_device(device):
            super().__init__(encoder, settings.batch_size or 1, settings.stateful)
        self.vocabulary, self.device, self.settings, self.rows = vocabulary, device, settings, rows
        self._graphs: dict[tuple[packing.Layers, str], Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the model and its arguments for pickle and copy, without the cache."""
        own = {name: getattr(self, name) for name in ("vocabulary", "device", "settings", "rows")}
        return super().__getstate__() | {"own": own}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore the model from `__getstate__`, on its device."""
        with on_device(saved["own"]["device"]):
            super().__setstate__(saved)
        vars(self).update(saved["own"], _graphs={})

    @property
    def batch_tokens(self) -> int:
        """Tokens computed together."""
        return self.settings.batch_tokens or _BATCH_TOKENS

    @cached_property
    def _words(self) -> inference.WordVectors:
        return inference.WordVectors(self.encoder, self.vocabulary, self.settings.max_cached_words)

    @cached_property
    def _convolutions(self) -> inference.WordVectors:
        encoder = inference.convolutions_of(self.encoder)
        return inference.WordVectors(encoder, self.vocabulary, self.settings.max_cached_words)

    def __call__(
        self, sentences: Sequence[Sequence[str]], form: packing.VectorForm, max_rows: int | None
    ) -> list[np.ndarray]:
        """Embed sentences, all in memory at once; see `ChunkEmbedder`.

        Raises:
            OptionsError: there is no such layer.
        """
        layers, dtype = form.layers, form.dtype if form.pooling is None else "float32"
        if layers not in ("all", "top", "average", "concat", "characters", *range(self.n_layers)):
            if isinstance(layers, int):
                raise OptionsError(f"no layer {layers}; the model has the layers 0 to {self.n_layers - 1}")
            names = "all, top, average, concat, characters or the number of a layer"
            raise OptionsError(f"layers is {layers!r}; give {names}, 0 to {self.n_layers - 1}")
        if not sentences:
            return []
        lengths = [len(words) + 2 for words in sentences]
        if self.stateful:
            packed = packing.pack_in_turn(lengths, min(len(sentences), max_rows or len(sentences)))
        else:
            packed = packing.pack(lengths, max_rows)
        types, numbers = packing.number_types([token for words in sentences for token in (BOS, *words, EOS)])
        pairs: list[tuple[np.ndarray, np.ndarray]] = []  # (layers, places, width), and the words' places
        with on_device(self.device):
            if layers != "characters":
                computed: packing.Layers = "all" if layers == "concat" else layers
                if (computed, dtype) not in self._graphs:
                    self._graphs[computed, dtype] = self._graph(computed, dtype)
                by_direction = self._run(self._graphs[computed, dtype], self._words(types), packed, numbers)
                places = packed.places(*[packed.is_word] * len(by_direction))
                pairs = [*zip(by_direction, places, strict=True)]
            if layers == "concat":
                pairs = [(flat[k : k + 1], place) for k in range(self.n_layers) for flat, place in pairs]
            if layers == "characters" or (layers == "concat" and self.options.char_cnn is not None):
                pairs.append((self._convolutions(types)[None].astype(dtype), numbers[packed.is_word]))
            if layers == "concat" and self.rows is not None:
                rows = self.rows.kernel[self.rows.vocabulary.word_ids(types)]
                pairs.append((rows[None].astype(dtype), numbers[packed.is_word]))
        ends = np.cumsum(packed.lengths - 2).tolist()
        vectors = [
            np.concatenate([flat.take(place[start:end], 1) for flat, place in pairs], axis=-1)
            for start, end in pairwise([0, *ends])
        ]
        return [form.pooled(sentence if layers == "all" else sentence[0]) for sentence in vectors]

    def _run(
        self, graph: Callable[..., Any], table: np.ndarray, packed: packing.Packing, numbers: np.ndarray
    ) -> list[np.ndarray]:
        """Compute the vectors of all places, long rows in windows of steps, which changes no bit.

        Args:
            graph: result of `_graph`.
            table: float32 (words, projection_dim), vectors of distinct words.
            packed: places of the tokens.
            numbers: int32 (tokens,), index of each token's word in `table`.

        Returns:
            Vectors by direction, (layers, places, projection_dim) each; for a single layer or the mean of
            all, `layers` is 1.
        """
        n_rows, stateful = packed.n_rows, self.stateful
        tokens = packed.fill(numbers, self.options.n_directions)
        begins = packed.fill(packed.is_first, 1)[0]
        # Windows pay for rows with more than twice the tokens that are otherwise computed together.
        is_long = packed.n_steps * n_rows > 2 * min(self.batch_tokens, _BATCH_TOKENS)
        in_windows = backend.FIXED_SHAPES or (is_long and not stateful)
        size = max(1, TOKENS_AT_ONCE // n_rows) if in_windows else packed.n_steps
        if backend.FIXED_SHAPES:  # compile few sizes: powers of two, and whole windows
            table = np.pad(table, [(0, power_of_two(len(table)) - len(table)), (0, 0)])
            last = (packed.n_steps - 1) % size + 1
            more = (0, min(power_of_two(last), size) - last)
            tokens, begins = np.pad(tokens, [(0, 0), more, (0, 0)]), np.pad(begins, [more, (0, 0)])
        states = self.first_states(n_rows)
        windows = []
        for start in range(0, len(begins), size):
            steps = slice(start, start + size)
            rows = packed.row_lengths if stateful else begins[steps]
            by_direction, states = graph(table, tokens[:, steps], rows, states)
            windows.append([*map(keras.ops.convert_to_numpy, by_direction)])
        self.keep(states)
        if len(windows) == 1:
            return windows[0]
        return [np.concatenate(arrays, axis=1) for arrays in zip(*windows, strict=True)]

    def _graph(self, layers: packing.Layers, dtype: str) -> Any:  # noqa: ANN401
        """Make the graph that computes these layers over some steps."""
        encoder, ops = self.encoder, keras.ops
        n_directions = self.options.n_directions

        def window(
            table: Tensor, tokens: Tensor, rows: Tensor, states: States
        ) -> tuple[list[Tensor], States]:
            how = {"lengths" if self.stateful else "begins": rows}
            lstm_layers, states = inference.run_packed(encoder, table, tokens, states, **how)
            words = [backend.gather(table, ops.reshape(tokens[i], (-1,))) for i in range(n_directions)]
            by_direction = []
            for stack in zip(words, *lstm_layers, strict=True):
                if layers == "all":
                    vectors = ops.stack(stack)
                elif layers == "average":
                    vectors = ops.mean(ops.stack(stack), axis=0, keepdims=True)
                else:
                    vectors = stack[-1 if isinstance(layers, str) else layers][None]
                by_direction.append(ops.cast(vectors, dtype))
            return by_direction, states

        spec, dim = keras.KerasTensor, self.options.lstm.projection_dim
        rows = spec((None,), "int32") if self.stateful else spec((None, None), "bool")
        tensors = [spec((None, dim), "float32"), spec((n_directions, None, None), "int32"), rows]
        return backend.compiled(window, encoder, [*tensors, encoder.state_specs()])


class ChunkEmbedder:
    """Embedder of chunks of sentences with a copy of the model per device, which one thread uses at a time.

    Args:
        copies: the copies, at least one.
        max_rows: maximum rows of packed sentences; None for the default. If stateful, sentences per batch.

    Attributes:
        model: the first copy.
        device: its device, see `bilm.backend.keras_backend.on_device`.
        vocabulary: vocabulary of a word-level model.
        n_layers: number of layers in a result.
        dim: width of a result.
        stateful: True if the LSTM state is carried from batch to batch.
        n_at_once: number of chunks embedded at the same time, which is the number of devices.
    """

    def __init__(self, copies: Sequence[PackedModel], max_rows: int | None = None) -> None:
        self._copies, self._max_rows = tuple(copies), max_rows
        self._free: SimpleQueue[PackedModel] = SimpleQueue()
        for model in self._copies:
            self._free.put(model)
        self.model, self.vocabulary = self._copies[0], self._copies[0].vocabulary
        self.n_layers, self.dim, self.stateful = self.model.n_layers, self.model.dim, self.model.stateful
        self.device, self.n_at_once = self.model.device, len(self._copies)

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments, for pickle and copy."""
        return {name: vars(self)[name] for name in ("_copies", "_max_rows")}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore the embedder from `__getstate__`."""
        ChunkEmbedder.__init__(self, saved["_copies"], saved["_max_rows"])
        vars(self).update(saved)

    def __copy__(self) -> Self:
        """Return a copy with models and states of its own."""
        return copy.deepcopy(self)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the model's options, weights and words, and of its precision unless that is float32."""
        digest = hashlib.sha256(json.dumps(self.model.options.to_inference_json(), sort_keys=True).encode())
        for variable in self.model.encoder.weights:
            digest.update(variable.numpy().tobytes())
        if self.vocabulary is not None:
            digest.update("\n".join(self.vocabulary.words).encode())
        if (rows := self.model.rows) is not None:
            digest.update(rows.kernel.tobytes() + "\n".join(rows.vocabulary.words).encode())
        if self.model.encoder.precision != "float32":
            digest.update(self.model.encoder.precision.encode())
        return digest.hexdigest()

    @property
    def chunk_size(self) -> tuple[int, int]:
        """Least tokens of a chunk, and a divisor of its number of sentences: with state, that of a batch."""
        return self.model.batch_tokens, (self._max_rows or 1) if self.stateful else 1

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], form: packing.VectorForm = packing.ALL_LAYERS
    ) -> list[np.ndarray]:
        """Embed sentences, all in memory at once.

        Args:
            sentences: the words of each sentence.
            form: form of the vectors of each sentence.

        Raises:
            OptionsError: there is no such layer.
            ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
        """
        require_ready()
        model = self._free.get()
        try:
            return model(sentences, form, self._max_rows)
        finally:
            self._free.put(model)

    def in_chunks(
        self,
        items: Iterable[_Item],
        words_of: Callable[[_Item], Sequence[str] | None],
        form: packing.VectorForm = packing.ALL_LAYERS,
    ) -> Iterator[list[tuple[_Item, np.ndarray]]]:
        """Yield items in their order with the vectors of their sentences, one chunk at a time.

        Args:
            items: any number of items.
            words_of: function from an item to its sentence, or to None for empty vectors.
            form: form of the vectors of each sentence.

        Raises:
            OptionsError: `form` needs the characters of a word-level model.
        """

        def embed(chunk: list[tuple[_Item, Sequence[str] | None]]) -> list[tuple[_Item, np.ndarray]]:
            sentences = [words for _, words in chunk if words is not None]
            vectors = iter(self.embed_chunk(sentences, form))
            return [(item, blank if words is None else next(vectors)) for item, words in chunk]

        blank = self.no_vectors(form)
        pairs = ((item, words_of(item)) for item in items)
        in_memory = in_groups(pairs, lambda pair: len(pair[1] or ()) + 2, *self.chunk_size)
        return map_in_order(embed, in_memory, self.n_at_once)

    def no_vectors(self, form: packing.VectorForm) -> np.ndarray:
        """Return the vectors of a blank sentence.

        Raises:
            OptionsError: `form` needs the characters of a word-level model.
        """
        dim = self.dim
        if form.layers == "characters":
            dim = inference.require_characters(self.model.options).n_filters
        elif form.layers == "concat":
            cnn = self.model.options.char_cnn
            dim = self.n_layers * self.dim + (0 if cnn is None else cnn.n_filters)
            dim += 0 if self.model.rows is None else self.model.rows.kernel.shape[1]
        shape = (self.n_layers, 0, dim) if form.layers == "all" else (0, dim)
        return form.pooled(np.zeros(shape, form.dtype))

    def with_rows(self, batch_size: int | None) -> "ChunkEmbedder":
        """Return an embedder with another number of rows, or None for the same, which shares the copies.

        Raises:
            OptionsError: `batch_size` is below 1, or above the number of rows whose state is carried.
        """
        if batch_size is None:
            return self
        require_positive(batch_size=batch_size)
        if self.stateful and batch_size > self.model.max_batch_size:
            raise OptionsError(
                f"batch_size is {batch_size}, but the state of only {self.model.max_batch_size} sentences is "
                "carried; give the embedder a larger batch_size"
            )
        other = ChunkEmbedder(self._copies, batch_size)
        other._free = self._free
        return other
