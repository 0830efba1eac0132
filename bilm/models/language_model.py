"""The bidirectional language model: encoder, softmax and loss."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.backend.gradients import with_gradient
from bilm.backend.keras_backend import keras
from bilm.data.pipeline import Batch
from bilm.errors import OptionsError
from bilm.layers.softmax import VocabularySoftmax
from bilm.models.encoder import DIRECTIONS, Encoder, States
from bilm.options import Options, Precision

_LARGE_WINDOW = 1 << 26
"""Bytes of a layer's gates above which the directions run one after the other: products of that size keep
all cores busy, and the backward pass needs its memory only once."""

_LEAST_SQUARE = 1e-4  # of the length of a softmax row, so that the gradient of a shorter one is limited


class WindowLosses(NamedTuple):
    """Sums over the tokens of one window; the caller adds them up and divides once.

    Attributes:
        sums: shape (directions,), negative log-likelihood in nats.
        states: LSTM states after the window.
        penalty: what training adds to the mean loss: activation regularisation, the mean over the
            directions, and the tying of word vectors; 0 without a dropout seed.
    """

    sums: tf.Tensor
    states: States
    penalty: tf.Tensor


def _in_turn(done: tf.Tensor, waiting: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return both unchanged, but make `waiting` wait for `done`, and in the gradient `done` for `waiting`."""

    def forward(done: tf.Tensor, waiting: tf.Tensor) -> tuple[tuple, tuple]:
        with tf.control_dependencies([done]):
            return (done, tf.identity(waiting)), ()

    def backward(_: tuple, d_done: tf.Tensor, d_waiting: tf.Tensor) -> list[tf.Tensor]:
        with tf.control_dependencies([d_waiting]):
            return [tf.identity(d_done), d_waiting]

    return with_gradient(forward, backward, done, waiting)


