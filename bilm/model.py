"""Alias of bilm-tf's module ``bilm.model``; holds `BidirectionalLanguageModel` and the dump functions."""

from bilm.embedding.embedder import dump_bilm_embeddings, dump_token_embeddings
from bilm.models.bidirectional_lm import BidirectionalLanguageModel

__all__ = ["BidirectionalLanguageModel", "dump_bilm_embeddings", "dump_token_embeddings"]
