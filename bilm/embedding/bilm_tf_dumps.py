"""bilm-tf's two functions that write vectors to a file: those of a vocabulary, and those of a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bilm.embedding.embedder import ElmoEmbedder
from bilm.io.outputs import check_output
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.models.sentence_encoder import require_characters
from bilm.options.file import load_inference_options
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, load_vocabulary
from bilm.weights.hdf5_file import write_token_embeddings

_WORDS_AT_ONCE = 1 << 14


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """Write the context-independent vector of every word of a vocabulary, as bilm-tf's function does.

    Args:
        vocab_file: one word per line; row k of the result is the word of line k.
        options_file: of the model, which reads characters.
        weight_file: of the model.
        outfile: HDF5 with one dataset ``embedding`` (words, projection_dim); replaced if it exists.

    Raises:
        BilmError: a file cannot be read or written, is both, or they do not fit each other.

    Example:
        >>> dump_token_embeddings("vocab.txt", "options.json", "weights.hdf5", "vectors.hdf5")
        >>> model = BidirectionalLanguageModel(
        ...     "options.json",
        ...     "weights.hdf5",
        ...     use_character_inputs=False,
        ...     embedding_weight_file="vectors.hdf5",
        ... )
        >>> from bilm.data.batcher import TokenBatcher
        >>> model(TokenBatcher("vocab.txt").batch_sentences([["the", "river"]])).lm_embeddings.shape
        TensorShape([1, 3, 2, 24])
    """
    check_output(outfile, True, [vocab_file, options_file, weight_file])
    model = BidirectionalLanguageModel(options_file, weight_file)
    width = require_characters(model.options)
    vocabulary = UnicodeCharsVocabulary(vocab_file, width)
    parts = [
        model.word_vectors(
            vocabulary.character_rows(np.arange(start, min(start + _WORDS_AT_ONCE, vocabulary.size)))
        )
        for start in range(0, vocabulary.size, _WORDS_AT_ONCE)
    ]
    write_token_embeddings(outfile, np.concatenate(parts))


def dump_bilm_embeddings(
    vocab_file: str | Path,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
    *,
    stateful: bool = False,
) -> None:
    """Write every layer's vectors of a text's sentences, as bilm-tf's function does.

    Args:
        vocab_file: of the model; words that are not in it keep their characters.
        dataset_file: words separated by whitespace, one sentence per line.
        options_file: of the model.
        weight_file: of the model.
        outfile: HDF5; the dataset of a line is its number from 0, (layers, words, dim). Replaced if
            it exists.
        stateful: carry the LSTM state from sentence to sentence, which bilm-tf does without asking.

    Raises:
        BilmError: a file cannot be read or written, is both, or they do not fit each other.

    Example:
        >>> dump_bilm_embeddings(
        ...     "vocab.txt", "heldout.txt", "options.json", "weights.hdf5", "embeddings.hdf5"
        ... )
        >>> import h5py
        >>> with h5py.File("embeddings.hdf5") as file:
        ...     file["0"].shape  # the first line of the text
        (3, 6, 24)
    """
    check_output(outfile, True, [vocab_file, dataset_file, options_file, weight_file])
    by_word = load_inference_options(options_file).char_cnn is None
    load_vocabulary(vocab_file)
    embedder = ElmoEmbedder(
        options_file,
        weight_file,
        vocab_file if by_word else None,
        stateful=stateful,
        batch_size=1 if stateful else None,
    )
    embedder.embed_file(dataset_file, outfile, forget_sentences=True, overwrite=True)
