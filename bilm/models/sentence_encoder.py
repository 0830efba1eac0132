"""The encoder at inference: from checked, padded ids of whole sentences to the vectors of every layer.

Ids are made by `bilm.data.batcher`: 0 is padding, which follows the sentence, and every other id is
larger by one than in the vocabulary.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bilm.backend.keras_backend import BACKEND, Tensor, backend, keras
from bilm.backend.lstm_cell import zero_where
from bilm.errors import DataError, OptionsError
from bilm.models.encoder import Encoder, States
from bilm.options import CharCNNOptions, Options, Precision
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary, mark_row
from bilm.vocabulary.vocabulary_file import SPECIAL_TOKENS
from bilm.weights import names
from bilm.weights.arrays import Arrays, check_shapes

_WORDS_AT_ONCE = 1 << 13
_CACHE_BYTES = 1 << 28
_FIRST_ID = UnicodeCharsVocabulary.bow_char + 1  # first character id of every word
_MARKS = (UnicodeCharsVocabulary.bos_char, UnicodeCharsVocabulary.eos_char)


def make_encoder(
    options: Options,
    weights: Mapping[str, np.ndarray],
    source: str,
    precision: Precision | str = Precision.FLOAT32,
) -> Encoder:
    """Make an encoder from arrays.

    Args:
        options: options of the model.
        weights: arrays by bilm's names; an output layer is ignored.
        source: name of the weights in errors.
        precision: see `Encoder`.

    Raises:
        WeightsError: the weights do not fit the options.
        ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
    """
    own: Arrays = {name: array for name, array in weights.items() if name.startswith("encoder/")}
    if options.char_cnn is None and "encoder/embedding" in own:
        options = dataclasses.replace(options, n_tokens_vocab=len(own["encoder/embedding"]))
    needed = {name.own: name.shape for name in names.weight_names(options) if not name.is_softmax}
    check_shapes({name: array.shape for name, array in own.items()}, needed, source)
    encoder = Encoder(options, precision, own)
    encoder.build()
    return encoder


def require_characters(options: Options) -> CharCNNOptions:
    """Return the options of the character encoder of a character-level model.

    Raises:
        OptionsError: the model is a word-level one.
    """
    if options.char_cnn is None:
        raise OptionsError(
            "the options have no char_cnn: the model reads words of its vocabulary, not characters"
        )
    return options.char_cnn


@dataclasses.dataclass(frozen=True)
class IdKind:
    """Kind of ids that a model takes; 0 is padding.

    Attributes:
        largest: largest id.
        width: characters per word; None for word ids.
        has_marks: True if sentence marks surround the words. Without marks there may be further dimensions
            between sentences and words.
    """

    largest: int
    width: int | None = None
    has_marks: bool = True

    @classmethod
    def from_options(cls, options: Options, *, has_marks: bool) -> "IdKind":
        """Return the kind of a model: ids of `bilm.Batcher` or, without marks, of `bilm.batch_to_ids`.

        Word ids, those of `bilm.TokenBatcher`, always have marks.
        """
        if options.char_cnn is None:
            return cls(options.n_tokens_vocab or 0)
        # One is added to each id.
        return cls(UnicodeCharsVocabulary.pad_char + 1, options.char_cnn.max_characters_per_token, has_marks)

    @property
    def n_inner(self) -> int:
        """Number of dimensions of a sentence's ids."""
        return 1 if self.width is None else 2

    def checked(self, ids: Any) -> Any:  # noqa: ANN401
        """Check ids and return them as an int32 tensor; a `keras.KerasTensor` is returned unchanged.

        Eager ids are checked completely, except that fractions are cut off. In a graph, dtype and shape are
        checked when it is built, range and fractions on TensorFlow when it runs.

        Raises:
            DataError: the ids are not numbers, their type cannot hold the largest id, their shape or range is
                wrong, a word does not begin with its mark, sentence marks are missing or superfluous, a word
                follows padding, or there are no sentences.
        """
        try:
            is_tensor = isinstance(ids, keras.KerasTensor) or keras.ops.is_tensor(ids)
            ids = ids if is_tensor else np.asarray(ids)
        except (TypeError, ValueError) as error:
            raise self._error(f"no array padded with 0 ({error})") from error
        name = str(getattr(ids.dtype, "name", ids.dtype)).removeprefix("torch.")
        shape = tuple(ids.shape) if getattr(ids.shape, "rank", 0) is not None else ("unknown",)
        most = {"int8": 127, "uint8": 255, "float16": 2048}.get(name, self.largest)  # that it holds exactly
        if not name.startswith(("int", "uint", "float")) or most < self.largest:
            raise self._error(f"{name} {shape}")
        self.check_shape(shape, f"{name} ")
        if isinstance(ids, keras.KerasTensor):
            return ids
        if not backend.is_dense(ids):
            raise self._error("a tensor without values or a sparse one")
        if backend.is_symbolic(ids):
            return self._checked_when_run(ids)
        values = keras.ops.convert_to_numpy(ids)
        if problem := self._problem(values):
            raise self._error(problem)
        return keras.ops.convert_to_tensor(values.astype(np.int32))

    def check_shape(self, shape: tuple[int | None, ...], dtype: str = "") -> None:
        """Check the number of dimensions and of characters per word.

        Raises:
            DataError: they do not fit the model.
        """
        n_outer = len(shape) - self.n_inner
        is_right = n_outer == 1 or (not self.has_marks and n_outer > 1)
        is_right = is_right and (self.width is None or shape[-1] in (None, self.width))
        if not is_right or (self.has_marks and shape[1] is not None and shape[1] < 2):
            raise self._error(f"{dtype}{shape}")

    def _problem(self, ids: np.ndarray) -> str | None:
        """Describe the first problem of the values, if any."""
        n_rows = math.prod(ids.shape[: -self.n_inner])
        if not n_rows:
            return f"no row, {ids.shape}"
        if ids.size and not 0 <= ids.min() <= ids.max() <= self.largest:
            return f"{ids.min()} to {ids.max()}"
        rows = ids.reshape(n_rows, *ids.shape[-self.n_inner :])
        is_token = np.greater(rows, 0).any(axis=-1) if self.width else np.greater(rows, 0)
        if self.width and not np.isin(rows[..., 0], (0, _FIRST_ID)).all():
            return f"a word whose ids do not begin with {_FIRST_ID}"
        is_after_padding = np.greater(is_token[:, 1:], is_token[:, :-1]).any(axis=1)
        if is_after_padding.any():
            return f"row {is_after_padding.argmax()} with words after padding"
        lengths = is_token.sum(axis=1)
        rows, lengths = rows[lengths > 0], lengths[lengths > 0]  # rows of padding have no marks
        if not len(rows):
            return None
        first, last = rows[:, 0], rows[np.arange(len(rows)), lengths - 1]
        if self.width:
            are_marks = (first[:, 1] == _MARKS[0] + 1) & (last[:, 1] == _MARKS[1] + 1)
        else:  # only the vocabulary knows the ids of the marks, but they are the same in all rows
            are_marks = (first == first[0]) & (last == last[0]) & (first != last)
        if self.has_marks and not are_marks.all():
            return f"{self._name} ids without the sentence marks"
        if not self.has_marks and are_marks.all():
            return f"{self._name} ids with sentence marks, which are added here"
        return None

    def _checked_when_run(self, ids: Tensor) -> Tensor:
        ops = keras.ops
        if self.width:
            ids = ops.reshape(ids, (*ops.shape(ids)[:-1], self.width))
        if BACKEND != "tensorflow":  # a traced function cannot raise an error there
            return ops.cast(ids, "int32")
        is_right = ops.logical_and(ops.min(ids) >= 0, ops.max(ids) <= self.largest)
        if "float" in keras.backend.standardize_dtype(ids.dtype):
            is_right = ops.logical_and(is_right, ops.all(ids == ops.floor(ids)))
        if self.width:  # Keras may have cast ids that overflowed in a smaller dtype
            first = ids[..., 0]
            is_first = ops.logical_or(first == 0, first == _FIRST_ID)
            is_right = ops.logical_and(is_right, ops.all(is_first))
        return backend.asserted(ops.cast(ids, "int32"), is_right, str(self._error("other values")))

    @property
    def _name(self) -> str:
        return "word" if self.width is None else "character"

    def _error(self, received: str) -> DataError:
        shape = f"(rows, words{' + 2' if self.has_marks else ''}{f', {self.width}' if self.width else ''})"
        maker = "TokenBatcher"
        if self.width:
            maker = f"Batcher(None, {self.width})" if self.has_marks else f"batch_to_ids(..., {self.width})"
        return DataError(
            f"{self._name} ids must be whole numbers {shape}, 0 (padding) to {self.largest}, got {received}; "
            f"`{maker}` makes them"
        )


