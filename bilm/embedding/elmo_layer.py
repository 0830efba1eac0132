"""ELMo as a Keras layer: ids of sentences in, one or more mixes of the biLM's layers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bilm.backend.keras_backend import BACKEND, Tensor, backend, keras
from bilm.backend.settings import portable
from bilm.errors import OptionsError, require_positive
from bilm.layers.scalar_mix import ScalarMix, require_one_each
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder
from bilm.options import Options
from bilm.options.file import load_inference_options
from bilm.run_directory.model_source import ModelArguments


@keras.saving.register_keras_serializable("bilm")
class Elmo(keras.layers.Layer):
    """A pretrained biLM under trainable mixes of its layers, for the bottom of a Keras model.

    It passes on a mask, so that the layers above ignore padding. The biLM's weights are saved with
    the model; a reloaded model needs neither of the files. All weights are there from the beginning.

    On PyTorch it is a module like others: ``train()`` and ``eval()`` say whether it drops, ``requires_grad``
    of its parameters what is trained. Within a Keras model, Keras's ``training`` decides.

    Args:
        options_file: ``options.json`` that belongs to the weights, or its content. Without it give `model`.
        weight_file: HDF5, as bilm-tf, AllenNLP and ``bilm dump-weights`` write it; None starts from
            random weights.
        num_output_representations: mixes, each with weights of its own.
        trainable: whether to train the biLM too, not only the mixes.
        dropout: rate at which the mixes' values are dropped in training, as AllenNLP drops them.
        do_layer_norm: as for `ScalarMix`.
        keep_sentence_boundaries: give vectors of the two sentence marks too.
        l2_coef: as for `ScalarMix`.
        scalar_mix_parameters: the weights of the layers before the softmax, a number for each layer; the
            mixes are not trained then.
        requires_grad: AllenNLP's name of `trainable`, which it stands for if it is given.
        model: a model by its path, instead of the two files: a folder or a ZIP archive of them, as on
            vectors.nlpl.eu, or a run directory; see `ElmoEmbedder.from_model`.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        OptionsError: the options or an argument are invalid.
        ProcessError: TensorFlow is in its version 1 mode.
        WeightsError: the weights cannot be read or do not fit the options.

    Example:
        >>> from bilm.data.batcher import batch_to_ids
        >>> elmo = Elmo("options.json", "weights.hdf5", num_output_representations=2, dropout=0.5)
        >>> lower, upper = elmo(batch_to_ids([["Time", "flies"], ["Hello"]]))
        >>> upper.shape
        TensorShape([2, 2, 24])
        >>> len(elmo.trainable_weights)  # of each mix the layers' weights and their scale
        4
    """

    def __init__(
        self,
        options_file: str | Path | Mapping[str, Any] | None = None,
        weight_file: str | Path | None = None,
        num_output_representations: int = 1,
        *,
        trainable: bool = False,
        dropout: float = 0.0,
        do_layer_norm: bool = False,
        keep_sentence_boundaries: bool = False,
        l2_coef: float | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        requires_grad: bool | None = None,
        model: str | Path | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        backend.require_ready()
        for name in ("vocab_to_cache", "module"):
            if kwargs.pop(name, None) is not None:  # which is AllenNLP's default
                raise OptionsError(
                    f"{name}: is not supported; give options_file and weight_file alone, which encode each "
                    "distinct word of a batch once"
                )
        super().__init__(**kwargs)
        require_positive(num_output_representations=num_output_representations)
        if not 0.0 <= dropout < 1.0:
            raise OptionsError(f"dropout is {dropout}; it must be at least 0 and less than 1")
        if (model is None) == (options_file is None) or (model is not None and weight_file is not None):
            raise OptionsError("give options_file and weight_file, or model, which has both")
        if model is not None:
            source = ModelArguments(model).open()
            options = source.options
        elif isinstance(options_file, Mapping):
            options = Options.from_json({"bidirectional": True} | dict(options_file))
        else:
            options = load_inference_options(cast("str | Path", options_file))
        require_one_each("scalar_mix_parameters", scalar_mix_parameters, options.lstm.n_layers + 1)
        if model is not None:
            self.encoder = inference.make_encoder(options, source.arrays(), source.source)
        elif weight_file is not None:
            self.encoder = inference.read_encoder(options, weight_file)
        elif options.char_cnn is None and options.n_tokens_vocab is None:
            raise OptionsError(
                "n_tokens_vocab: missing; a word-level model, made without weight_file, needs the size of "
                "its vocabulary"
            )
        else:
            self.encoder = Encoder(options)
            self.encoder.build()
        if options.char_cnn is None:
            self._ids = inference.IdKind(self.encoder.options.n_tokens_vocab or 0)
        else:
            width = options.char_cnn.max_characters_per_token
            self._ids = inference.IdKind.characters(width, has_marks=False)
        self.encoder.trainable = trainable if requires_grad is None else requires_grad
        self.mixes = [
            ScalarMix(
                l2_coef,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
                name=f"mix_{i}",
            )
            for i in range(num_output_representations)
        ]
        for mix in self.mixes:
            if not mix.built:
                mix.build((None, options.lstm.n_layers + 1, None, self.dim))
        self.dropout = backend.Dropout(dropout)
        self.do_layer_norm = do_layer_norm
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.l2_coef = l2_coef
        self.supports_masking = True
        self.built = True
        if BACKEND == "tensorflow":
            self.supports_jit = False  # the distinct words of a batch have no size known beforehand
        elif BACKEND == "torch":
            self.named_parameters()  # makes Keras register the weights, which the state_dict has from here on

    @property
    def dim(self) -> int:
        """Width of the result."""
        return self.encoder.options.n_directions * self.encoder.options.lstm.projection_dim

    def get_output_dim(self) -> int:
        """`dim`, by AllenNLP's name."""
        return self.dim

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Do nothing: the weights are made with the layer."""

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Check the ids, then as any layer; `call` has the arguments.

        Raises:
            DataError: the ids are not those of the model, see `bilm.models.sentence_encoder.IdKind`.
        """
        # Here and not in `call`, before Keras makes floats of another type of them; and what `call` raises,
        # Keras adds all arguments to.
        return super().__call__(self._ids.checked(inputs), *args, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = None) -> Any:  # noqa: ANN401
        """Embed a batch of sentences; nothing is carried from one to another.

        Args:
            inputs: character ids without sentence marks (batch, words, max_characters_per_token), of
                `bilm.data.batcher.batch_to_ids` or `SentenceVectorizer`, with further dimensions between
                the first two if need be; for a word-level model the ids of
                `bilm.data.batcher.TokenBatcher`, (batch, words + 2), with the marks. 0 is padding.
            training: whether to drop. None leaves that to the Keras model that the layer is in, and without
                one, on PyTorch, to ``train()`` and ``eval()``.

        Returns:
            Shape (batch, words, dim), or (batch, words + 2, dim) with the sentence boundaries, and the
            further dimensions as they were; a list of these if there are several mixes. There is at
            least one word, of padding if need be, since recurrent layers of Keras fail without.
        """
        if training is None and BACKEND == "torch" and self._get_call_context().entry_layer is self:
            training = self.training
        ids = inputs
        if len(inputs.shape) > self._n_inner + 1:
            ids = keras.ops.reshape(inputs, (-1, *keras.ops.shape(inputs)[-self._n_inner :]))
        if self.encoder.char_cnn is not None:
            ids = inference.add_marks(ids)
        mask = inference.token_mask(ids)
        lengths = inference.count_tokens(mask)
        words = inference.word_vectors(self.encoder, ids)
        # The graph is the user's, and so are the runtime and the sizes of the batches.
        with portable():
            layers, _ = inference.run_sentences(self.encoder, words, lengths)
        # Else the gradient of all its variables is computed, and dropped. PyTorch asks the parameters.
        if not self.encoder.trainable and BACKEND != "torch":
            layers = keras.ops.stop_gradient(layers)
        mixed = [self._finish(mix(layers, mask=mask), lengths, inputs, training) for mix in self.mixes]
        return mixed if len(mixed) > 1 else mixed[0]

    def _finish(self, mixed: Tensor, lengths: Tensor, inputs: Tensor, training: bool | None) -> Tensor:
        """From (rows, words + 2, dim) to what is asked for, dropped out, in the dimensions of the inputs."""
        if not self.keep_sentence_boundaries:
            mixed = _at_least_one(inference.without_marks(mixed[:, None], lengths)[:, 0], axis=1)
        ops = keras.ops
        shape = (*ops.shape(inputs)[: -self._n_inner], *ops.shape(mixed)[1:])
        return self.dropout(ops.reshape(mixed, shape), training=training)

    def compute_mask(self, inputs: Tensor, previous_mask: Any = None) -> Any:  # noqa: ANN401
        """Where there are words, bool (batch, words), for each mix."""
        mask = keras.ops.not_equal(inputs, 0)
        if self.encoder.char_cnn is not None:
            mask = keras.ops.any(mask, axis=-1)
        mask = keras.ops.cast(mask, "int32")
        if not self.keep_sentence_boundaries:
            mask = _at_least_one(mask if self.encoder.char_cnn is not None else mask[:, 2:], axis=-1)
        elif self.encoder.char_cnn is not None:  # a row has two tokens more
            around = [[0, 0]] * (len(mask.shape) - 1) + [[2, 0]]
            mask = keras.ops.pad(mask, around, constant_values=1)
        masks = [keras.ops.cast(mask, "bool")] * len(self.mixes)
        return masks if len(masks) > 1 else masks[0]

    @property
    def _n_inner(self) -> int:
        """Dimensions of the ids of a sentence."""
        return 1 if self.encoder.char_cnn is None else 2

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:  # noqa: ANN401
        """Shape of the result."""
        self._ids.check_shape(tuple(input_shape))
        outer, n_steps = input_shape[: -self._n_inner], input_shape[-self._n_inner]
        if n_steps is not None:
            has_marks = self.encoder.char_cnn is None
            n_steps = max(n_steps + 2 * (self.keep_sentence_boundaries - has_marks), 1)
        shapes = [(*outer, n_steps, self.dim)] * len(self.mixes)
        return shapes if len(shapes) > 1 else shapes[0]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Elmo:
        """Make one of what `get_config` gives, which names no file: what is read from a file opens no other.

        Raises:
            OptionsError: the configuration names a file, or has no options.
        """
        names = [name for name in ("weight_file", "model") if config.get(name) is not None]
        if names or not isinstance(config.get("options_file"), Mapping):
            raise OptionsError(
                f"{' and '.join(names) or 'options_file'}: the configuration of a saved Elmo has the options "
                "themselves and names no file; make the layer with Elmo(...) and load the weights into it"
            )
        return cls(**config)

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
            "scalar_mix_parameters": self.mixes[0].initial_scalar_parameters,
        }


def _at_least_one(values: Any, axis: int) -> Any:  # noqa: ANN401
    """Values of words along an axis; with a zero if there are none."""
    rank = len(values.shape)
    padding, first, others = [[0, 0]] * rank, [slice(None)] * rank, [slice(None)] * rank
    padding[axis], first[axis], others[axis] = [0, 1], slice(0, 1), slice(1, None)
    padded = keras.ops.pad(values, padding)
    return keras.ops.concatenate([padded[tuple(first)], values[tuple(others)]], axis=axis)
