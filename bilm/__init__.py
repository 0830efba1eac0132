"""The ELMo biLM workflow on TensorFlow 2 and Keras 3: train, test, use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bilm.registration import register_with_keras

if TYPE_CHECKING:
    from bilm.batching import Batcher as Batcher
    from bilm.batching import TokenBatcher as TokenBatcher
    from bilm.batching import batch_to_ids as batch_to_ids
    from bilm.data import BidirectionalLMDataset as BidirectionalLMDataset
    from bilm.data import LMDataset as LMDataset
    from bilm.dumps import dump_bilm_embeddings as dump_bilm_embeddings
    from bilm.dumps import dump_token_embeddings as dump_token_embeddings
    from bilm.elmo import BidirectionalLanguageModel as BidirectionalLanguageModel
    from bilm.elmo_layer import Elmo as Elmo
    from bilm.embedder import ElmoEmbedder as ElmoEmbedder
    from bilm.language_model import LanguageModel as LanguageModel
    from bilm.layers.character_ids import SentenceVectorizer as SentenceVectorizer
    from bilm.layers.scalar_mix import ScalarMix as ScalarMix
    from bilm.layers.scalar_mix import weight_layers as weight_layers
    from bilm.options import Options as Options
    from bilm.vocab import UnicodeCharsVocabulary as UnicodeCharsVocabulary
    from bilm.vocab import Vocabulary as Vocabulary

__version__ = "0.1.0"

_HOMES = {
    "Batcher": "bilm.batching",
    "TokenBatcher": "bilm.batching",
    "batch_to_ids": "bilm.batching",
    "BidirectionalLanguageModel": "bilm.elmo",
    "BidirectionalLMDataset": "bilm.data",
    "Elmo": "bilm.elmo_layer",
    "ElmoEmbedder": "bilm.embedder",
    "LMDataset": "bilm.data",
    "LanguageModel": "bilm.language_model",
    "Options": "bilm.options",
    "SentenceVectorizer": "bilm.layers.character_ids",
    "ScalarMix": "bilm.layers.scalar_mix",
    "UnicodeCharsVocabulary": "bilm.vocab",
    "Vocabulary": "bilm.vocab",
    "dump_bilm_embeddings": "bilm.dumps",
    "dump_token_embeddings": "bilm.dumps",
    "weight_layers": "bilm.layers.scalar_mix",
}
_WITHOUT_KERAS = {"bilm.batching", "bilm.data", "bilm.options", "bilm.vocab"}
__all__ = ["__version__", *_HOMES]

register_with_keras()


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that ``bilm --help`` needs no TensorFlow."""
    if name in _HOMES:
        if _HOMES[name] not in _WITHOUT_KERAS:
            importlib.import_module("bilm.keras_backend")  # before TensorFlow, which imports Keras
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