def token_mask(ids: Tensor) -> Tensor:
    """Return the mask of tokens, bool (rows, steps), of character or word ids."""
    return keras.ops.any(ids > 0, axis=-1) if len(ids.shape) == 3 else ids > 0


def count_tokens(mask: Tensor) -> Tensor:
    """Count the tokens of each row in a `token_mask`, int32 (rows,)."""
    return keras.ops.sum(keras.ops.cast(mask, "int32"), axis=1)


def add_marks(ids: Tensor, marks: Sequence[Any] | None = None) -> Tensor:
    """Add sentence marks to character or word ids.

    Args:
        ids: int32 (rows, words, max_characters_per_token) or (rows, words), without marks, 0 for padding.
        marks: ids of the two marks, for word ids.

    Returns:
        int32 (rows, words + 2, ...), like the ids of `bilm.data.batcher.Batcher` or `TokenBatcher`.
    """
    ops, inner = keras.ops, len(ids.shape) - 2
    rows = marks or [mark_row(mark, ids.shape[-1]) + 1 for mark in _MARKS]
    begin, end = map(ops.convert_to_tensor, rows)
    last = ops.reshape(count_tokens(token_mask(ids)) + 1, (-1, 1, *[1] * inner))
    ids = ops.pad(ids, [[0, 0], [1, 1], *[[0, 0]] * inner])
    steps = ops.reshape(ops.arange(ops.shape(ids)[1], dtype="int32"), (1, -1, *[1] * inner))
    return ops.where(steps == last, end, ops.where(steps == 0, begin, ids))