@keras.saving.register_keras_serializable("bilm")
class LanguageModel(keras.Model):
    """An ELMo biLM, complete with its weights when constructed.

    A call on ids returns next-word logits. Training and evaluation use `losses`, which carries the state
    and never holds the logits of a whole vocabulary at once.

    Args:
        options: hyper-parameters, or their JSON form, with ``n_tokens_vocab``.
        precision: precision of the factors of matrix products, see `bilm.options.Precision`. Losses, states
            and variables are always float32.
        **kwargs: arguments of `keras.Model`.

    Raises:
        OptionsError: the options lack the size of the vocabulary, or there is no such precision.

    Example:
        >>> model = LanguageModel(
        ...     {"lstm": {"dim": 16, "projection_dim": 8}, "bidirectional": True, "n_tokens_vocab": 100}
        ... )
        >>> ids = np.array([[0, 5, 7]])
        >>> logits = model({"token_ids": ids, "token_ids_reverse": ids})
        >>> logits["forward"].shape, logits["backward"].shape
        (TensorShape([1, 3, 100]), TensorShape([1, 3, 100]))
    """

    def __init__(
        self,
        options: Options | Mapping[str, Any],
        precision: Precision | str = Precision.FLOAT32,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**{"name": "language_model", "dtype": "float32", **kwargs})
        self.supports_jit = False  # XLA cannot compile the gradient of a loop over steps
        self.options = options if isinstance(options, Options) else Options.from_json(options)
        if self.options.n_tokens_vocab is None:
            raise OptionsError("n_tokens_vocab: missing; a language model needs the size of its vocabulary")
        self.encoder = Encoder(self.options, precision)
        dim, dtype = self.options.lstm.projection_dim, self.encoder.precision.product_dtype
        scale = self.options.softmax_init_scale
        self.softmax = VocabularySoftmax(self.options.n_tokens_vocab, dim, scale, dtype)
        with keras.name_scope(self.name, caller=self, override_parent=""):  # the paths name optimizer states
            self.build()

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Create all weights; their shapes follow from the options alone."""
        if self.encoder.built:
            return
        self.encoder.build()
        if self.options.share_embedding_softmax:
            self.softmax.kernel = self.encoder.embedding
        self.softmax.build()
        self.built = True

    def named_weights(self) -> dict[str, keras.Variable]:
        """Return the variables by bilm's names, in the order of `weights`; see `Encoder.named_weights`."""
        own = [] if self.options.share_embedding_softmax else [self.softmax.kernel]
        own.append(self.softmax.bias)
        return self.encoder.named_weights() | {f"softmax/{leaf.name}": leaf for leaf in own}

    def start_softmax_biases(self, word_counts: np.ndarray) -> None:
        """Set the softmax biases to the log of smoothed relative word counts, shape (n_tokens_vocab,)."""
        smoothed = np.asarray(word_counts, np.float64) + 1.0
        self.softmax.bias.assign(np.log(smoothed / smoothed.sum()).astype(np.float32))

    def start_softmax_rows(self, vectors: np.ndarray) -> None:
        """Set the softmax rows to vectors, (n_tokens_vocab, projection_dim), except where these are zeros."""
        is_given = np.any(vectors, axis=1, keepdims=True)
        self.softmax.kernel.assign(tf.where(is_given, vectors, self.softmax.kernel.value))

    def zero_states(self, n_rows: int | tf.Tensor) -> States:
        """Return the states before the first token: zeros."""
        return self.encoder.zero_states(n_rows)

    def losses(
        self,
        inputs: Batch,
        states: States,
        negatives: Sequence[tuple[tf.Tensor, tf.Tensor]] = (),
        dropout_seed: tf.Tensor | None = None,
        tying_share: float | tf.Tensor = 1.0,
    ) -> WindowLosses:
        """Compute the losses of one window.

        Args:
            inputs: the window.
            states: states before the window.
            negatives: (ids, n_draws) by direction for the sampled softmax, see
                `bilm.training.negative_sampling.Negatives`; empty for the full softmax.
            dropout_seed: int32 (2,) in training; None turns dropout off.
            tying_share: share of ``word_vector_tying`` and ``softmax_row_tying`` that applies.
        """
        types = self.encoder.encode_types(inputs.type_characters)
        words = tf.gather(types, inputs.token_types)
        n_tokens = words.shape[1:3].num_elements() or 0  # 0 if unknown
        n_gate_bytes = 4 * 4 * self.options.lstm.dim * n_tokens  # per layer
        sums: list[tf.Tensor] = []
        penalties: list[tf.Tensor] = []
        after = []
        for direction, own_words in enumerate(tf.unstack(words, self.options.n_directions)):
            if sums and dropout_seed is not None and n_gate_bytes > _LARGE_WINDOW:
                sums[-1], own_words = _in_turn(sums[-1], own_words)
            outputs, state = self.encoder.run_direction(direction, own_words, states[direction], dropout_seed)
            hidden = self.encoder.drop(outputs[-1], direction, len(outputs) + 1, dropout_seed)
            if dropout_seed is not None:
                penalties.append(self._penalty(outputs[-1], hidden))
            hidden = tf.reshape(hidden, [-1, self.options.lstm.projection_dim])
            targets = tf.reshape(inputs.targets[direction], [-1])
            if negatives:
                losses = self.softmax.sampled_losses(hidden, targets, *negatives[direction])
            else:
                losses = self.softmax.full_losses(hidden, targets)
            sums.append(tf.reduce_sum(losses))
            after.append(state)
        penalty = tf.zeros([])
        if dropout_seed is not None:
            penalty = tf.reduce_mean(penalties)
            penalty += tying_share * self._tying_penalty(types, inputs.type_words)
        return WindowLosses(tf.stack(sums), tuple(after), penalty)

    def _penalty(self, output: tf.Tensor, dropped: tf.Tensor) -> tf.Tensor:
        """Compute the activation regularisation of one direction: Merity et al. 2017 (arXiv:1708.01009).

        .. code-block:: text

            alpha mean((m * h_t)^2) + beta mean((h_t - h_{t+1})^2)

        The means are over all tokens of the window and all units; m is the dropout mask.

        Args:
            output: shape (steps, rows, projection_dim), output of the top layer, residual included.
            dropped: the same after dropout, the input of the softmax.
        """
        alpha, beta = self.options.activation_regularization, self.options.temporal_activation_regularization
        penalty = tf.zeros([])
        if alpha:
            penalty += alpha * tf.reduce_mean(tf.square(dropped))
        if beta and output.shape[0] > 1:  # one step has no change
            penalty += beta * tf.reduce_mean(tf.square(output[1:] - output[:-1]))
        return penalty

    def _tying_penalty(self, types: tf.Tensor, type_words: tf.Tensor) -> tf.Tensor:
        """Compute the weighted mean of 1 - cosine similarity of word vectors and softmax rows.

        .. code-block:: text

            a mean(1 - cos(x, [y])) + b mean(1 - cos([x], y))

        x is the vector of a word, y its softmax row, and what is in brackets has no gradient. This ties the
        two softly, as `share_embedding_softmax` does wholly for word input (Press and Wolf 2017,
        arXiv:1608.05859).

        Args:
            types: shape (words, projection_dim), vectors of distinct words.
            type_words: int32 (words,), their word ids; words with -1 do not count.
        """
        of_words, of_rows = self.options.word_vector_tying, self.options.softmax_row_tying
        penalty = tf.zeros([])
        if not (of_words or of_rows) or self.encoder.char_cnn is None:
            return penalty
        is_known = tf.cast(type_words >= 0, tf.float32)
        rows = tf.gather(self.softmax.kernel.value, tf.maximum(type_words, 0))
        x, y = tf.math.l2_normalize(types, 1), tf.math.l2_normalize(rows, 1, _LEAST_SQUARE)
        for weight, product in ((of_words, x * tf.stop_gradient(y)), (of_rows, tf.stop_gradient(x) * y)):
            if weight:  # a gradient of zeros would still decay the rows
                distances = is_known * (1.0 - tf.reduce_sum(product, axis=1))
                penalty += weight * tf.math.divide_no_nan(tf.reduce_sum(distances), tf.reduce_sum(is_known))
        return penalty

    def call(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Compute the logits of each next word, from zero states and without dropout.

        Args:
            inputs: batch of `bilm.data.lm_datasets.BidirectionalLMDataset`: ``tokens_characters`` (rows,
                steps, max_characters), or ``token_ids`` (rows, steps) for a word-level model, and the same
                with ``_reverse`` for the backward direction, its tokens reversed.

        Returns:
            ``forward`` and, if bidirectional, ``backward``: (rows, steps, n_tokens_vocab).
        """
        logits = {}
        for direction, suffix in zip(range(self.options.n_directions), ("", "_reverse"), strict=False):
            if self.encoder.char_cnn is None:
                words = tf.gather(self.encoder.encode_types(), inputs["token_ids" + suffix])
            else:
                words = self.encoder.char_cnn(inputs["tokens_characters" + suffix])
            words = tf.transpose(words, [1, 0, 2])  # (steps, rows, dim)
            states = self.zero_states(tf.shape(words)[1])
            outputs, _ = self.encoder.run_direction(direction, words, states[direction])
            logits[DIRECTIONS[direction]] = self.softmax(tf.transpose(outputs[-1], [1, 0, 2]))
        return logits

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            "name": self.name,
            "trainable": self.trainable,
            "options": self.options.to_json(),
            "precision": self.encoder.precision.value,
        }
