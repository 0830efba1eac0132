"""Text to batches. The names of bilm-tf's module ``data`` are here too, see `bilm.data.lm_datasets`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bilm.installation import warn_if_damaged

if TYPE_CHECKING:
    from bilm.data.batcher import Batcher as Batcher
    from bilm.data.batcher import TokenBatcher as TokenBatcher
    from bilm.data.lm_datasets import BidirectionalLMDataset as BidirectionalLMDataset
    from bilm.data.lm_datasets import InvalidNumberOfCharacters as InvalidNumberOfCharacters
    from bilm.data.lm_datasets import LMDataset as LMDataset
    from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary as UnicodeCharsVocabulary
    from bilm.vocabulary.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    "Batcher": "bilm.data.batcher",
    "BidirectionalLMDataset": "bilm.data.lm_datasets",
    "InvalidNumberOfCharacters": "bilm.data.lm_datasets",
    "LMDataset": "bilm.data.lm_datasets",
    "TokenBatcher": "bilm.data.batcher",
    "UnicodeCharsVocabulary": "bilm.vocabulary.vocabulary",
    "Vocabulary": "bilm.vocabulary.vocabulary",
}
__all__ = [*_HOMES]

warn_if_damaged()


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a name when it is first used: a shell that completes flags needs no NumPy."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