def word_vectors(encoder: Encoder, ids: Tensor) -> Tensor:
    """Compute the word vectors of all tokens, (rows, steps, projection_dim), zero for padding.

    Args:
        encoder: encoder of a character-level or word-level model.
        ids: padded character ids or word ids, as the model needs.
    """
    ops, mask = keras.ops, token_mask(ids)
    if encoder.char_cnn is None:
        vectors = backend.gather(encoder.encode_types(), ops.maximum(ids - 1, 0))
    else:  # encode each distinct word once
        rows = ops.reshape(ids, (-1, ids.shape[-1]))
        characters = ops.where(rows > 0, rows - 1, UnicodeCharsVocabulary.pad_char)
        words, token_words = backend.distinct_rows(characters)
        vectors = backend.gather(backend.encode_in_parts(encoder.char_cnn, words), token_words)
        vectors = ops.reshape(vectors, (*ops.shape(mask), encoder.options.lstm.projection_dim))
    return zero_where(ops.logical_not(mask)[..., None], vectors)


def convolutions_of(encoder: Encoder) -> Encoder:
    """Make an encoder of words that ends before highways and projection; it has no LSTM weights.

    Raises:
        OptionsError: the model is a word-level one.
    """
    cnn = require_characters(encoder.options)
    lstm = dataclasses.replace(encoder.options.lstm, dim=cnn.n_filters, projection_dim=cnn.n_filters)
    options = dataclasses.replace(encoder.options, lstm=lstm, char_cnn=dataclasses.replace(cnn, n_highway=0))
    whole: Any = encoder.char_cnn
    encoder = Encoder(options, encoder.precision)
    convolutions: Any = encoder.char_cnn
    convolutions.build()
    convolutions.set_weights(whole.get_weights()[: len(convolutions.weights)])
    return encoder


