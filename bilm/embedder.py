"""Sentences to vectors, fast: each distinct word encoded once, rows full of sentences."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from bilm.arguments import require_positive
from bilm.checkpoint import RunDirectory
from bilm.elmo import BidirectionalLanguageModel
from bilm.embedding import EmbeddingReport, FileFormat, Layers, embed_file
from bilm.errors import DataError, OptionsError, VocabularyError
from bilm.inference import read_options
from bilm.options import Options
from bilm.packed_embedder import PackedEmbedder
from bilm.packing import chunks
from bilm.shown import quoted
from bilm.text import read_lines
from bilm.vocab import Vocabulary, load_vocabulary
from bilm.word_vectors import WordVectors

_ROWS_OF_STATE = 64  # what AllenNLP's ``elmo`` command had for --batch-size
_BATCH_TOKENS = 16384
_CACHE_BYTES = 1 << 28


class ElmoEmbedder:
    """Sentences to the vectors of a pretrained biLM, as AllenNLP 0.9's class of this name.

    A vector depends on its own sentence alone, whatever stands beside it, unless `stateful`.

    Args:
        options_file: ``options.json`` that goes with the weights.
        weight_file: HDF5, as bilm-tf, AllenNLP and ``bilm dump-weights`` write it.
        vocab_file: words of a word-level model; a model over characters needs none.
        stateful: carry the LSTM state from batch to batch, as AllenNLP did: a batch is then
            `batch_size` sentences in the order given.
        batch_size: most sentences side by side, 128 by default; if `stateful`, sentences of a batch, 64
            by default.
        batch_tokens: tokens worked on together, 16384 by default, which decides about the memory; whole
            sentences, so that there may be more. Not to be given if `stateful`.
        max_cached_words: distinct words whose vectors are remembered; by default 256 MB of them.

    Raises:
        BilmError: the files cannot be read or do not fit each other, or an argument is out of range.

    Example:
        >>> embedder = ElmoEmbedder("options.json", "weights.hdf5")
        >>> embedder.embed_sentence(["Time", "flies"]).shape  # layers, words, dim
        (3, 2, 24)
        >>> for vectors in embedder.embed_sentences(line.split() for line in ["Time flies", "Hello"]):
        ...     print(vectors[-1].shape)  # the top layer
        (2, 24)
        (1, 24)
    """

    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        vocab_file: str | Path | None = None,
        *,
        stateful: bool = False,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        max_cached_words: int | None = None,
    ) -> None:
        characters = read_options(options_file).char_cnn is not None
        rows = batch_size or _ROWS_OF_STATE
        model = BidirectionalLanguageModel(
            options_file, weight_file, characters, max_batch_size=rows, stateful=stateful
        )
        self._set(model, vocab_file, batch_size, batch_tokens, max_cached_words)

    @classmethod
    def from_run(
        cls,
        save_dir: str | Path,
        vocab_file: str | Path | None = None,
        *,
        checkpoint: str = "latest",
        stateful: bool = False,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        max_cached_words: int | None = None,
    ) -> ElmoEmbedder:
        """Make one of a checkpoint of a run, ours or bilm-tf's.

        Args:
            save_dir: the run directory.
            vocab_file: see the class, as for the arguments not described here.
            checkpoint: ``latest``, ``best`` or a step, see `bilm.checkpoint.RunDirectory.choose`.
            stateful: see the class.
            batch_size: see the class.
            batch_tokens: see the class.
            max_cached_words: see the class.

        Raises:
            BilmError: it is not a run, or an argument is out of range.
        """
        run = RunDirectory.open(save_dir)
        if run.options.char_cnn is None and vocab_file is None and run.vocabulary_file.is_file():
            vocab_file = run.vocabulary_file
        model = BidirectionalLanguageModel.from_weights(
            run.options,
            run.weights(checkpoint),
            str(run.path),
            batch_size or _ROWS_OF_STATE,
            stateful=stateful,
        )
        embedder = cls.__new__(cls)
        embedder._set(model, vocab_file, batch_size, batch_tokens, max_cached_words)
        return embedder

    def _set(
        self,
        model: BidirectionalLanguageModel,
        vocab_file: str | Path | None,
        batch_size: int | None,
        batch_tokens: int | None,
        max_cached_words: int | None,
    ) -> None:
        numbers = {
            "batch_size": batch_size, "batch_tokens": batch_tokens, "max_cached_words": max_cached_words
        }  # fmt: skip
        require_positive(**{name: number for name, number in numbers.items() if number is not None})
        if model.stateful and batch_tokens is not None:
            raise OptionsError("batch_tokens: a batch whose state is carried has batch_size sentences")
        self.model = model
        self._batch_tokens = batch_tokens or _BATCH_TOKENS
        if max_cached_words is None:
            max_cached_words = _CACHE_BYTES // (4 * model.options.lstm.projection_dim)
        self.vocabulary = _read_words(model.options, vocab_file)
        words = WordVectors(model.encoder, self.vocabulary, max_cached_words)
        self._embed = PackedEmbedder(model, words, batch_size)

    @property
    def n_layers(self) -> int:
        """Layers of a result."""
        return self.model.n_layers

    @property
    def dim(self) -> int:
        """Width of a result."""
        return self.model.dim

    @property
    def stateful(self) -> bool:
        """Whether the LSTM state is carried from batch to batch."""
        return self.model.stateful

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the model's shape and weights."""
        digest = hashlib.sha256(json.dumps(self.model.options.to_inference_json(), sort_keys=True).encode())
        for variable in self.model.encoder.weights:
            digest.update(variable.numpy().tobytes())
        return digest.hexdigest()

    def embed_sentence(self, sentence: Sequence[str]) -> np.ndarray:
        """Vectors of one sentence, float32 (layers, words, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Vectors of sentences, float32 (layers, words, dim) each.

        Raises:
            DataError: a sentence is a string instead of words; or, if the state is carried, there are
                more sentences than `batch_size`.
        """
        if self.model.stateful and len(batch) > self.model.max_batch_size:
            raise DataError(
                f"{len(batch)} sentences, and the state of {self.model.max_batch_size} is carried; "
                "give smaller batches or a larger batch_size"
            )
        return self.embed_chunk(batch)

    def embed_sentences(self, sentences: Iterable[Sequence[str]]) -> Iterator[np.ndarray]:
        """Vectors of any number of sentences, in their order, as they are made.

        Raises:
            DataError: a sentence is a string instead of words.
        """
        for chunk in self._chunks(sentences):
            yield from self._embed(chunk)

    def embed_file(
        self,
        input_file: str | Path,
        output_file: str | Path,
        *,
        layers: Layers = "all",
        use_sentence_keys: bool = False,
        forget_sentences: bool = False,
        dtype: str = "float32",
        compression: str | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> EmbeddingReport:
        """Embed a file, one sentence a line, words separated by white space; see `bilm.embedding`.

        Raises:
            DataError: a file cannot be read or written, or the output exists.
        """
        form = FileFormat(layers, use_sentence_keys, forget_sentences, dtype=dtype, compression=compression)
        lines = read_lines(Path(input_file))
        return embed_file(self, lines, Path(output_file), form, overwrite=overwrite, resume=resume)

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together, whatever follows.

        With state carried these are whole batches.
        """
        if self.model.stateful and n_sentences % self.model.max_batch_size:
            return False
        return n_tokens >= self._batch_tokens

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Args:
            sentences: words of each.
            layers: which of them, see `bilm.embedding.Layers`.
            dtype: of the result.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.
        """
        return [vectors for chunk in self._chunks(sentences) for vectors in self._embed(chunk, layers, dtype)]

    def _chunks(self, sentences: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
        """Sentences to be embedded together, in their order."""
        return chunks(map(_words_of, count(), sentences), self.is_chunk, lambda words: words)


def _words_of(number: int, sentence: Sequence[str]) -> Sequence[str]:
    if isinstance(sentence, str):
        raise DataError(f"sentence {number} is a string, not a list of words: {quoted(sentence)}")
    return sentence


def _read_words(options: Options, vocab_file: str | Path | None) -> Vocabulary | None:
    """The vocabulary of a word-level model."""
    if options.char_cnn is not None:
        if vocab_file is not None:
            raise OptionsError("vocab_file: the model reads characters and needs no vocabulary")
        return None
    if vocab_file is None:
        raise OptionsError("vocab_file: missing; the model reads words, and its vocabulary has their ids")
    vocabulary = load_vocabulary(vocab_file)
    if vocabulary.size != options.n_tokens_vocab:
        raise VocabularyError(
            f"{vocab_file}: has {vocabulary.size} words, the model {options.n_tokens_vocab}; "
            "give the vocabulary that the model was trained with"
        )
    return vocabulary
