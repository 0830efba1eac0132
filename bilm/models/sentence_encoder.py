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
import tensorflow as tf

from bilm.backend.tensorflow_state import require_eager
from bilm.errors import OptionsError
from bilm.layers.char_cnn import CharCNN
from bilm.models.encoder import Encoder, States
from bilm.options import Options
from bilm.options.network import length_buckets
from bilm.vocabulary.characters import BEGIN_SENTENCE, END_SENTENCE, PADDING, mark_row
from bilm.weights.assign import set_weights
from bilm.weights.files import read_hdf5
from bilm.weights.names import dump_names
from bilm.weights.shapes import Arrays

_NO_CHARACTERS = "the options have no char_cnn: the model reads words of its vocabulary, not characters"
_WORDS_AT_ONCE = 1024  # through the convolutions, whose results take up to 200 kB a word and 1000 filters


class SentenceLayers(NamedTuple):
    """What the encoder makes of sentences, the marks around them included.

    Attributes:
        layers: (rows, layers + 1, steps, directions * projection_dim): word vectors, once for each
            direction, then the LSTM layers, residuals included; zero after the end of a sentence.
        states: of each row at the end of its sentence.
    """

    layers: tf.Tensor
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
    require_eager()
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
        raise OptionsError(_NO_CHARACTERS)
    return options.char_cnn.max_characters_per_token


def token_mask(ids: tf.Tensor) -> tf.Tensor:
    """Which tokens are there, bool (rows, steps), of character or word ids."""
    return tf.reduce_any(ids > 0, axis=-1) if ids.shape.rank == 3 else ids > 0


def add_marks(ids: tf.Tensor) -> tf.Tensor:
    """Put the sentence marks around character ids that have none.

    Args:
        ids: int32 (rows, words, max_characters_per_token), 0 for padding.

    Returns:
        int32 (rows, words + 2, max_characters_per_token), as `bilm.data.batcher.Batcher` gives them.
    """
    n_words = tf.reduce_sum(tf.cast(token_mask(ids), tf.int32), axis=1)
    ids = tf.pad(ids, [[0, 0], [1, 1], [0, 0]])
    steps = tf.range(tf.shape(ids)[1])[None, :, None]
    width = ids.shape[-1]
    ids = tf.where(steps == 0, tf.constant(mark_row(BEGIN_SENTENCE, width) + 1), ids)
    is_end = steps == (n_words + 1)[:, None, None]
    return tf.where(is_end, tf.constant(mark_row(END_SENTENCE, width) + 1), ids)


def word_vectors(encoder: Encoder, ids: tf.Tensor) -> tf.Tensor:
    """Vectors of all tokens, (rows, steps, projection_dim), zero where there is none.

    Args:
        encoder: of a character-level or word-level model.
        ids: as `token_mask` takes them, of the model's kind.
    """
    if encoder.char_cnn is not None:
        return encode_characters(encoder, ids)
    vectors = encoder.encode_words((), tf.maximum(ids - 1, 0))
    return tf.where(token_mask(ids)[..., None], vectors, tf.zeros_like(vectors))


def encode_characters(encoder: Encoder, ids: tf.Tensor) -> tf.Tensor:
    """Word vectors of character ids, each distinct word encoded once.

    Args:
        encoder: of a character-level model.
        ids: int32 (rows, steps, max_characters_per_token), 0 for padding.

    Returns:
        Shape (rows, steps, projection_dim), zero where there is no token.
    """
    mask = token_mask(ids)
    rows = tf.reshape(ids, [-1, ids.shape[-1]])
    rows = tf.where(rows > 0, rows - 1, PADDING)
    words, token_words = tf.raw_ops.UniqueV2(x=rows, axis=[0])
    vectors = tf.reshape(
        tf.gather(encode_words(encoder, words), token_words),
        tf.concat([tf.shape(mask), [encoder.options.lstm.projection_dim]], axis=0),
    )
    return tf.where(mask[..., None], vectors, tf.zeros_like(vectors))


