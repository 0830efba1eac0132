"""ELMo as a Keras layer: ids of sentences in, one or more mixes of the biLM's layers out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm import inference
from bilm.arguments import require_positive
from bilm.encoder import Encoder
from bilm.keras_backend import keras
from bilm.layers.lstm_loop import portable
from bilm.layers.scalar_mix import ScalarMix
from bilm.options import Options


@keras.saving.register_keras_serializable("bilm")
class Elmo(keras.layers.Layer):
    """A pretrained biLM under trainable mixes of its layers, for the bottom of a Keras model.

    It carries a mask, so that the layers above leave padding out. The biLM's weights are saved with
    the model; a reloaded model needs neither of the files.

    Args:
        options_file: ``options.json`` that goes with the weights, or its content.
        weight_file: HDF5, as bilm-tf, AllenNLP and ``bilm dump-weights`` write it; None starts from
            random weights.
        num_output_representations: mixes, each with weights of its own.
        trainable: whether training changes the biLM too, and not the mixes alone.
        dropout: rate at which the mixes' values are dropped in training.
        do_layer_norm: as for `ScalarMix`.
        keep_sentence_boundaries: give vectors of the two sentence marks too.
        l2_coef: as for `ScalarMix`.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        OptionsError: the options or an argument are invalid.
        WeightsError: the weights cannot be read or do not fit the options.

    Example:
        >>> from bilm.batching import batch_to_ids
        >>> elmo = Elmo("options.json", "weights.hdf5", num_output_representations=2, dropout=0.5)
        >>> lower, upper = elmo(batch_to_ids([["Time", "flies"], ["Hello"]]))
        >>> upper.shape
        TensorShape([2, 2, 24])
        >>> len(elmo.trainable_weights)  # of each mix the layers' weights and their scale
        4
    """

    def __init__(
        self,
        options_file: str | Path | Mapping[str, Any],
        weight_file: str | Path | None = None,
        num_output_representations: int = 1,
        *,
        trainable: bool = False,
        dropout: float = 0.0,
        do_layer_norm: bool = False,
        keep_sentence_boundaries: bool = False,
        l2_coef: float | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        require_positive(num_output_representations=num_output_representations)
        options = (
            Options.from_json({"bidirectional": True} | dict(options_file))
            if isinstance(options_file, Mapping)
            else inference.read_options(options_file)
        )
        if weight_file is None:
            self.encoder = Encoder(options, name="encoder")
            self.encoder.build()
        else:
            self.encoder = inference.read_encoder(options, weight_file)
        self.encoder.trainable = trainable
        self.mixes = [
            ScalarMix(l2_coef, do_layer_norm=do_layer_norm, name=f"mix_{i}")
            for i in range(num_output_representations)
        ]
        self.dropout = keras.layers.Dropout(dropout)
        self.do_layer_norm = do_layer_norm
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.l2_coef = l2_coef
        self.supports_masking = True
        self.supports_jit = False  # the distinct words of a batch have no size known beforehand

    @property
    def dim(self) -> int:
        """Width of the result."""
        return self.encoder.options.n_directions * self.encoder.options.lstm.projection_dim

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Create the weights of the mixes; the biLM has its own already."""
        for mix in self.mixes:
            mix.build((None, self.encoder.options.lstm.n_layers + 1, None, self.dim))
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> Any:  # noqa: ANN401
        """Embed a batch of sentences; nothing is carried from one to another.

        Args:
            inputs: character ids without sentence marks (batch, words, max_characters_per_token), of
                `bilm.batching.batch_to_ids` or `SentenceVectorizer`; for a word-level model the ids of
                `bilm.batching.TokenBatcher`, (batch, words + 2), with the marks. 0 is padding.
            training: whether to drop.

        Returns:
            Shape (batch, words, dim), or (batch, words + 2, dim) with the sentence boundaries; a list
            of these if there are several mixes.
        """
        ids = self._with_marks(inputs)
        lengths = tf.reduce_sum(tf.cast(inference.token_mask(ids), tf.int32), axis=1)
        words = inference.word_vectors(self.encoder, ids)
        with portable():  # the graph is the user's, and so are the runtime and the sizes of the batches
            layers = inference.run_sentences(self.encoder, words, lengths).layers
        if not self.encoder.trainable:  # else the gradient of all its variables is computed, and dropped
            layers = tf.stop_gradient(layers)
        if not self.keep_sentence_boundaries:
            layers = inference.without_marks(layers, lengths)
        mask = self._mask(inputs)
        mixed = [self.dropout(mix(layers, mask=mask), training=training) for mix in self.mixes]
        return mixed if len(mixed) > 1 else mixed[0]

    def compute_mask(self, inputs: tf.Tensor, previous_mask: Any = None) -> Any:  # noqa: ANN401
        """Where there are words, bool (batch, words), for each mix."""
        masks = [self._mask(inputs)] * len(self.mixes)
        return masks if len(masks) > 1 else masks[0]

    def _with_marks(self, inputs: tf.Tensor) -> tf.Tensor:
        ids = tf.cast(inputs, tf.int32)
        return ids if self.encoder.char_cnn is None else inference.add_marks(ids)

    def _mask(self, inputs: Any) -> Any:  # noqa: ANN401
        """Where there are words, in operations that are good for symbolic tensors too."""
        mask = keras.ops.cast(keras.ops.not_equal(inputs, 0), "int32")
        if self.encoder.char_cnn is not None:
            mask = keras.ops.max(mask, axis=-1)
            if self.keep_sentence_boundaries:  # a row has two tokens more
                mask = keras.ops.pad(mask, [[0, 0], [2, 0]], constant_values=1)
        elif not self.keep_sentence_boundaries:
            mask = mask[:, 2:]
        return keras.ops.cast(mask, "bool")

    def _output_shapes(self, input_shape: tuple[int | None, ...]) -> list[tuple[int | None, ...]]:
        n_steps = input_shape[1]
        if n_steps is not None:
            has_marks = self.encoder.char_cnn is None
            n_steps += 2 * (self.keep_sentence_boundaries - has_marks)
        return [(input_shape[0], n_steps, self.dim)] * len(self.mixes)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:  # noqa: ANN401
        """Shape of the result."""
        shapes = self._output_shapes(input_shape)
        return shapes if len(shapes) > 1 else shapes[0]

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, the options in place of their file and no weights."""
        options = self.encoder.options
        content = options.to_inference_json() | {"bidirectional": options.bidirectional}
        if options.char_cnn is None:
            content["n_tokens_vocab"] = options.n_tokens_vocab
        return super().get_config() | {
            "options_file": content,
            "weight_file": None,
            "num_output_representations": len(self.mixes),
            "trainable": self.encoder.trainable,
            "dropout": self.dropout.rate,
            "do_layer_norm": self.do_layer_norm,
            "keep_sentence_boundaries": self.keep_sentence_boundaries,
            "l2_coef": self.l2_coef,
        }
