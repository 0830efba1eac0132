"""Loading the model of an embedder, by whichever arguments it is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from bilm.backend.placement import Placement
from bilm.embedding.packed_embedder import Limits, PackedEmbedder
from bilm.embedding.replicas import Replicas
from bilm.embedding.word_vectors import read_vocabulary
from bilm.errors import OptionsError
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
    cuda_device: int | Sequence[int] | None


def load_embedder(
    arguments: ModelArguments, vocab_file: str | Path | None, settings: EmbedderSettings
) -> Replicas:
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
    placement, *others = _placements(settings.get("cuda_device"))
    if stateful and others:
        raise OptionsError("cuda_device: with stateful=True, a state is carried on one device; give one")
    found = arguments.open()
    with placement.scope():
        model = BidirectionalLanguageModel.from_weights(
            found.options, found.arrays(), found.source, rows or ROWS_OF_STATE, stateful=stateful
        )
    words = found.vocabulary() if vocab_file is None and found.options.char_cnn is None else vocab_file
    first = PackedEmbedder(model, read_vocabulary(model.options, words), placement, limits)
    return Replicas([first, *map(first.copied_to, others)])


def _placements(cuda_device: int | Sequence[int] | None) -> list[Placement]:
    """One for each device.

    Raises:
        OptionsError: there is no such GPU, or none is named.
    """
    devices = [cuda_device] if cuda_device is None or isinstance(cuda_device, int) else list(cuda_device)
    if not devices:
        raise OptionsError("cuda_device: names no device")
    return [Placement(device) for device in devices]