def encode_words(encoder: Encoder, rows: tf.Tensor) -> tf.Tensor:
    """Vectors of words, some at a time.

    Args:
        encoder: of a character-level model.
        rows: character ids 0-260, int32 (words, max_characters_per_token).

    Returns:
        Shape (words, projection_dim).

    Raises:
        OptionsError: it is a word-level model.
    """
    cnn = encoder.char_cnn
    if cnn is None:
        raise OptionsError(_NO_CHARACTERS)
    n_words = tf.shape(rows)[0]
    n_parts = tf.maximum(1, (n_words + _WORDS_AT_ONCE - 1) // _WORDS_AT_ONCE)
    dim = encoder.options.lstm.projection_dim

    def part(i: tf.Tensor, vectors: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        some = rows[i * _WORDS_AT_ONCE : (i + 1) * _WORDS_AT_ONCE]
        return i + 1, vectors.write(i, _encode_some(cnn, some))

    vectors = tf.TensorArray(tf.float32, n_parts, infer_shape=False, element_shape=[None, dim])
    _, vectors = tf.while_loop(lambda i, _: i < n_parts, part, (tf.constant(0), vectors))
    return tf.ensure_shape(vectors.concat(), [None, dim])


def compiled_words(encoder: Encoder) -> Any:  # noqa: ANN401
    """`encode_words` of an encoder as a graph for any number of rows."""
    return tf.function(
        lambda rows: encode_words(encoder, rows),
        autograph=False,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
    )


def _encode_some(cnn: CharCNN, rows: tf.Tensor) -> tf.Tensor:
    """Vectors of a few words, each among others of its length, see `length_buckets`."""
    most = cnn.max_characters
    widths = length_buckets(most, cnn.max_width)
    columns = tf.range(1, most + 1)
    lengths = tf.reduce_max(tf.where(rows == PADDING, 0, columns), axis=1)
    needed = tf.minimum(most, lengths + cnn.max_width)
    bucket = tf.searchsorted(tf.constant(widths), needed)
    parts = tf.dynamic_partition(rows, bucket, len(widths))
    places = tf.concat(tf.dynamic_partition(tf.range(tf.shape(rows)[0]), bucket, len(widths)), axis=0)
    vectors = cnn(
        tuple(
            tf.ensure_shape(part[:, :width], [None, width]) for part, width in zip(parts, widths, strict=True)
        )
    )
    return tf.gather(vectors, tf.math.invert_permutation(places))


def run_sentences(
    encoder: Encoder, words: tf.Tensor, lengths: tf.Tensor, states: States | None = None
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
    states = encoder.zero_states(tf.shape(words)[0]) if states is None else states
    inputs = tf.transpose(words, [1, 0, 2])  # (steps, rows, dim)
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
    stacked = tf.stack([tf.concat(pair, axis=-1) for pair in layers])  # (layers, steps, rows, dim)
    return SentenceLayers(tf.transpose(stacked, [2, 0, 1, 3]), tuple(after))


def run_packed(
    encoder: Encoder,
    table: tf.Tensor,
    tokens: tf.Tensor,
    places: tf.Tensor,
    begins: tf.Tensor | None = None,
    lengths: tf.Tensor | None = None,
    states: States | None = None,
) -> tuple[list[list[tf.Tensor]], States]:
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
    states = encoder.zero_states(tf.shape(tokens)[2]) if states is None else states
    by_direction, after = [], []
    for direction in range(encoder.options.n_directions):
        outputs, state = encoder.run_direction(
            direction, tf.gather(table, tokens[direction]), states[direction], lengths=lengths, begins=begins
        )
        flat = (tf.reshape(output, [-1, output.shape[-1]]) for output in outputs)
        by_direction.append([tf.gather(output, places[direction]) for output in flat])
        after.append(state)
    return [list(layer) for layer in zip(*by_direction, strict=True)], tuple(after)


def _reverse(values: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Each row's sentence the other way round, its padding in place."""
    return tf.reverse_sequence(values, lengths, seq_axis=0, batch_axis=1)


def without_marks(layers: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Cut the vectors of the sentence marks, which are the first and the last of each row.

    Args:
        layers: (rows, layers, steps, dim).
        lengths: int32 (rows,), tokens of each sentence, marks included.

    Returns:
        Shape (rows, layers, steps - 2, dim), zero after the end of a sentence.
    """
    inner = layers[:, :, 1:-1]
    is_word = tf.sequence_mask(lengths - 2, tf.shape(inner)[2])[:, None, :, None]
    return tf.where(is_word, inner, tf.zeros_like(inner))
