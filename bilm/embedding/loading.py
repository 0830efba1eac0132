"""Loading the model of an embedder, by whichever arguments it is named."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from bilm.embedding.packed_embedder import Limits, PackedEmbedder
from bilm.embedding.word_vectors import read_vocabulary
from bilm.layers.tensorflow_state import Placement
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.run_directory.model_source import ModelArguments

ROWS_OF_STATE = 64
"""Rows whose state is carried by default: what AllenNLP's ``elmo`` command had for --batch-size."""


class EmbedderSettings(TypedDict, total=False):
    """The keyword arguments of `ElmoEmbedder`, which describes them."""

    stateful: bool
    batch_size: int | None
    batch_tokens: int | None
    max_cached_words: int | None
    cuda_device: int | None


def load_embedder(
    arguments: ModelArguments, vocab_file: str | Path | None, settings: EmbedderSettings
) -> PackedEmbedder:
    """Load a model that is named by arguments, once the settings have been checked.

    Args:
        arguments: by which the model is found.
        vocab_file: of a word-level model; None for the one that comes with it.
        settings: of the embedder.

    Raises:
        BilmError: the model cannot be found or read, or a setting is out of range.
    """
    rows, stateful = settings.get("batch_size"), settings.get("stateful", False)
    limits = Limits(rows, settings.get("batch_tokens"), settings.get("max_cached_words"))
    found = arguments.open()
    placement = Placement(settings.get("cuda_device"))
    with placement.scope():
        model = BidirectionalLanguageModel.from_weights(
            found.options, found.arrays(), found.source, rows or ROWS_OF_STATE, stateful=stateful
        )
    words = found.vocabulary() if vocab_file is None and found.options.char_cnn is None else vocab_file
    return PackedEmbedder(model, read_vocabulary(model.options, words), placement, limits)