class WordVectors:
    """Cache of context-independent word vectors.

    Args:
        encoder: encoder of the words.
        vocabulary: vocabulary of a word-level model; may be None for a character-level one.
        max_words: number of words in the cache, which is emptied before it grows beyond; by default as many
            as fit in 256 MB.
    """

    def __init__(self, encoder: Encoder, vocabulary: Vocabulary | None, max_words: int | None = None) -> None:
        if vocabulary is None:
            width = require_characters(encoder.options).max_characters_per_token
            vocabulary = UnicodeCharsVocabulary.from_words(SPECIAL_TOKENS, width)
            vocabulary.unicode_form = encoder.options.unicode_form
        self._encoder = encoder
        self._vocabulary = vocabulary
        encode = partial(backend.encode_in_parts, encoder.char_cnn)
        rows = keras.KerasTensor((None, None), "int32")
        self._encode_words = encode if backend.FIXED_SHAPES else backend.compiled(encode, encoder, [rows])
        self._max_words = max_words or _CACHE_BYTES // (4 * encoder.options.lstm.projection_dim)
        self._vectors: dict[str, np.ndarray] = {}

    def forget(self) -> None:
        """Empty the cache, after a change of weights."""
        self._vectors = {}

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Return the vectors of distinct words, float32 (words, projection_dim)."""
        known = self._vectors  # another thread may empty the cache
        new = [word for word in words if word not in known]
        if len(known) + len(new) > self._max_words:
            self._vectors = known = {}
            new = list(words)
        for start in range(0, len(new), _WORDS_AT_ONCE):
            batch = new[start : start + _WORDS_AT_ONCE]
            known.update(zip(batch, self._encode(batch), strict=True))
        return np.stack([known[word] for word in words])

    def _encode(self, words: list[str]) -> np.ndarray:
        vocabulary = self._vocabulary
        if isinstance(vocabulary, UnicodeCharsVocabulary) and self._encoder.char_cnn is not None:
            vectors = self._encode_words(vocabulary.encode_chars(words)[1:-1])
        else:
            ids = keras.ops.convert_to_tensor(vocabulary.encode(words)[1:-1])
            vectors = backend.gather(self._encoder.encode_types(), ids)
        return keras.ops.convert_to_numpy(vectors)


def run_sentences(
    encoder: Encoder, words: Tensor, lengths: Tensor, states: States | None = None
) -> tuple[Tensor, States]:
    """Run both directions over whole sentences.

    Args:
        encoder: the network.
        words: shape (rows, steps, projection_dim), word vectors, sentence marks included, zero after the end
            of a sentence.
        lengths: int32 (rows,), tokens in each sentence, marks included.
        states: states before the sentences; None for zeros.

    Returns:
        The vectors of all layers, sentence marks included, (rows, layers + 1, steps, directions *
        projection_dim): the word vectors, once for each direction, then the LSTM layers, residuals included;
        zero after the end of a sentence. Then the states of each row at the end of its sentence.
    """
    ops = keras.ops
    states = encoder.zero_states(ops.shape(words)[0]) if states is None else states
    inputs = ops.transpose(words, (1, 0, 2))  # (steps, rows, dim)
    by_direction, after = [], []
    for direction in range(encoder.options.n_directions):
        turned = _reverse(inputs, lengths) if direction else inputs
        outputs, state = encoder.run_direction(direction, turned, states[direction], lengths=lengths)
        in_order = (_reverse(output, lengths) if direction else output for output in outputs)
        by_direction.append([inputs, *in_order])
        after.append(state)
    layers = zip(*by_direction, strict=True)
    stacked = ops.stack([ops.concatenate(pair, axis=-1) for pair in layers])  # (layers, steps, rows, dim)
    return ops.transpose(stacked, (2, 0, 1, 3)), tuple(after)


def run_packed(
    encoder: Encoder,
    table: Tensor,
    tokens: Tensor,
    states: States,
    *,
    begins: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[list[list[Tensor]], States]:
    """Run both directions over packed rows, see `bilm.data.packing`.

    Args:
        encoder: the network.
        table: shape (words, projection_dim), vectors of distinct words.
        tokens: int32 (directions, steps, rows), indices into `table`, in the order of each direction.
        states: states before the rows.
        begins: bool (steps, rows), True at the beginning of a sentence; None to carry the state throughout.
        lengths: int32 (rows,), tokens in each row, if the states at their ends matter.

    Returns:
        The outputs of the LSTM layers at every place, residuals included, by layer, then direction,
        (steps * rows, projection_dim) each; and the states after the rows.
    """
    by_direction, after = [], []
    for direction in range(encoder.options.n_directions):
        words = backend.gather(table, tokens[direction])
        outputs, state = encoder.run_direction(
            direction, words, states[direction], lengths=lengths, begins=begins
        )
        by_direction.append([keras.ops.reshape(output, (-1, output.shape[-1])) for output in outputs])
        after.append(state)
    return [list(layer) for layer in zip(*by_direction, strict=True)], tuple(after)


def _reverse(values: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the sentence of each row, leaving padding in place."""
    ops, (n_steps, n_rows, dim) = keras.ops, keras.ops.shape(values)
    steps = ops.arange(n_steps, dtype="int32")[:, None]
    sources = ops.where(steps < lengths, lengths - 1 - steps, steps)
    places = sources * n_rows + ops.arange(n_rows, dtype="int32")
    return backend.gather(ops.reshape(values, (-1, dim)), places)


def without_marks(layers: Tensor, lengths: Tensor) -> Tensor:
    """Remove the vectors of the sentence marks, the first and the last of each row.

    Args:
        layers: shape (rows, layers, steps, dim).
        lengths: int32 (rows,), tokens in each sentence, marks included.

    Returns:
        Shape (rows, layers, steps - 2, dim), zero after the end of a sentence.
    """
    inner = layers[:, :, 1:-1]
    steps = keras.ops.arange(keras.ops.shape(inner)[2], dtype="int32")
    return zero_where((steps >= (lengths - 2)[:, None])[:, None, :, None], inner)
