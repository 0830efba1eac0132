"""A biLM as a TensorFlow SavedModel with the signatures of TF-Hub's ELMo, which runs without bilm."""

import os
from collections.abc import Collection
from pathlib import Path

import tensorflow as tf

from bilm.backend.keras_backend import backend
from bilm.backend.settings import portably
from bilm.errors import DataError
from bilm.io import PathLike, atomic, outputs
from bilm.layers.sentence_vectorizer import ids_of_words, split_sentences
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.vocabulary.vocabulary_file import UNK

_FILES = (
    r"README\.md|(saved_model|fingerprint)\.pb|assets|variables(/variables\.(index|data-\d{5}-of-\d{5}))?"
)
# Names of the signatures' tensors, as the graph's file contains them.
_NAMES = (b"lstm_outputs1", b"sequence_len", b"word_emb")


class ServedElmo(tf.Module):
    """The served model: from strings to the vectors of every layer.

    Signature ``default`` takes ``strings`` (batch,), split as by ``str.split``. Signature ``tokens`` takes
    ``tokens``, strings (batch, words), and ``sequence_len``, int32 (batch,). Both return, with zeros for
    padding:

    - ``word_emb`` (batch, words, projection_dim), ``lstm_outputs1`` and so on (batch, words, dim);
    - ``elmo`` (batch, words, dim): the mix of the layers, with the word vectors once for each direction. Its
      variables `layer_weights`, before the softmax, and `gamma` can be trained; at first it is the mean;
    - ``default`` (batch, dim): the mean of ``elmo`` over the words of a sentence.

    Args:
        encoder: encoder of the model.
        vocabulary: vocabulary of a word-level model, else None.
    """

    def __init__(self, encoder: Encoder, vocabulary: Vocabulary | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        # Keras's variables wrap TensorFlow's, which TensorFlow saves.
        self.tensors = [variable.value for variable in encoder.weights]
        self.layer_weights = tf.Variable(tf.zeros(encoder.options.lstm.n_layers + 1))
        self.gamma = tf.Variable(1.0)
        self.ids: tf.lookup.StaticHashTable | None = None
        if vocabulary is not None:
            self._marks = (vocabulary.bos + 1, vocabulary.eos + 1)
            words = list(vocabulary.words)
            entries = tf.lookup.KeyValueTensorInitializer(tf.constant(words), vocabulary.lookup(words))
            self.ids = tf.lookup.StaticHashTable(entries, vocabulary.unk)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="strings")], autograph=False)
    def default(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Embed whole sentences."""
        return self._embed(*split_sentences(strings))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.string, name="tokens"),
            tf.TensorSpec([None], tf.int32, name="sequence_len"),
        ],
        autograph=False,
    )
    def tokens(self, tokens: tf.Tensor, sequence_len: tf.Tensor) -> dict[str, tf.Tensor]:
        """Embed padded words."""
        is_one_a_row = tf.equal(tf.shape(sequence_len)[0], tf.shape(tokens)[0])
        are_inside = tf.reduce_all((sequence_len >= 0) & (sequence_len <= tf.shape(tokens)[1]))
        message = "sequence_len must have a number for each row of tokens, 0 to the words in a row"
        return self._embed(tokens, backend.asserted(sequence_len, is_one_a_row & are_inside, message))

    def _embed(self, words: tf.Tensor, n_words: tf.Tensor) -> dict[str, tf.Tensor]:
        if self.ids is None:
            width = inference.require_characters(self.encoder.options).max_characters_per_token
            ids = inference.add_marks(ids_of_words(words, n_words, width))
        else:
            ids, is_word = self.ids.lookup(words), tf.sequence_mask(n_words, tf.shape(words)[1])
            unknown = is_word & (ids < 0)  # without <UNK> only
            problem = f"not in the vocabulary, which has no {UNK}:", tf.boolean_mask(words, unknown)
            ids = backend.asserted(tf.where(is_word, ids + 1, 0), ~tf.reduce_any(unknown), *problem)
            ids = inference.add_marks(ids, self._marks)
        vectors = inference.word_vectors(self.encoder, ids)
        layers, _ = portably(inference.run_sentences, self.encoder, vectors, n_words + 2)
        layers = tf.stop_gradient(inference.without_marks(layers, n_words + 2))
        elmo = self.gamma * tf.einsum("k,bkwd->bwd", tf.nn.softmax(self.layer_weights), layers)
        divisor = tf.cast(tf.maximum(n_words, 1), elmo.dtype)[:, None]
        lstm = self.encoder.options.lstm
        named = {"word_emb": layers[:, 0, :, : lstm.projection_dim], "elmo": elmo}
        named |= {f"lstm_outputs{i}": layers[:, i] for i in range(1, lstm.n_layers + 1)}
        return named | {"default": tf.reduce_sum(elmo, axis=1) / divisor}


def check_saved_model(
    path: PathLike, overwrite: bool, inputs: Collection[PathLike | int | None] = ()
) -> None:
    """Check that a directory for a SavedModel can be written without losing other files.

    Args:
        path: the directory.
        overwrite: allow a directory that holds a SavedModel written by bilm and nothing else.
        inputs: see `bilm.io.outputs.refuse_inputs`.

    Raises:
        DataError: the directory cannot be written; the message says why.
    """
    if set("[\\") & set(os.path.realpath(path)):
        raise DataError(
            f"{path}: TensorFlow cannot load a SavedModel from a path with [ or \\ in it; give another name"
        )
    outputs.check_output(path, overwrite, inputs, _SAVED_MODEL)


_SAVED_MODEL = outputs.Kind("a SavedModel", outputs.only_files(_FILES, "saved_model.pb", *_NAMES))


def write_saved_model(
    encoder: Encoder, directory: Path, vocabulary: Vocabulary | None = None, overwrite: bool = False
) -> None:
    """Write a SavedModel, whole or not at all.

    Args:
        encoder: encoder of the model.
        directory: the new directory.
        vocabulary: vocabulary of a word-level model, else None.
        overwrite: replace a directory that holds a SavedModel written by bilm and nothing else.

    Raises:
        DataError: the directory exists and must not be replaced, or cannot be written.
    """
    model = ServedElmo(encoder, vocabulary)
    signatures = {"default": model.default, "tokens": model.tokens, "serving_default": model.default}
    errors = [tf.errors.OpError]
    held = atomic.writing(directory, overwrite=overwrite, kind=_SAVED_MODEL, failure=DataError, errors=errors)
    with held as (temporary,):
        tf.saved_model.save(model, str(temporary), signatures=signatures)
