"""Train, test and use ELMo's bidirectional language models on TensorFlow 2 and Keras 3.

`prepare`, `train`, `restart`, `test` and `dump_weights` do the same as the commands of these names.
`ElmoEmbedder` turns sentences into vectors; `Elmo` is a Keras layer. ``docs/python-api.md`` describes all
public names.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bilm.backend.settings import use_xla as use_xla
    from bilm.data.batcher import Batcher as Batcher
    from bilm.data.batcher import TokenBatcher as TokenBatcher
    from bilm.data.batcher import batch_to_ids as batch_to_ids
    from bilm.data.lm_datasets import BidirectionalLMDataset as BidirectionalLMDataset
    from bilm.data.lm_datasets import LMDataset as LMDataset
    from bilm.embedding.elmo_layer import Elmo as Elmo
    from bilm.embedding.embedder import ElmoEmbedder as ElmoEmbedder
    from bilm.embedding.embedder import dump_bilm_embeddings as dump_bilm_embeddings
    from bilm.embedding.embedder import dump_token_embeddings as dump_token_embeddings
    from bilm.embedding.prediction import WordPredictor as WordPredictor
    from bilm.layers.scalar_mix import ScalarMix as ScalarMix
    from bilm.layers.scalar_mix import weight_layers as weight_layers
    from bilm.layers.sentence_vectorizer import SentenceVectorizer as SentenceVectorizer
    from bilm.models.bidirectional_lm import BidirectionalLanguageModel as BidirectionalLanguageModel
    from bilm.models.language_model import LanguageModel as LanguageModel
    from bilm.options import Options as Options
    from bilm.run_directory.directory import RunDirectory as RunDirectory
    from bilm.runs.dump_weights import dump_weights as dump_weights
    from bilm.runs.reporter import Reporter as Reporter
    from bilm.runs.test import test as test
    from bilm.runs.train import restart as restart
    from bilm.runs.train import train as train
    from bilm.text.pipeline import TextPipeline as TextPipeline
    from bilm.text.prepare import prepare as prepare
    from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary as UnicodeCharsVocabulary
    from bilm.vocabulary.vocabulary import Vocabulary as Vocabulary

__version__ = "0.2.0"

_MODULES = {
    "bilm.backend.settings": ("use_xla",),
    "bilm.data.batcher": ("Batcher", "TokenBatcher", "batch_to_ids"),
    "bilm.data.lm_datasets": ("BidirectionalLMDataset", "LMDataset"),
    "bilm.embedding.elmo_layer": ("Elmo",),
    "bilm.embedding.embedder": ("ElmoEmbedder", "dump_bilm_embeddings", "dump_token_embeddings"),
    "bilm.embedding.prediction": ("WordPredictor",),
    "bilm.layers.scalar_mix": ("ScalarMix", "weight_layers"),
    "bilm.layers.sentence_vectorizer": ("SentenceVectorizer",),
    "bilm.models.bidirectional_lm": ("BidirectionalLanguageModel",),
    "bilm.models.language_model": ("LanguageModel",),
    "bilm.options": ("Options",),
    "bilm.run_directory.directory": ("RunDirectory",),
    "bilm.runs.dump_weights": ("dump_weights",),
    "bilm.runs.reporter": ("Reporter",),
    "bilm.runs.test": ("test",),
    "bilm.runs.train": ("restart", "train"),
    "bilm.text.pipeline": ("TextPipeline",),
    "bilm.text.prepare": ("prepare",),
    "bilm.vocabulary.vocabulary": ("UnicodeCharsVocabulary", "Vocabulary"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_WITHOUT_KERAS = ("bilm.backend.", "bilm.data.", "bilm.options", "bilm.text.", "bilm.vocabulary.")
_ON_TENSORFLOW = (
    *("bilm.embedding.prediction", "bilm.layers.sentence_vectorizer", "bilm.models.language_model"),
    "bilm.runs.",
)
__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    """List the public names, also those that have not been imported."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that ``bilm --help`` needs no TensorFlow."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _HOMES[name]
    if not module.startswith(_WITHOUT_KERAS):  # must precede TensorFlow, which imports Keras
        keras_backend = importlib.import_module("bilm.backend.keras_backend")
        if module.startswith(_ON_TENSORFLOW):
            keras_backend.require_tensorflow(f"bilm.{name}")
    return getattr(importlib.import_module(module), name)
