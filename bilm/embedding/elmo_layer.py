"""ELMo as a Keras layer: from ids of sentences to one or more mixes of the biLM's layers."""

import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, cast

from bilm.backend import keras_backend
from bilm.backend.keras_backend import BACKEND, Tensor, backend, keras
from bilm.backend.settings import portably
from bilm.errors import OptionsError, WeightsError, checked, require_positive
from bilm.io import PathLike
from bilm.layers.scalar_mix import ScalarMix
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder
from bilm.options import Options
from bilm.options.options_file import load_inference_options, with_directions
from bilm.run_directory.model_source import ModelArguments
from bilm.weights import distribution, dump, hdf5_file
from bilm.weights.arrays import as_weights
from bilm.weights.names import dump_names


@keras.saving.register_keras_serializable("bilm")
class Elmo(backend.Layer):
    """A pretrained biLM with trainable mixes of its layers, the first layer of a Keras model.

    It takes the ids of `batch_to_ids` or `SentenceVectorizer`, and passes on a mask, so that later layers
    ignore padding. The biLM's weights are saved with the Keras model, which can be reloaded without the
    original files. All weights exist from the start. A clone in the same process, as of
    ``keras.models.clone_model``, has the biLM's weights and new mixes.

    Args:
        options_file: ``options.json`` of the weights, its content or `Options`; alternatively, give `model`.
        weight_file: weights, as for `ElmoEmbedder`; None for random weights.
        num_output_representations: number of mixes, each with its own weights.
        requires_grad: AllenNLP's name of `trainable`, which it overrides.
        do_layer_norm: see `ScalarMix`.
        dropout: dropout rate of the mixes' values in training, as in AllenNLP; 0 by default.
        vocab_to_cache: refused unless empty; keeps AllenNLP's place among the arguments.
        keep_sentence_boundaries: return vectors of the two sentence marks too.
        scalar_mix_parameters: one number per layer, the layers' weights before the softmax; the mixes are
            then not trained.
        module: refused unless empty; keeps AllenNLP's place among the arguments.
        trainable: train the biLM too, not only the mixes; later, set `encoder.trainable`.
        l2_coef: see `ScalarMix`.
        model: path of a model, instead of the two files; see `ElmoEmbedder.from_model`.
        **kwargs: arguments of `keras.layers.Layer`.

    Raises:
        BilmError: a file cannot be read, the files do not fit each other, an argument is invalid, TensorFlow
            is in its version 1 mode, or the process was forked.

    Example:
        >>> from bilm.data.batcher import batch_to_ids
        >>> elmo = Elmo("options.json", "weights.hdf5", num_output_representations=2, dropout=0.5)
        >>> lower, upper = elmo(batch_to_ids([["Time", "flies"], ["Hello"]]))
        >>> upper.shape
        TensorShape([2, 2, 24])
        >>> len(elmo.trainable_weights)  # the layers' weights and their scale, for each mix
        4
    """

    default_dropout = 0.0
    _calls: ClassVar = threading.local()  # `layer`: the one that the thread calls
    _living = weakref.WeakValueDictionary[str, "Elmo"]()  # the originals of clones, by key

    @checked
    def __init__(
        self,
        options_file: PathLike | Mapping[str, Any] | Options | None = None,
        weight_file: PathLike | None = None,
        num_output_representations: int = 1,
        requires_grad: bool | None = None,
        do_layer_norm: bool = False,
        dropout: float | None = None,
        vocab_to_cache: Any = None,  # noqa: ANN401
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: Any = None,  # noqa: ANN401
        *,
        trainable: bool = False,
        l2_coef: float | None = None,
        model: PathLike | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        for name, value in {"vocab_to_cache": vocab_to_cache, "module": module}.items():
            if value:  # AllenNLP's configurations have an empty list
                raise OptionsError(
                    f"{name}: is not supported; give options_file and weight_file alone (each distinct word "
                    "of a batch is encoded once)"
                )
        super().__init__(**kwargs)
        require_positive(num_output_representations=num_output_representations)
        dropout = self.default_dropout if dropout is None else dropout
        if not 0.0 <= dropout < 1.0:
            raise OptionsError(f"dropout is {dropout}; it must be at least 0 and less than 1")
        if (model is None) == (options_file is None) or (model is not None and weight_file is not None):
            raise OptionsError("give options_file and weight_file, or model")
        if model is not None:
            source = ModelArguments(model).open()
            options = source.options
        elif isinstance(options_file, Options):
            options = options_file
        elif isinstance(options_file, Mapping):
            options = Options.from_json(with_directions(options_file, for_inference=True))
        else:
            options = load_inference_options(cast("str | Path", options_file))
        n_layers = options.lstm.n_layers + 1
        if scalar_mix_parameters is not None and len(scalar_mix_parameters) != n_layers:
            raise OptionsError(
                f"scalar_mix_parameters: {len(scalar_mix_parameters)} numbers, but the model has {n_layers} "
                "layers; give one per layer"
            )
        if model is not None:
            self.encoder = inference.make_encoder(options, source.arrays(), source.source)
        elif weight_file is not None:
            arrays = distribution.find_weights(weight_file).read(dump_names(options))
            self.encoder = inference.make_encoder(options, arrays, str(weight_file))
        elif options.char_cnn is None and options.n_tokens_vocab is None:
            raise OptionsError(
                "n_tokens_vocab: missing; a word-level model, made without weight_file, needs the size of "
                "its vocabulary"
            )
        else:
            self.encoder = Encoder(options)
            self.encoder.build()
        self._ids = inference.IdKind.from_options(self.encoder.options, has_marks=False)
        self.encoder.trainable = trainable if requires_grad is None else requires_grad
        self.mixes = [
            ScalarMix(
                l2_coef=l2_coef,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
                name=f"mix_{i}",
                dtype=self.dtype_policy,
            )
            for i in range(num_output_representations)
        ]
        for mix in self.mixes:
            if not mix.built:
                mix.build((None, n_layers, None, self.dim))
        self.dropout = backend.Dropout(dropout, dtype=self.dtype_policy)
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.supports_masking = True
        self.built = True
        if BACKEND == "tensorflow":
            self.supports_jit = False  # the number of distinct words in a batch is not known in advance
            self._tensors = backend.trackable(self.weights)
        elif BACKEND == "torch":
            self.named_parameters()  # makes Keras register the weights for the state_dict
        self._key = uuid.uuid4().hex
        self._living[self._key] = self

    @property
    def dim(self) -> int:
        """Width of the result."""
        return self.encoder.options.n_directions * self.encoder.options.lstm.projection_dim

    def get_output_dim(self) -> int:
        """Return `dim`, by AllenNLP's name."""
        return self.dim

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Do nothing: the constructor creates the weights."""

    def __call__(self, inputs: Any, word_inputs: None = None, **kwargs: Any) -> Any:  # noqa: ANN401
        """Check the ids and embed them, see `call`.

        Raises:
            DataError: the ids do not fit the model, see `bilm.models.sentence_encoder.IdKind`.
            OptionsError: `word_inputs`, AllenNLP's ids of cached words, are given.
            ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
        """
        keras_backend.require_ready()
        if word_inputs is not None:
            raise OptionsError("word_inputs: are not supported; give the character ids alone")
        # Not in `call`: before it, Keras converts floats to its own dtype, and it adds all arguments to
        # the messages of errors there.
        ids = self._ids.checked(inputs)
        outer, self._calls.layer = getattr(self._calls, "layer", None), self
        try:
            return super().__call__(ids, **kwargs)
        finally:
            self._calls.layer = outer

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Call the layer, by PyTorch's name, which a call itself uses on PyTorch."""
        is_inside = getattr(self._calls, "layer", None) is self
        return super().forward(*args, **kwargs) if is_inside else self(*args, **kwargs)

    def call(self, inputs: Tensor, training: bool | None = None) -> Any:  # noqa: ANN401
        """Embed a batch of sentences, each independent of the others.

        Args:
            inputs: integers (batch, words, max_characters_per_token), character ids without sentence marks
                from `bilm.data.batcher.batch_to_ids` or `SentenceVectorizer`, with any further dimensions
                between the first two; for a word-level model (batch, words + 2), ids with the marks from
                `bilm.data.batcher.TokenBatcher`. 0 is padding.
            training: apply dropout. None follows the surrounding Keras model or, without one on PyTorch,
                ``train()`` and ``eval()``.

        Returns:
            Shape (batch, words, dim), or (batch, words + 2, dim) with the sentence boundaries, and further
            dimensions as in the inputs; a list of these for several mixes. There is at least one word, if
            necessary of padding, since Keras's recurrent layers fail on empty sequences.
        """
        if training is None and BACKEND == "torch" and keras_backend.is_outermost(self):
            training = self.training
        layers, mask = self.layers_of(inputs)
        lengths = inference.count_tokens(mask)
        mixed = [self._finish(mix(layers, mask=mask), lengths, inputs, training) for mix in self.mixes]
        return mixed if len(mixed) > 1 else mixed[0]

    def layers_of(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the vectors of all layers.

        Args:
            inputs: see `call`; dimensions between the first and the words are joined with the first.

        Returns:
            Shape (rows, layers, words + 2, dim), with the sentence marks, and a mask, bool (rows, words + 2).
        """
        ids = inputs
        if len(inputs.shape) > self._ids.n_inner + 1:
            ids = keras.ops.reshape(inputs, (-1, *keras.ops.shape(inputs)[-self._ids.n_inner :]))
        if self.encoder.char_cnn is not None:
            ids = inference.add_marks(ids)
        mask = inference.token_mask(ids)
        words = inference.word_vectors(self.encoder, ids)
        # The user chooses the runtime of the graph and the sizes of batches.
        layers, _ = portably(inference.run_sentences, self.encoder, words, inference.count_tokens(mask))
        # Otherwise all gradients of the encoder are computed and discarded; PyTorch avoids that by itself.
        if not self.encoder.trainable and BACKEND != "torch":
            layers = keras.ops.stop_gradient(layers)
        return layers, mask

    def _finish(self, mixed: Tensor, lengths: Tensor, inputs: Tensor, training: bool | None) -> Tensor:
        """Cut marks from (rows, words + 2, dim) if wanted, restore the inputs' dimensions, apply dropout."""
        if not self.keep_sentence_boundaries:
            mixed = _at_least_one(inference.without_marks(mixed[:, None], lengths)[:, 0])
        ops = keras.ops
        shape = (*ops.shape(inputs)[: -self._ids.n_inner], *ops.shape(mixed)[1:])
        return self.dropout(ops.reshape(mixed, shape), training=training)

    def compute_mask(self, inputs: Tensor, previous_mask: Any = None) -> Any:  # noqa: ANN401
        """Return `word_mask` for each mix, with the first place of a row without words.

        Its vector is zero. A row of which nothing counts would be a mean over no words in later layers, and
        turn all weights into NaN.
        """
        mask = self.word_mask(inputs)
        first = keras.ops.ones_like(mask[..., :1])
        masks = [keras.ops.concatenate([first, mask[..., 1:]], axis=-1)] * len(self.mixes)
        return masks if len(masks) > 1 else masks[0]

    def word_mask(self, inputs: Tensor) -> Tensor:
        """Return the mask of words, bool (batch, words), or (batch, words + 2) with sentence boundaries."""
        mask = keras.ops.cast(keras.ops.not_equal(inputs, 0), "int32")
        if self.encoder.char_cnn is not None:  # with the two marks of each row, as word ids have them
            mask = keras.ops.sum(mask, axis=-1)
            mask = keras.ops.pad(mask, [[0, 0]] * (len(mask.shape) - 1) + [[2, 0]], constant_values=1)
        if not self.keep_sentence_boundaries:
            mask = _at_least_one(mask[..., 2:, None])[..., 0]
        return keras.ops.cast(mask, "bool")

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> Any:  # noqa: ANN401
        """Return the shape of the result."""
        self._ids.check_shape(tuple(input_shape))
        outer, n_steps = input_shape[: -self._ids.n_inner], input_shape[-self._ids.n_inner]
        if n_steps is not None:
            has_marks = self.encoder.char_cnn is None
            n_steps = max(n_steps + 2 * (self.keep_sentence_boundaries - has_marks), 1)
        shapes = [(*outer, n_steps, self.dim)] * len(self.mixes)
        return shapes if len(shapes) > 1 else shapes[0]

    @checked
    def dump_weights(self, outfile: PathLike, *, overwrite: bool = False) -> dump.DumpResult:
        """Write the biLM's weights as they are now, fine-tuned with the task, and their options beside them.

        The files are those of `bilm.dump_weights`, which `bilm.ElmoEmbedder`, AllenNLP and bilm-tf read.

        Args:
            outfile: HDF5 file to write.
            overwrite: replace existing files.

        Raises:
            BilmError: a file exists or cannot be written, or the weights are not finite.
        """
        weights, options = Path(outfile), self.encoder.options
        options_file, beside = dump.options_beside(weights, options)
        arrays = {
            name: as_weights(keras.ops.convert_to_numpy(leaf), f"{self.name}: {name}", WeightsError)
            for name, leaf in self.encoder.named_weights().items()
        }
        hdf5_file.write_hdf5(weights, arrays, dump_names(options), beside, overwrite)
        n_values = sum(array.size for array in arrays.values())
        return dump.DumpResult(weights, options_file, self.name, len(arrays), n_values)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Elmo":
        """Make a layer from the result of `get_config`, which must not name files to read.

        The biLM has the weights of the layer whose configuration it is, if that layer still exists in this
        process. Otherwise they are random until they are loaded.

        Raises:
            OptionsError: the configuration names a file, or has no options.
        """
        names = [name for name in ("weight_file", "model") if config.get(name) is not None]
        if names or not isinstance(config.get("options_file"), Mapping):
            raise OptionsError(
                f"{' and '.join(names) or 'options_file'}: the configuration of a saved Elmo has the options "
                "themselves and names no file; make the layer with Elmo(...) and load the weights into it"
            )
        config = dict(config)
        config.pop("fingerprint", None)  # of models that earlier versions saved
        original = cls._living.get(config.pop("original", None))
        are_trainable = config.pop("trainable_mixes", ())
        layer = cls(**config)
        if original is not None:
            with suppress(TypeError):  # in Keras's loops on JAX, which keep the weights elsewhere
                layer.encoder.set_weights(original.encoder.get_weights())
        for mix, is_trainable in zip(layer.mixes, are_trainable, strict=False):
            mix.trainable = is_trainable
        return layer

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, with the options themselves, and the key of this layer."""
        options = self.encoder.options
        content = options.to_inference_json()
        if options.char_cnn is None:
            content["n_tokens_vocab"] = options.n_tokens_vocab
        return super().get_config() | {
            "options_file": content,
            "weight_file": None,
            "num_output_representations": len(self.mixes),
            "trainable": self.encoder.trainable,
            "dropout": self.dropout.rate,
            "do_layer_norm": self.mixes[0].do_layer_norm,
            "keep_sentence_boundaries": self.keep_sentence_boundaries,
            "l2_coef": self.mixes[0].l2_coef,
            "scalar_mix_parameters": self.mixes[0].initial_scalar_parameters,
            "original": self._key,
            "trainable_mixes": [mix.trainable for mix in self.mixes],
        }


def _at_least_one(values: Any) -> Any:  # noqa: ANN401
    """Return the vectors of words, (..., words, dim), or one of zeros if there are no words."""
    padding = [*[[0, 0]] * (len(values.shape) - 2), [0, 1], [0, 0]]
    first = keras.ops.pad(values, padding)[..., :1, :]
    return keras.ops.concatenate([first, values[..., 1:, :]], axis=-2)
