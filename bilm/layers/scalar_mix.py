"""The weighted sum of a biLM's layers that a downstream model learns.

.. code-block:: text

    s = softmax(w + 1 / layers)
    y = gamma * sum over layers k of s_k norm(x_k)
    norm(x) = (x - mean) / sqrt(variance + 1e-12), over the whole batch without padding

Source: Peters et al. 2018, equation 1; ``weight_layers`` in bilm-tf's ``elmo.py``, which has the constant
in the softmax too, although it cancels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilm.backend.keras_backend import Tensor, backend, keras, require_ready
from bilm.errors import DataError, OptionsError, require_flags


class FieldMapping(Mapping[str, Any]):
    """Base of dataclasses that are also mappings of their fields, without fields that begin with ``_``."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        if name not in [*self]:
            raise KeyError(f"{name}; there are {', '.join(self)}")
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in vars(self) if not name.startswith("_"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@keras.saving.register_keras_serializable("bilm")
class ScalarMix(backend.Layer):
    """Weighted sum of a biLM's layers: one vector per word.

    The L2 term ``l2_coef * sum(w ** 2)`` is a regularisation loss of the layer, so it is part of the loss of
    every Keras model that contains the layer; w are the weights before the softmax.

    Args:
        l2_coef: factor of the L2 term; None for no term.
        use_top_only: take the top layer and learn gamma only; there are no weights to regularise.
        do_layer_norm: normalise each layer before it is weighted; as in the reference, it has no effect
            with `use_top_only`.
        initial_scalar_parameters: initial w, one number per layer; zeros by default, equal weights.
        **kwargs: arguments of `keras.layers.Layer`.

    Raises:
        OptionsError: a switch is not True or False.

    Example:
        >>> layers = np.stack([np.zeros((1, 2, 4)), np.ones((1, 2, 4))], axis=1)  # layers, words, dim
        >>> ScalarMix()(layers).numpy()[0, 0]  # at first the mean
        array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """

    def __init__(
        self,
        *,
        l2_coef: float | None = None,
        use_top_only: bool = False,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        require_flags(use_top_only=use_top_only, do_layer_norm=do_layer_norm)
        super().__init__(**kwargs)
        self.l2_coef = None if l2_coef is None else float(l2_coef)  # as configurations of layers need it
        self.use_top_only = use_top_only
        self.do_layer_norm = do_layer_norm
        initial = initial_scalar_parameters
        self.initial_scalar_parameters = None if initial is None else [*map(float, initial)]
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=4)
        if use_top_only or self.initial_scalar_parameters is not None:
            self.build((None, len(self.initial_scalar_parameters or ()), None, None))

    def __call__(self, lm_embeddings: Any, mask: Any = None, **kwargs: Any) -> Any:  # noqa: ANN401
        """Check the arguments and mix the layers, see `call`.

        Args:
            lm_embeddings: the layers, or a mapping with ``lm_embeddings`` and ``mask``, such as the result of
                `bilm.models.bidirectional_lm.BidirectionalLanguageModel`.
            mask: see `call`.
            **kwargs: arguments of `keras.layers.Layer`.

        Raises:
            DataError: the layers are no dense tensor, or the mask does not have their shape.
            ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
            ValueError: the layers do not have four dimensions, or their number is not the mix's.
        """
        require_ready()
        if isinstance(lm_embeddings, Mapping):
            mask = lm_embeddings.get("mask") if mask is None else mask
            lm_embeddings = lm_embeddings["lm_embeddings"]
        if not backend.is_dense(lm_embeddings):
            raise DataError("lm_embeddings must be a dense tensor (batch, layers, words, dim)")
        if mask is not None:
            shape = tuple(getattr(lm_embeddings, "shape", ()))
            expected, found = shape[:1] + shape[2:3], tuple(getattr(mask, "shape", None) or np.shape(mask))
            sizes = [{*pair} - {None} for pair in zip(found, expected, strict=False)]
            if len(found) != 2 or any(len(known) > 1 for known in sizes):
                raise DataError(f"mask must be (batch, words), here {expected}, got {found}")
        return super().__call__(lm_embeddings, mask=mask, **kwargs)

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Create the weights, zeros as in the reference, and gamma, one."""
        initial = self.initial_scalar_parameters
        self.layer_weights = None
        if not self.use_top_only:
            self.input_spec = keras.InputSpec(ndim=4, axes={1: input_shape[1]})
            self.layer_weights = self.add_weight(
                name="ELMo_W",
                shape=(input_shape[1],),
                initializer="zeros" if initial is None else keras.initializers.Constant(np.array(initial)),
                regularizer=None if self.l2_coef is None else keras.regularizers.L2(self.l2_coef),
            )
        self.gamma = self.add_weight(name="ELMo_gamma", shape=(1,), initializer="ones")
        self.built = True

    def call(self, lm_embeddings: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the layers.

        Args:
            lm_embeddings: shape (batch, layers, words, dim).
            mask: (batch, words), nonzero for a word, 0 for padding; None without padding. Only
                `do_layer_norm` uses it.

        Returns:
            Shape (batch, words, dim).
        """
        gamma = keras.ops.convert_to_tensor(self.gamma)
        if self.do_layer_norm and self.layer_weights is not None:
            lm_embeddings = _normalise(lm_embeddings, mask)
        lm_embeddings = keras.ops.cast(lm_embeddings, gamma.dtype)  # which PyTorch's double() may change
        if self.layer_weights is None:
            return lm_embeddings[:, -1] * gamma
        weights = keras.ops.convert_to_tensor(self.layer_weights)
        shares = keras.ops.softmax(weights + 1.0 / weights.shape[0])
        return keras.ops.einsum("k,bkwd->bwd", shares, lm_embeddings) * gamma

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the shape of the result."""
        return (input_shape[0], *input_shape[2:])

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("l2_coef", "use_top_only", "do_layer_norm", "initial_scalar_parameters")
        return super().get_config() | {name: getattr(self, name) for name in names}


def _normalise(layers: Tensor, mask: Tensor | None) -> Tensor:
    """Scale each layer of the batch to mean 0 and variance 1 over the words, without padding.

    The sums are float32, or float64: those of a batch are beyond float16.
    """
    ops = keras.ops
    layers = ops.cast(layers, keras.backend.result_type(layers.dtype, "float32"))
    is_word = ops.ones_like(layers[:, 0, :, 0], "bool") if mask is None else ops.cast(mask, "bool")
    counts = ops.cast(is_word, layers.dtype)[:, None, :, None]
    # A batch without words would be divided by 0.
    n_values = ops.maximum(ops.sum(counts), 1.0) * layers.shape[-1]
    mean = ops.sum(layers * counts, axis=[0, 2, 3], keepdims=True) / n_values
    variance = ops.sum(((layers - mean) * counts) ** 2, axis=[0, 2, 3], keepdims=True) / n_values
    return (layers - mean) * ops.rsqrt(variance + 1e-12)


@dataclass(frozen=True, eq=False)
class WeightedLayers(FieldMapping):
    """The result of `weight_layers`, with the reference's names.

    Attributes:
        weighted_op: (batch, words, dim), the mixed vectors.
        regularization_op: scalar, the L2 term; 0 without `l2_coef`.
        layer: the `ScalarMix`, which holds the weights to train.
    """

    weighted_op: Tensor
    regularization_op: Tensor
    layer: ScalarMix


def weight_layers(
    name: str,
    bilm_ops: Mapping[str, Any],
    l2_coef: float | None = None,
    use_top_only: bool = False,
    do_layer_norm: bool = False,
) -> WeightedLayers:
    """Mix the layers of a biLM with new weights, like bilm-tf's function.

    To use the same weights again, call `WeightedLayers.layer` with another output.

    Args:
        name: name of the layer, different for each mix of one model's outputs.
        bilm_ops: ``lm_embeddings`` and ``mask``, the result of `bilm.BidirectionalLanguageModel`.
        l2_coef: see `ScalarMix`.
        use_top_only: see `ScalarMix`.
        do_layer_norm: see `ScalarMix`.

    Raises:
        OptionsError: the name is taken, or a switch is not True or False.
        DataError: the layers are no dense tensor, or the mask does not have their shape.
        ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
        ValueError: ``lm_embeddings`` do not have four dimensions.

    Example:
        >>> from bilm.data.batcher import Batcher
        >>> from bilm.models.bidirectional_lm import BidirectionalLanguageModel
        >>> model = BidirectionalLanguageModel("options.json", "weights.hdf5")
        >>> output = model(Batcher(None, 50).batch_sentences([["Time", "flies"]]))
        >>> mixed = weight_layers("input", output, l2_coef=0.001)
        >>> mixed.weighted_op.shape, float(mixed.regularization_op)
        (TensorShape([1, 2, 24]), 0.0)
    """
    names: set[str] = getattr(bilm_ops, "_mixes", set())
    if name in names:
        raise OptionsError(
            f"weight_layers: {name!r} already names a mix of this model's outputs; to reuse its weights call "
            "weight_layers(...).layer(output), for new weights give another name"
        )
    layer = ScalarMix(l2_coef=l2_coef, use_top_only=use_top_only, do_layer_norm=do_layer_norm, name=name)
    weighted = layer(bilm_ops)
    names.add(name)
    return WeightedLayers(weighted, sum(layer.losses, start=keras.ops.zeros((), layer.variable_dtype)), layer)
