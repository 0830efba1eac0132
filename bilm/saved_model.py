"""A biLM as a TensorFlow SavedModel with the signatures of TF-Hub's ELMo, which needs no Python of ours."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import tensorflow as tf

from bilm import inference
from bilm.encoder import Encoder
from bilm.errors import DataError, OptionsError
from bilm.layers.character_ids import ids_of_words, split_sentences
from bilm.layers.lstm_loop import portable
from bilm.vocab import Vocabulary


class ServedElmo(tf.Module):
    """Strings in, every layer's vectors out.

    Signature ``default`` takes ``strings`` (batch,), split at ASCII white space; ``tokens`` takes
    ``tokens`` (batch, words), strings, and ``sequence_len`` (batch,). Both give, zero for padding:

    - ``word_emb`` (batch, words, projection_dim), ``lstm_outputs1`` and so on (batch, words, dim);
    - ``elmo`` (batch, words, dim): the mean of the layers, the word vectors once for each direction;
    - ``default`` (batch, dim): the mean of ``elmo`` over the words of a sentence.

    Args:
        encoder: of the model.
        vocabulary: of a word-level model, else None.

    Raises:
        OptionsError: a word-level model without its vocabulary.
    """

    def __init__(self, encoder: Encoder, vocabulary: Vocabulary | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        # Keras's variables are wrappers; TensorFlow saves what they hold.
        self.tensors = [variable.value for variable in encoder.weights]
        self.ids: tf.lookup.StaticHashTable | None = None
        if encoder.char_cnn is None:
            if vocabulary is None:
                raise OptionsError(
                    "vocab_file: missing; the model reads words, and its vocabulary has their ids"
                )
            self._marks = (vocabulary.bos, vocabulary.eos)
            ids = tf.range(vocabulary.size, dtype=tf.int32)
            entries = tf.lookup.KeyValueTensorInitializer(tf.constant(list(vocabulary.words)), ids)
            self.ids = tf.lookup.StaticHashTable(entries, vocabulary.unk)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="strings")])
    def default(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Embed whole sentences."""
        return self._embed(*split_sentences(strings))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.string, name="tokens"),
            tf.TensorSpec([None], tf.int32, name="sequence_len"),
        ]
    )
    def tokens(self, tokens: tf.Tensor, sequence_len: tf.Tensor) -> dict[str, tf.Tensor]:
        """Embed padded words."""
        is_right = tf.reduce_all((sequence_len >= 0) & (sequence_len <= tf.shape(tokens)[1]))
        message = "sequence_len must be 0 to the number of words that a row of tokens has"
        with tf.control_dependencies([tf.debugging.Assert(is_right, [message, sequence_len])]):
            return self._embed(tokens, tf.identity(sequence_len))

    def _embed(self, words: tf.Tensor, n_words: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = self._with_marks(words, n_words)
        vectors = inference.word_vectors(self.encoder, ids)
        with portable():
            layers = inference.run_sentences(self.encoder, vectors, n_words + 2).layers
        layers = inference.without_marks(layers, n_words + 2)
        elmo = tf.reduce_mean(layers, axis=1)
        divisor = tf.cast(tf.maximum(n_words, 1), elmo.dtype)[:, None]
        dim = self.encoder.options.lstm.projection_dim
        outputs = {"word_emb": layers[:, 0, :, :dim], "elmo": elmo}
        for i in range(self.encoder.options.lstm.n_layers):
            outputs[f"lstm_outputs{i + 1}"] = layers[:, i + 1]
        return outputs | {"default": tf.reduce_sum(elmo, axis=1) / divisor}

    def _with_marks(self, words: tf.Tensor, n_words: tf.Tensor) -> tf.Tensor:
        """Ids of the sentences between their marks."""
        if self.ids is None:
            width = inference.require_characters(self.encoder.options)
            return inference.add_marks(ids_of_words(words, n_words, width))
        bos, eos = self._marks
        ids = tf.pad(self.ids.lookup(words), [[0, 0], [1, 1]]) + 1
        steps = tf.range(tf.shape(ids)[1])[None]
        ids = tf.where(steps == 0, bos + 1, tf.where(steps == n_words[:, None] + 1, eos + 1, ids))
        return tf.where(steps <= n_words[:, None] + 1, ids, 0)


def write_saved_model(
    encoder: Encoder, directory: Path, vocabulary: Vocabulary | None = None, overwrite: bool = False
) -> None:
    """Write a SavedModel, whole or not at all.

    Args:
        encoder: of the model.
        directory: made by this.
        vocabulary: of a word-level model, else None.
        overwrite: replace a SavedModel that is there.

    Raises:
        DataError: the directory exists, or cannot be written.
        OptionsError: as `ServedElmo`.
    """
    if directory.exists() and not (overwrite and (directory / "saved_model.pb").is_file()):
        advice = (
            "--overwrite replaces it" if (directory / "saved_model.pb").is_file() else "give another name"
        )
        raise DataError(f"{directory}: exists; {advice}")
    model = ServedElmo(encoder, vocabulary)
    signatures = {"default": model.default, "tokens": model.tokens}
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".tmp", dir=directory.parent))
        try:
            tf.saved_model.save(model, str(temporary / "new"), signatures=signatures)
            if directory.exists():
                os.replace(directory, temporary / "old")
            os.replace(temporary / "new", directory)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise DataError(f"{directory}: cannot be written: {reason}") from error
