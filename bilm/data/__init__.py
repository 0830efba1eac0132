"""Conversion of text to batches; also the names of bilm-tf's module ``data``."""

from bilm.data.batcher import Batcher, TokenBatcher
from bilm.data.lm_datasets import BidirectionalLMDataset, InvalidNumberOfCharacters, LMDataset
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

__all__ = ["Batcher", "BidirectionalLMDataset", "InvalidNumberOfCharacters", "LMDataset", "TokenBatcher"]
__all__ += ["UnicodeCharsVocabulary", "Vocabulary"]
