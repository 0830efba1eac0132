"""bilm-tf's module of this name: `bilm.BidirectionalLanguageModel`, and the dumps of embeddings."""

from __future__ import annotations

from bilm.embedding.embedder import dump_bilm_embeddings, dump_token_embeddings
from bilm.models.bidirectional_lm import BidirectionalLanguageModel

__all__ = ["BidirectionalLanguageModel", "dump_bilm_embeddings", "dump_token_embeddings"]
