"""Sentences to vectors, fast: each distinct word is encoded once, and sentences are packed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from bilm.backend.keras_backend import Placement
from bilm.data.batcher import require_sentences, words_of, words_of_all
from bilm.embedding.embed_file import EmbeddingReport, FileFormat, embed_file
from bilm.embedding.hdf5_output import check_embeddings
from bilm.embedding.packed_embedder import Limits, PackedEmbedder
from bilm.embedding.packing import Layers, chunks
from bilm.embedding.word_vectors import read_vocabulary
from bilm.errors import DataError, OptionsError
from bilm.io.background import map_in_order
from bilm.io.lines import TextFile, lines_of, place_of
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.models.checked_ids import also_takes
from bilm.run_directory.model_source import ModelArguments
from bilm.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Replicas:
    """Embedders of the same model; as many threads may call it at the same time.

    Args:
        embedders: at least one.
    """

    def __init__(self, embedders: Sequence[PackedEmbedder]) -> None:
        self.embedders = tuple(embedders)
        self.first = self.embedders[0]
        self._free: SimpleQueue[PackedEmbedder] = SimpleQueue()
        for embedder in self.embedders:
            self._free.put(embedder)

    def __reduce__(self) -> tuple[type[Replicas], tuple[Sequence[PackedEmbedder]]]:
        """Pickle and copy the embedders."""
        return Replicas, (self.embedders,)

    def __call__(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """As `PackedEmbedder`, by the first that is free."""
        embedder = self._free.get()
        try:
            return embedder(sentences, layers, dtype)
        finally:
            self._free.put(embedder)

    def with_rows(self, batch_size: int) -> Replicas:
        """See `PackedEmbedder.with_rows`."""
        return Replicas([embedder.with_rows(batch_size) for embedder in self.embedders])


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


class ElmoEmbedder:
    """Sentences to the vectors of a pretrained biLM, as AllenNLP 0.9's class of this name.

    A vector depends on its own sentence alone, unless `stateful`.

    Args:
        options_file: ``options.json`` that belongs to the weights.
        weight_file: HDF5, as bilm-tf, AllenNLP and ``bilm dump-weights`` write it.
        vocab_file: words of a word-level model; a character-level model needs none.
        stateful: carry the LSTM state from batch to batch, as AllenNLP did: a batch is then
            `batch_size` sentences in the order given.
        batch_size: maximum rows of packed sentences, 128 by default; if `stateful`, sentences per batch, 64
            by default.
        batch_tokens: tokens computed together, 16384 by default, which determines the memory needed; whole
            sentences, so there may be more. Of longer sentences memory holds the vectors, but the network
            takes them in windows. Not with `stateful`.
        max_cached_words: distinct words whose vectors are cached; 256 MB of them by default.
        cuda_device: -1 for the CPU, or the number of a GPU; by default the first GPU if there is one. Where
            several are given, each has a copy of the model, and long texts are shared out between them.

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
        cuda_device: int | Sequence[int] | None = None,
    ) -> None:
        if isinstance(vocab_file, int):
            raise OptionsError(
                f"vocab_file is {vocab_file}; to choose a device give cuda_device={vocab_file}"
            )
        settings = EmbedderSettings(
            stateful=stateful,
            batch_size=batch_size,
            batch_tokens=batch_tokens,
            max_cached_words=max_cached_words,
            cuda_device=cuda_device,
        )
        arguments = ModelArguments(options_file=options_file, weight_file=weight_file)
        self._embed = load_embedder(arguments, vocab_file, settings)

    @classmethod
    def from_model(
        cls,
        model: str | Path,
        vocab_file: str | Path | None = None,
        *,
        checkpoint: str | None = None,
        weights: str | None = None,
        **settings: Unpack[EmbedderSettings],
    ) -> ElmoEmbedder:
        """Make one of a model as it is distributed, by its path alone.

        Args:
            model: a folder or a ZIP archive of ``options.json``, HDF5 weights and perhaps ``vocab.txt`` or
                ``vocab.txt.gz``, as on vectors.nlpl.eu; a run directory; or a file of weights with its
                options beside it. Nothing is unpacked.
            vocab_file: of a word-level model, instead of the one that comes with it.
            checkpoint: of a run, see `from_run`.
            weights: of a run, see `from_run`.
            **settings: the keyword arguments of the class.

        Raises:
            BilmError: there is no such model, or it is another program's, which is then named; or an
                argument is out of range.

        Example:
            >>> ElmoEmbedder.from_model("weights.hdf5").embed_sentence(["Time", "flies"]).shape
            (3, 2, 24)
        """
        arguments = ModelArguments(model=model, checkpoint=checkpoint, weights=weights)
        return cls.of_arguments(arguments, vocab_file, **settings)

    @classmethod
    def from_run(
        cls,
        save_dir: str | Path,
        vocab_file: str | Path | None = None,
        *,
        checkpoint: str = "latest",
        weights: str | None = None,
        **settings: Unpack[EmbedderSettings],
    ) -> ElmoEmbedder:
        """Make one of a checkpoint of a run, ours or bilm-tf's.

        Args:
            save_dir: the run directory.
            vocab_file: see the class.
            checkpoint: ``latest``, ``best`` or a step, see `RunDirectory.choose`.
            weights: ``raw``, or ``averaged`` for their averages over the training; None for the averages
                where the run has kept some.
            **settings: the keyword arguments of the class.

        Raises:
            BilmError: it is not a run, or an argument is out of range.
        """
        arguments = ModelArguments(save_dir=save_dir, checkpoint=checkpoint, weights=weights)
        return cls.of_arguments(arguments, vocab_file, **settings)

    @classmethod
    def of_arguments(
        cls,
        arguments: ModelArguments,
        vocab_file: str | Path | None = None,
        **settings: Unpack[EmbedderSettings],
    ) -> ElmoEmbedder:
        """Make one of what the arguments of a call or the flags of a command name.

        Args:
            arguments: by which the model is found, once the settings have been checked.
            vocab_file: see `from_model`.
            **settings: the keyword arguments of the class.

        Raises:
            BilmError: as `from_model`.
        """
        return cls._of(load_embedder(arguments, vocab_file, settings))

    @classmethod
    def _of(cls, embed: Replicas) -> ElmoEmbedder:
        embedder = cls.__new__(cls)
        embedder._embed = embed
        return embedder

    @property
    def model(self) -> BidirectionalLanguageModel:
        """What makes the vectors of whole batches."""
        return self._embed.first.model

    @property
    def vocabulary(self) -> Vocabulary | None:
        """That of a word-level model."""
        return self._embed.first.vocabulary

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
        return list(self.embed_sentences(sentences))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of sentences in one array, with zeros after the last word, as AllenNLP's method.

        Returns:
            float32 (sentences, layers, words, dim), and int64 (sentences, words), 1 where there is a word.

        Raises:
            DataError: as `embed_batch`, or there is no sentence.
        """
        found = self.embed_batch(batch)
        if not found:
            raise DataError("there are no sentences to batch")
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
        found = chunks(
            map(words_of, count(), require_sentences(sentences)), embedder.is_chunk, lambda words: words
        )
        embedded = map_in_order(embedder._embed, found, embedder.n_at_once)
        return (vectors for chunk in embedded for vectors in chunk)

    @also_takes({"output_file_path": "output_file", "output_format": "layers"})
    def embed_file(
        self,
        input_file: TextFile,
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
        """Embed a file of one whitespace-tokenised sentence per line; see `bilm.embedding_files`.

        The file may be open. AllenNLP's ``output_file_path`` and ``output_format`` are taken for
        `output_file` and `layers`.

        Raises:
            DataError: a file cannot be read or written, or the output exists or is the input.
            OptionsError: there are no such layers, or `batch_size` is out of range.
        """
        check_embeddings(Path(output_file), overwrite, resume, [place_of(input_file)])
        form = FileFormat(layers, use_sentence_keys, forget_sentences, dtype=dtype, compression=compression)
        return embed_file(
            self._with_rows(batch_size),
            lines_of(input_file),
            Path(output_file),
            form,
            overwrite=overwrite,
            resume=resume,
        )

    @property
    def n_at_once(self) -> int:
        """Chunks that are embedded at the same time: the number of its devices."""
        return len(self._embed.embedders)

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together; see `PackedEmbedder.is_chunk`."""
        return self._embed.first.is_chunk(n_sentences, n_tokens)

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Args:
            sentences: words of each.
            layers: which of them, see `bilm.embedding.embed_file.Layers`.
            dtype: of the result.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.
        """
        return self._embed(sentences, layers, dtype)

    def _with_rows(self, batch_size: int | None) -> ElmoEmbedder:
        """This embedder, with another number of sentences side by side if it is given."""
        return self if batch_size is None else self._of(self._embed.with_rows(batch_size))
