"""AllenNLP's names for ELMo: with them, its `Elmo` returns what AllenNLP's does."""

from pathlib import Path
from typing import Any

from bilm.backend.keras_backend import keras
from bilm.data.batcher import batch_to_ids
from bilm.embedding import elmo_layer
from bilm.embedding.embedder import ElmoEmbedder

__all__ = ["Elmo", "ElmoEmbedder", "batch_to_ids"]


@keras.saving.register_keras_serializable("bilm.allennlp")
class Elmo(elmo_layer.Elmo):
    """`bilm.Elmo` with the default dropout and the result of AllenNLP's class.

    Args:
        options_file: ``options.json`` of the weights.
        weight_file: HDF5 weights.
        num_output_representations: number of mixes, each with its own weights.
        requires_grad: train the biLM too, not only the mixes.
        do_layer_norm: normalise each layer before it is weighted.
        dropout: dropout rate of the mixes' values in training.
        *args: further arguments of `bilm.Elmo`.
        **kwargs: arguments of `bilm.Elmo`.
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        *args: Any,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        switches = (requires_grad, do_layer_norm, dropout)
        super().__init__(options_file, weight_file, num_output_representations, *switches, *args, **kwargs)

    def __call__(self, inputs: Any, word_inputs: None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return ``elmo_representations``, a list of tensors, and ``mask``; see `bilm.Elmo`."""
        vectors = super().__call__(inputs, word_inputs, **kwargs)
        masks = self.compute_mask(inputs)
        is_list = len(self.mixes) > 1
        return {
            "elmo_representations": vectors if is_list else [vectors],
            "mask": masks[0] if is_list else masks,
        }
