"""Conversion of text to batches; also the names of bilm-tf's module ``data``."""

import warnings

from bilm.data.batcher import Batcher, TokenBatcher
from bilm.data.lm_datasets import BidirectionalLMDataset, InvalidNumberOfCharacters, LMDataset
from bilm.installation import damage
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

__all__ = ["Batcher", "BidirectionalLMDataset", "InvalidNumberOfCharacters", "LMDataset", "TokenBatcher"]
__all__ += ["UnicodeCharsVocabulary", "Vocabulary"]

if (_message := damage()) is not None:  # bilm-tf's package imports this module first
    warnings.warn(_message, RuntimeWarning, stacklevel=2)
