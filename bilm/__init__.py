"""The ELMo biLM workflow on TensorFlow 2 and Keras 3: train, test, restart, dump weights."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bilm.batching import Batcher as Batcher
    from bilm.batching import TokenBatcher as TokenBatcher
    from bilm.data import BidirectionalLMDataset as BidirectionalLMDataset
    from bilm.data import LMDataset as LMDataset
    from bilm.language_model import LanguageModel as LanguageModel
    from bilm.options import Options as Options
    from bilm.vocab import UnicodeCharsVocabulary as UnicodeCharsVocabulary
    from bilm.vocab import Vocabulary as Vocabulary

__version__ = "0.1.0"

_HOMES = {
    "Batcher": "bilm.batching",
    "TokenBatcher": "bilm.batching",
    "BidirectionalLMDataset": "bilm.data",
    "LMDataset": "bilm.data",
    "LanguageModel": "bilm.language_model",
    "Options": "bilm.options",
    "UnicodeCharsVocabulary": "bilm.vocab",
    "Vocabulary": "bilm.vocab",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that ``bilm --help`` needs no TensorFlow."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
