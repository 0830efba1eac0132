"""Sentences to vectors, fast: each distinct word encoded once, rows full of sentences."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from bilm.data.batcher import require_sentences, words_of, words_of_all
from bilm.embedding.embed_file import EmbeddingReport, embed_file
from bilm.embedding.embedded_text import FileFormat, Layers
from bilm.embedding.packed_embedder import PackedEmbedder
from bilm.embedding.packing import chunks
from bilm.embedding.parts_directory import check_embeddings
from bilm.embedding.word_vectors import WordVectors
from bilm.errors import DataError, OptionsError, VocabularyError, require_positive
from bilm.layers.tensorflow_state import Placement
from bilm.models.argument_names import also_takes
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.options import Options
from bilm.options.file import load_inference_options
from bilm.run_directory.directory import RunDirectory
from bilm.text.lines import read_lines, read_stream_lines
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary

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
        cuda_device: -1 for the CPU, or the number of a GPU; by default the first GPU if there is one.

    It can be copied and pickled, its weights with it, but it does not survive a fork: give it to processes
    that ``multiprocessing.get_context("spawn")`` starts.

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
        cuda_device: int | None = None,
    ) -> None:
        if isinstance(vocab_file, int):
            raise OptionsError(f"vocab_file is {vocab_file}; for the device give cuda_device={vocab_file}")
        characters = load_inference_options(options_file).char_cnn is not None
        rows = batch_size or _ROWS_OF_STATE
        placement = Placement(cuda_device)
        with placement.scope():
            model = BidirectionalLanguageModel(
                options_file, weight_file, characters, max_batch_size=rows, stateful=stateful
            )
        self._set(model, vocab_file, placement, batch_size, batch_tokens, max_cached_words)

    @classmethod
    def from_run(
        cls,
        save_dir: str | Path,
        vocab_file: str | Path | None = None,
        *,
        checkpoint: str = "latest",
        weights: str | None = None,
        stateful: bool = False,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        max_cached_words: int | None = None,
        cuda_device: int | None = None,
    ) -> ElmoEmbedder:
        """Make one of a checkpoint of a run, ours or bilm-tf's.

        Args:
            save_dir: the run directory.
            vocab_file: see the class, as for the arguments not described here.
            checkpoint: ``latest``, ``best`` or a step, see `RunDirectory.choose`.
            weights: ``raw``, or ``averaged`` for their averages over the training; None for the averages
                where the run has kept some.
            stateful: see the class.
            batch_size: see the class.
            batch_tokens: see the class.
            max_cached_words: see the class.
            cuda_device: see the class.

        Raises:
            BilmError: it is not a run, or an argument is out of range.
        """
        run = RunDirectory.open(save_dir)
        if run.options.char_cnn is None and vocab_file is None and run.vocabulary_file.is_file():
            vocab_file = run.vocabulary_file
        placement = Placement(cuda_device)
        with placement.scope():
            model = BidirectionalLanguageModel.from_weights(
                run.options,
                run.weights(checkpoint, weights),
                str(run.path),
                batch_size or _ROWS_OF_STATE,
                stateful=stateful,
            )
        embedder = cls.__new__(cls)
        embedder._set(model, vocab_file, placement, batch_size, batch_tokens, max_cached_words)
        return embedder

    def _set(
        self,
        model: BidirectionalLanguageModel,
        vocab_file: str | Path | Vocabulary | None,
        placement: Placement,
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
        self._numbers, self._cuda_device = numbers, placement.cuda_device
        self.model = model
        self._batch_tokens = batch_tokens or _BATCH_TOKENS
        if max_cached_words is None:
            max_cached_words = _CACHE_BYTES // (4 * model.options.lstm.projection_dim)
        self.vocabulary = _read_words(model.options, vocab_file)
        words = WordVectors(model.encoder, self.vocabulary, max_cached_words)
        self._embed = PackedEmbedder(model, words, batch_size, placement)

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of again, for pickle and copy; vectors that it remembers are left out."""
        return {
            "model": self.model.__getstate__(),
            "vocabulary": self.vocabulary,
            "cuda_device": self._cuda_device,
            "numbers": self._numbers,
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Make it again."""
        placement = Placement(saved["cuda_device"])
        model = BidirectionalLanguageModel.__new__(BidirectionalLanguageModel)
        with placement.scope():
            model.__setstate__(saved["model"])
        self._set(model, saved["vocabulary"], placement, **saved["numbers"])

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

    def get_output_dim(self) -> int:
        """`dim`, by AllenNLP's name."""
        return self.dim

    def embed_sentence(self, sentence: Sequence[str]) -> np.ndarray:
        """Vectors of one sentence, float32 (layers, words, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Vectors of sentences, float32 (layers, words, dim) each.

        Raises:
            DataError: a sentence is not words; or, if the state is carried, there are more sentences than
                `batch_size`.
        """
        sentences = words_of_all(batch)
        if self.model.stateful and len(sentences) > self.model.max_batch_size:
            raise DataError(
                f"{len(sentences)} sentences, and the state of {self.model.max_batch_size} is carried; "
                "give smaller batches or a larger batch_size"
            )
        return self.embed_chunk(sentences)

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of sentences in one array, with zeros after the last word, as AllenNLP's method.

        Returns:
            float32 (sentences, layers, words, dim), and int64 (sentences, words), 1 where there is a word.

        Raises:
            DataError: as `embed_batch`, or there is no sentence.
        """
        found = self.embed_batch(batch)
        if not found:
            raise DataError("there is no sentence to make a batch of")
        lengths = np.array([vectors.shape[1] for vectors in found])
        mask = np.arange(lengths.max()) < lengths[:, None]
        embeddings = np.zeros((len(found), self.n_layers, lengths.max(), self.dim), np.float32)
        for row, vectors in zip(embeddings, found, strict=True):
            row[:, : vectors.shape[1]] = vectors
        return embeddings, mask.astype(np.int64)

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int | None = None
    ) -> Iterator[np.ndarray]:
        """Vectors of any number of sentences, in their order, as they are made.

        Args:
            sentences: words of each.
            batch_size: as for the class, for these sentences; no more than that if the state is carried.

        Raises:
            OptionsError: `batch_size` is out of range.
            DataError: a sentence is not words, which is noticed when its turn comes.
        """
        embedder = self._with_rows(batch_size)
        chunks = embedder._chunks(require_sentences(sentences))
        return (vectors for chunk in chunks for vectors in embedder._embed(chunk))

    @also_takes({"output_file_path": "output_file", "output_format": "layers"})
    def embed_file(
        self,
        input_file: str | Path | IO[str] | IO[bytes],
        output_file: str | Path,
        layers: Layers = "all",
        batch_size: int | None = None,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        *,
        dtype: str = "float32",
        compression: str | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> EmbeddingReport:
        """Embed a file, one sentence a line, words separated by white space; see `bilm.embedding.embed_file`.

        The file may be open. AllenNLP's ``output_file_path`` and ``output_format`` are taken for
        `output_file` and `layers`.

        Raises:
            DataError: a file cannot be read or written, or the output exists or is the input.
            OptionsError: there are no such layers, or `batch_size` is out of range.
        """
        check_embeddings(Path(output_file), overwrite, resume, [_place_of(input_file)])
        form = FileFormat(layers, use_sentence_keys, forget_sentences, dtype=dtype, compression=compression)
        return embed_file(
            self._with_rows(batch_size),
            _lines_of(input_file),
            Path(output_file),
            form,
            overwrite=overwrite,
            resume=resume,
        )

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together, whatever follows.

        With state carried these are whole batches.
        """
        if self.model.stateful and n_sentences % (self._embed.max_rows or 1):
            return False
        return n_tokens >= self._batch_tokens

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Args:
            sentences: words of each.
            layers: which of them, see `bilm.embedding.embedded_text.Layers`.
            dtype: of the result.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.
        """
        return [vectors for chunk in self._chunks(sentences) for vectors in self._embed(chunk, layers, dtype)]

    def _chunks(self, sentences: Iterable[Iterable[str]]) -> Iterator[list[list[str]]]:
        """Sentences to be embedded together, in their order."""
        return chunks(map(words_of, count(), sentences), self.is_chunk, lambda words: words)

    def _with_rows(self, batch_size: int | None) -> ElmoEmbedder:
        """This embedder, with another number of sentences side by side if it is given."""
        if batch_size is None:
            return self
        require_positive(batch_size=batch_size)
        if self.model.stateful and batch_size > self.model.max_batch_size:
            raise OptionsError(
                f"batch_size is {batch_size}, and the state of {self.model.max_batch_size} sentences is "
                "carried; give the embedder a larger batch_size"
            )
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"_embed": self._embed.with_rows(batch_size)}
        return other


def _lines_of(file: str | Path | IO[str] | IO[bytes]) -> Iterator[str]:
    """The lines of a file, which may be open."""
    if isinstance(file, (str, Path)):
        return read_lines(file)
    name = str(getattr(file, "name", "an open file"))
    if isinstance(file, io.TextIOBase):
        return (line.rstrip("\n") for line in file)
    if hasattr(file, "read1"):
        return read_stream_lines(cast(BinaryIO, file), name)
    raise DataError(f"input_file must be the name of a file, or an open one, got {type(file).__name__}")


def _place_of(file: str | Path | IO[str] | IO[bytes]) -> str | Path | int | None:
    """What a file is known by: its name or, where it is open, its descriptor, if there is one."""
    if isinstance(file, (str, Path)):
        return file
    try:
        return file.fileno()
    except (AttributeError, OSError):
        return None


def _read_words(options: Options, vocab_file: str | Path | Vocabulary | None) -> Vocabulary | None:
    """The vocabulary of a word-level model."""
    if options.char_cnn is not None:
        if vocab_file is not None:
            raise OptionsError("vocab_file: the model reads characters and needs no vocabulary")
        return None
    if vocab_file is None:
        raise OptionsError("vocab_file: missing; the model reads words, and its vocabulary has their ids")
    vocabulary = vocab_file if isinstance(vocab_file, Vocabulary) else load_vocabulary(vocab_file)
    if vocabulary.size != options.n_tokens_vocab:
        raise VocabularyError(
            f"{vocab_file}: has {vocabulary.size} words, the model {options.n_tokens_vocab}; "
            "give the vocabulary that the model was trained with"
        )
    return vocabulary
