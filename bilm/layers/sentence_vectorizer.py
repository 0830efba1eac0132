"""Conversion of strings to character ids inside a graph."""

from typing import Any

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import infers_shapes, keras, require_ready
from bilm.errors import DataError, OptionsError, require_positive
from bilm.io.lines import WHITE_SPACE
from bilm.options.parameters import UnicodeForm
from bilm.vocabulary.vocabulary import BEGIN_SENTENCE, BEGIN_WORD, END_SENTENCE, END_WORD, PADDING, mark_row
from bilm.vocabulary.vocabulary_file import BOS, EOS


def ids_of_words(words: tf.Tensor, lengths: tf.Tensor, width: int) -> tf.Tensor:
    """Convert padded words to character ids, like `bilm.data.batcher.batch_to_ids`.

    Args:
        words: UTF-8 strings (rows, words); the padding after the end of a row is ignored.
        lengths: int32 (rows,), words in each row.
        width: characters per word, the two word marks included.

    Returns:
        int32 (rows, words, width): character ids + 1, 0 for padding.
    """
    shape, words = tf.shape(words), tf.reshape(words, [-1])
    n_bytes = tf.minimum(tf.strings.length(words), width - 2)[:, None]
    characters = tf.cast(tf.io.decode_raw(words, tf.uint8, fixed_length=width - 2), tf.int32)
    rows = tf.concat([tf.fill([tf.shape(words)[0], 1], BEGIN_WORD), characters], axis=1)
    rows = tf.pad(rows, [[0, 0], [0, 1]])
    columns = tf.range(width)[None]
    rows = tf.where(columns <= n_bytes, rows, tf.where(columns == n_bytes + 1, END_WORD, PADDING))
    for word, mark in ((BOS, BEGIN_SENTENCE), (EOS, END_SENTENCE)):
        rows = tf.where((words == word)[:, None], tf.constant(mark_row(mark, width))[None], rows)
    ids = tf.reshape(rows + 1, [shape[0], shape[1], width])
    return tf.where(tf.sequence_mask(lengths, shape[1])[..., None], ids, 0)


def split_sentences(sentences: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Split sentences like ``str.split`` at `bilm.io.lines.WHITE_SPACE`.

    Returns:
        Strings (rows, words), padded with empty ones, and int32 (rows,), the number of words in each row.
    """
    words = tf.strings.split(tf.strings.regex_replace(sentences, f"[{WHITE_SPACE}]", " "))
    return words.to_tensor(default_value=""), tf.cast(words.row_lengths(), tf.int32)


@keras.saving.register_keras_serializable("bilm")
class SentenceVectorizer(keras.layers.Layer):
    """Layer from tokenised sentences, as strings, to character ids; replaces Keras's ``TextVectorization``.

    Args:
        max_characters: characters per word, the two word marks included; the model's
            ``max_characters_per_token``.
        unicode_form: normal form of the words, the model's ``unicode_form``; None to take them as they are.
            Python normalises the strings, so a saved graph with a form runs only where bilm is.
        **kwargs: arguments of `keras.layers.Layer`.

    Raises:
        OptionsError: `max_characters` is less than 3.

    Example:
        >>> SentenceVectorizer()(tf.constant(["Time flies", "Hello"])).shape
        TensorShape([2, 2, 50])
    """

    def __init__(self, max_characters: int = 50, unicode_form: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(**kwargs)
        require_positive(max_characters=max_characters)
        if max_characters < 3:
            raise OptionsError(f"max_characters is {max_characters}; it must be at least 3")
        self.max_characters = int(max_characters)  # NumPy's integers cannot be saved
        self.unicode_form = None if unicode_form is None else UnicodeForm(unicode_form)
        self.supports_jit = False

    @property
    def compute_dtype(self) -> str:
        """Data type of the input that `keras.Sequential` makes for its first layer."""
        return "string"

    variable_dtype = compute_dtype  # equal, or Keras would cast

    def __call__(self, sentences: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Check the sentences and convert them, see `call`.

        Raises:
            DataError: the sentences are not strings (batch,) or (batch, 1), as Keras's ``TextVectorization``
                takes them.
            ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
        """
        require_ready()
        try:
            if not isinstance(sentences, keras.KerasTensor) and not tf.is_tensor(sentences):
                sentences = tf.convert_to_tensor(sentences)
        except (TypeError, ValueError) as error:
            raise DataError(f"sentences must be strings: {str(error).splitlines()[0]}") from error
        if sentences.dtype != "string" and infers_shapes():
            sentences = tf.as_string(sentences)  # Keras rebuilds a saved model of a user's class with floats
        if sentences.dtype != "string":
            name = getattr(sentences.dtype, "name", sentences.dtype)
            raise DataError(f"sentences must be strings, with spaces between their words, got {name}")
        shape = sentences.shape
        rank = shape.rank if isinstance(shape, tf.TensorShape) else len(shape)
        if rank is not None and (rank > 2 or (rank == 2 and shape[1] != 1)):
            raise DataError(
                f"sentences must be (batch,) or (batch, 1), one string each, got {tuple(shape)}; "
                "join the words of a sentence with spaces"
            )
        return super().__call__(sentences, *args, **kwargs)

    def call(self, sentences: tf.Tensor) -> tf.Tensor:
        """Split sentences into words and convert these to character ids.

        Args:
            sentences: strings (batch,) or (batch, 1), words separated by whitespace as for ``str.split``.

        Returns:
            int32 (batch, words, max_characters): character ids + 1, 0 for padding, without sentence
            marks, like the result of `bilm.data.batcher.batch_to_ids`.
        """
        sentences = tf.reshape(sentences, [-1])
        if self.unicode_form is not None:
            sentences = tf.numpy_function(self._in_form, [sentences], tf.string, stateful=False)
            sentences.set_shape([None])
        words, lengths = split_sentences(sentences)
        return ids_of_words(words, lengths, self.max_characters)

    def _in_form(self, sentences: np.ndarray) -> np.ndarray:
        form: Any = self.unicode_form
        texts = (form.of_text(sentence.decode("utf-8", "replace")) for sentence in sentences)
        return np.array([text.encode() for text in texts], object)

    def compute_output_spec(self, sentences: keras.KerasTensor) -> keras.KerasTensor:
        """Return the shape and dtype of the ids."""
        return keras.KerasTensor((sentences.shape[0], None, self.max_characters), dtype="int32")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        form = self.unicode_form and self.unicode_form.value
        return super().get_config() | {"max_characters": self.max_characters, "unicode_form": form}
