"""AllenNLP's names for ELMo, with its results; on PyTorch these are torch tensors.

Source: ``allennlp.modules.elmo``, ``allennlp.commands.elmo`` and ``allennlp.nn.util``.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from bilm.backend.keras_backend import BACKEND, Tensor, keras, on_device
from bilm.data import batcher
from bilm.embedding import elmo_layer, embedder
from bilm.models import sentence_encoder
from bilm.options import Options

__all__ = ["DEFAULT_OPTIONS_FILE", "DEFAULT_WEIGHT_FILE", "Elmo", "ElmoEmbedder", "batch_to_ids"]
__all__ += ["_ElmoBiLm", "remove_sentence_boundaries"]

if BACKEND != "torch":
    logging.getLogger(__name__).warning(
        "bilm.allennlp: Keras runs on %s; for torch tensors, as in AllenNLP, set the environment variable "
        "KERAS_BACKEND to torch before Keras is imported",
        BACKEND,
    )

_PUBLISHED = (
    "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
    "elmo_2x4096_512_2048cnn_2xhighway_"
)
DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE = _PUBLISHED + "options.json", _PUBLISHED + "weights.hdf5"
"""Addresses of AllenNLP's default model, which has to be downloaded."""


def _tensor(array: Any, cuda_device: int | None = -1) -> Any:  # noqa: ANN401
    """Return an array as a torch tensor on a device; on another backend unchanged."""
    with on_device(cuda_device):
        return keras.ops.convert_to_tensor(array) if BACKEND == "torch" else array


def batch_to_ids(
    batch: Iterable[Iterable[str]], max_characters: int = 50, unicode_form: str | None = None
) -> Any:  # noqa: ANN401
    """Return the ids of `bilm.batch_to_ids`, on PyTorch as a tensor on the CPU."""
    return _tensor(batcher.batch_to_ids(batch, max_characters, unicode_form))


def remove_sentence_boundaries(tensor: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Remove the sentence marks from vectors (rows, words + 2, dim) and their mask (rows, words + 2)."""
    lengths = sentence_encoder.count_tokens(mask)
    return sentence_encoder.without_marks(tensor[:, None], lengths)[:, 0], mask[:, 2:]


@keras.saving.register_keras_serializable("bilm.allennlp")
class Elmo(elmo_layer.Elmo):
    """`bilm.Elmo` with the result of AllenNLP's class, and its default dropout of 0.5."""

    default_dropout = 0.5

    def __call__(self, inputs: Any, word_inputs: None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return ``elmo_representations``, a list of tensors, and ``mask``; see `bilm.Elmo`."""
        vectors, mask = super().__call__(inputs, word_inputs, **kwargs), self.word_mask(inputs)
        return {"elmo_representations": [vectors] if len(self.mixes) == 1 else vectors, "mask": mask}


@keras.saving.register_keras_serializable("bilm.allennlp")
class _ElmoBiLm(elmo_layer.Elmo):
    """A biLM as a layer, with the result of AllenNLP's class; the arguments are those of `bilm.Elmo`."""

    def __init__(
        self,
        options_file: str | Path | Mapping[str, Any] | Options,
        weight_file: str | Path | None = None,
        requires_grad: bool | None = None,
        vocab_to_cache: None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        names = {"requires_grad": requires_grad, "vocab_to_cache": vocab_to_cache}
        super().__init__(options_file, weight_file, **(names | kwargs))
        self.mixes[0].trainable = False
        self.num_layers = self.encoder.options.lstm.n_layers + 1

    def call(self, inputs: Tensor, training: bool | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Return ``activations``, (rows, words + 2, dim) for each layer, and ``mask``, (rows, words + 2)."""
        layers, mask = self.layers_of(inputs)
        return {"activations": [*keras.ops.unstack(layers, axis=1)], "mask": mask}

    def compute_mask(self, inputs: Tensor, previous_mask: Any = None) -> None:  # noqa: ANN401
        """Return None: the mask is part of the result."""

    compute_output_spec = keras.Operation.compute_output_spec


class ElmoEmbedder(embedder.ElmoEmbedder):
    """`bilm.ElmoEmbedder` with the arguments of AllenNLP's class; its other arguments are given by name."""

    def __init__(
        self,
        options_file: str | Path | None = DEFAULT_OPTIONS_FILE,
        weight_file: str | Path | None = DEFAULT_WEIGHT_FILE,
        cuda_device: int = -1,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        defaults = DEFAULT_OPTIONS_FILE, DEFAULT_WEIGHT_FILE
        if settings.get("model") is not None and (options_file, weight_file) == defaults:
            options_file = weight_file = None
        super().__init__(options_file, weight_file, cuda_device=cuda_device, **settings)

    @cached_property
    def elmo_bilm(self) -> _ElmoBiLm:
        """The biLM as a layer, a copy of the embedder's."""
        encoder = self.model.encoder
        with on_device(self.device):
            layer = _ElmoBiLm(encoder.options)
            layer.encoder.set_weights(encoder.get_weights())
        return layer

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Any, Any]:
        """Return the arrays of `bilm.ElmoEmbedder`, on PyTorch as tensors on the embedder's device."""
        vectors, mask = super().batch_to_embeddings(batch)
        return _tensor(vectors, self.device), _tensor(mask, self.device)
