"""AllenNLP's names for ELMo; `Elmo` returns what AllenNLP's class returns."""

from typing import Any

from bilm.backend.keras_backend import keras
from bilm.data.batcher import batch_to_ids
from bilm.embedding import elmo_layer
from bilm.embedding.embedder import ElmoEmbedder

__all__ = ["Elmo", "ElmoEmbedder", "batch_to_ids"]


@keras.saving.register_keras_serializable("bilm.allennlp")
class Elmo(elmo_layer.Elmo):
    """`bilm.Elmo` with the result of AllenNLP's class, and its default dropout of 0.5."""

    default_dropout = 0.5

    def __call__(self, inputs: Any, word_inputs: None = None, **kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return ``elmo_representations``, a list of tensors, and ``mask``; see `bilm.Elmo`."""
        vectors, mask = super().__call__(inputs, word_inputs, **kwargs), self.compute_mask(inputs)
        if len(self.mixes) == 1:
            return {"elmo_representations": [vectors], "mask": mask}
        return {"elmo_representations": vectors, "mask": mask[0]}
