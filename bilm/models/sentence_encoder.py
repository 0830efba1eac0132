"""The encoder at inference: whole sentences, given as padded ids, to every layer's vectors.

Ids are those of `bilm.data.batcher`: 0 is padding, everything else one more than the id itself, and
padding comes after the sentence only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.backend.keras_backend import Tensor, backend, keras
from bilm.backend.lstm_cell import zero_where
from bilm.backend.settings import Spec
from bilm.errors import OptionsError
from bilm.models.encoder import Encoder, States
from bilm.options import Options
from bilm.vocabulary.vocabulary import BEGIN_SENTENCE, END_SENTENCE, PADDING, mark_row
from bilm.weights.hdf5_file import Arrays, read_hdf5
from bilm.weights.names import dump_names
from bilm.weights.transfer import set_weights


class SentenceLayers(NamedTuple):
    """Vectors of sentences from all layers, the marks around the sentences included.

    Attributes:
        layers: (rows, layers + 1, steps, directions * projection_dim): word vectors, once for each
            direction, then the LSTM layers, residuals included; zero after the end of a sentence.
        states: of each row at the end of its sentence.
    """

    layers: Tensor
    states: States


def read_encoder(options: Options, weight_file: str | Path) -> Encoder:
    """Make the encoder of dumped weights.

    Args:
        options: the model; its ``n_tokens_vocab`` is not needed.
        weight_file: HDF5, as bilm-tf, AllenNLP and ``bilm dump-weights`` have it; an output layer in
            it is left where it is.

    Raises:
        WeightsError: the file cannot be read; or names every array that is missing, misshapen or
            not the model's, with both shapes.
    """
    return make_encoder(options, read_hdf5(weight_file, dump_names(options)), str(weight_file))


def make_encoder(options: Options, weights: Mapping[str, np.ndarray], source: str) -> Encoder:
    """Make an encoder with given weights.

    Args:
        options: the model.
        weights: arrays by our own names; those of an output layer are not needed.
        source: what to call them in an error.

    Raises:
        WeightsError: they do not fit the options.
        ProcessError: TensorFlow is in its version 1 mode.
    """
    backend.require_ready()
    arrays: Arrays = {name: array for name, array in weights.items() if name.startswith("encoder/")}
    if options.char_cnn is None and "encoder/embedding" in arrays:
        options = dataclasses.replace(options, n_tokens_vocab=len(arrays["encoder/embedding"]))
    encoder = Encoder(options, name="encoder")
    encoder.build()
    set_weights({variable.path: variable for variable in encoder.weights}, arrays, source)
    return encoder


def require_characters(options: Options) -> int:
    """The characters of a word, marks included, of a character-level model.

    Raises:
        OptionsError: it is a word-level model.
    """
    if options.char_cnn is None:
        raise OptionsError(
            "the options have no char_cnn: the model reads words of its vocabulary, not characters"
        )
    return options.char_cnn.max_characters_per_token


def token_mask(ids: Tensor) -> Tensor:
    """Which tokens are there, bool (rows, steps), of character or word ids."""
    return keras.ops.any(ids > 0, axis=-1) if len(ids.shape) == 3 else ids > 0


def count_tokens(mask: Tensor) -> Tensor:
    """Tokens of each row, int32 (rows,), by `token_mask`."""
    return keras.ops.sum(keras.ops.cast(mask, "int32"), axis=1)


def add_marks(ids: Tensor) -> Tensor:
    """Put the sentence marks around character ids that have none.

    Args:
        ids: int32 (rows, words, max_characters_per_token), 0 for padding.

    Returns:
        int32 (rows, words + 2, max_characters_per_token), as `bilm.data.batcher.Batcher` gives them.
    """
    ops, width = keras.ops, ids.shape[-1]
    n_words = count_tokens(token_mask(ids))
    ids = ops.pad(ids, [[0, 0], [1, 1], [0, 0]])
    steps = ops.arange(ops.shape(ids)[1], dtype="int32")[None, :, None]
    begin, end = (ops.convert_to_tensor(mark_row(mark, width) + 1) for mark in (BEGIN_SENTENCE, END_SENTENCE))
    ids = ops.where(steps == 0, begin, ids)
    return ops.where(steps == (n_words + 1)[:, None, None], end, ids)


def word_vectors(encoder: Encoder, ids: Tensor) -> Tensor:
    """Vectors of all tokens, (rows, steps, projection_dim), zero where there is none.

    Args:
        encoder: of a character-level or word-level model.
        ids: as `token_mask` takes them, of the model's kind.
    """
    ops, mask = keras.ops, token_mask(ids)
    if encoder.char_cnn is None:
        vectors = encoder.encode_words((), ops.maximum(ids - 1, 0))
    else:  # each distinct word is encoded once
        rows = ops.reshape(ids, (-1, ids.shape[-1]))
        words, token_words = backend.distinct_rows(ops.where(rows > 0, rows - 1, PADDING))
        vectors = backend.gather(encode_words(encoder, words), token_words)
        vectors = ops.reshape(vectors, (*ops.shape(mask), encoder.options.lstm.projection_dim))
    return zero_where(ops.logical_not(mask)[..., None], vectors)


def encode_words(encoder: Encoder, rows: Tensor) -> Tensor:
    """Vectors of words, some at a time.

    Args:
        encoder: of a character-level model.
        rows: character ids 0-260, int32 (words, max_characters_per_token).

    Returns:
        Shape (words, projection_dim).

    Raises:
        OptionsError: it is a word-level model.
    """
    require_characters(encoder.options)
    return backend.encode_in_parts(encoder.char_cnn, rows)


def compiled_words(encoder: Encoder) -> Any:  # noqa: ANN401
    """`encode_words` of an encoder, compiled for any number of rows."""
    specs = [Spec((None, None), "int32")]
    return backend.compiled(lambda rows: encode_words(encoder, rows), encoder, specs, reads_values=True)


def run_sentences(
    encoder: Encoder, words: Tensor, lengths: Tensor, states: States | None = None
) -> SentenceLayers:
    """Run both directions over whole sentences.

    Args:
        encoder: the network.
        words: word vectors with those of the sentence marks, (rows, steps, projection_dim), zero
            after the end of a sentence.
        lengths: int32 (rows,), tokens of each sentence, marks included.
        states: before the sentences; zeros if None.
    """
    n_directions = encoder.options.n_directions
    ops = keras.ops
    states = encoder.zero_states(ops.shape(words)[0]) if states is None else states
    inputs = ops.transpose(words, (1, 0, 2))  # (steps, rows, dim)
    layers, after = [[inputs] * n_directions], []
    by_direction = []
    for direction in range(n_directions):
        backward = direction == 1
        outputs, state = encoder.run_direction(
            direction, _reverse(inputs, lengths) if backward else inputs, states[direction], lengths=lengths
        )
        by_direction.append([_reverse(output, lengths) if backward else output for output in outputs])
        after.append(state)
    layers += [list(pair) for pair in zip(*by_direction, strict=True)]
    stacked = ops.stack([ops.concatenate(pair, axis=-1) for pair in layers])  # (layers, steps, rows, dim)
    return SentenceLayers(ops.transpose(stacked, (2, 0, 1, 3)), tuple(after))


def run_packed(
    encoder: Encoder,
    table: Tensor,
    tokens: Tensor,
    places: Tensor,
    begins: Tensor | None = None,
    lengths: Tensor | None = None,
    states: States | None = None,
) -> tuple[list[list[Tensor]], States]:
    """Run both directions over packed rows, see `bilm.embedding.packing`.

    Args:
        encoder: the network.
        table: vectors of distinct words, (words, projection_dim).
        tokens: of each direction, in its own order, numbers of words, int32 (directions, steps, rows).
        places: of each direction, of the tokens wanted, int32 (directions, tokens).
        begins: where a sentence begins, bool (steps, rows); None carries the state through.
        lengths: tokens of each row, int32 (rows,), where the states at their ends matter.
        states: before the rows; zeros if None.

    Returns:
        Outputs of the LSTM layers, residuals included, by layer, then direction, (tokens, projection_dim)
        each; and the states after the rows.
    """
    ops = keras.ops
    states = encoder.zero_states(ops.shape(tokens)[2]) if states is None else states
    by_direction, after = [], []
    for direction in range(encoder.options.n_directions):
        outputs, state = encoder.run_direction(
            direction,
            backend.gather(table, tokens[direction]),
            states[direction],
            lengths=lengths,
            begins=begins,
        )
        flat = (ops.reshape(output, (-1, output.shape[-1])) for output in outputs)
        by_direction.append([backend.gather(output, places[direction]) for output in flat])
        after.append(state)
    return [list(layer) for layer in zip(*by_direction, strict=True)], tuple(after)


def _reverse(values: Tensor, lengths: Tensor) -> Tensor:
    """Each row's sentence the other way round, its padding in place."""
    ops, (n_steps, n_rows, dim) = keras.ops, keras.ops.shape(values)
    steps = ops.arange(n_steps, dtype="int32")[:, None]
    turned = ops.where(steps < lengths, lengths - 1 - steps, steps)
    places = turned * n_rows + ops.arange(n_rows, dtype="int32")
    return backend.gather(ops.reshape(values, (-1, dim)), places)


def without_marks(layers: Tensor, lengths: Tensor) -> Tensor:
    """Cut the vectors of the sentence marks, which are the first and the last of each row.

    Args:
        layers: (rows, layers, steps, dim).
        lengths: int32 (rows,), tokens of each sentence, marks included.

    Returns:
        Shape (rows, layers, steps - 2, dim), zero after the end of a sentence.
    """
    inner = layers[:, :, 1:-1]
    steps = keras.ops.arange(keras.ops.shape(inner)[2], dtype="int32")
    return zero_where((steps >= (lengths - 2)[:, None])[:, None, :, None], inner)
