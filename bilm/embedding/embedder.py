"""Sentences to vectors, fast: each distinct word is encoded once, and sentences are packed.

Below `ElmoEmbedder` are bilm-tf's two functions that write vectors to a file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from bilm.backend.keras_backend import on_device
from bilm.data import batcher, packing
from bilm.embedding.hdf5_output import EmbeddingReport, FileFormat, check_embeddings, embed_file
from bilm.embedding.packed_embedder import Embedder, PackedEmbedder
from bilm.errors import DataError, OptionsError, require_positive
from bilm.io import lines, outputs
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.models.sentence_encoder import WordVectors, require_characters
from bilm.options.file import load_inference_options
from bilm.run_directory.model_source import ModelArguments
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, load_vocabulary
from bilm.weights import distribution, hdf5_file

if TYPE_CHECKING:
    from typing_extensions import Unpack

_ALLENNLP = {"output_file_path": "output_file", "output_format": "layers"}


def _takes_allennlp_names(embed_file: Callable[..., EmbeddingReport]) -> Callable[..., EmbeddingReport]:
    """Let `ElmoEmbedder.embed_file` take two keyword arguments by AllenNLP's names too."""

    @functools.wraps(embed_file)
    def call(*args: Any, **kwargs: Any) -> EmbeddingReport:  # noqa: ANN401
        return embed_file(*args, **{_ALLENNLP.get(name, name): value for name, value in kwargs.items()})

    return call


ROWS_OF_STATE = 64
"""Rows whose state is carried by default: what AllenNLP's ``elmo`` command had for --batch-size."""


class EmbedderSettings(TypedDict, total=False):
    """The keyword arguments of `ElmoEmbedder`, which describes them."""

    stateful: bool
    batch_size: int | None
    batch_tokens: int | None
    max_cached_words: int | None
    cuda_device: int | Sequence[int] | None


def _load(
    arguments: ModelArguments, vocab_file: str | Path | None, settings: EmbedderSettings
) -> list[PackedEmbedder]:
    """Load a model onto its devices, once the settings have been checked; see `ElmoEmbedder.of_arguments`."""
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    stateful, cuda_device = given.pop("stateful", False), given.pop("cuda_device", None)
    require_positive(**given)
    devices = [cuda_device] if cuda_device is None or isinstance(cuda_device, int) else list(cuda_device)
    if not devices:
        raise OptionsError("cuda_device: names no device")
    for device in devices:
        on_device(device)  # is there
    if stateful and len(devices) > 1:
        raise OptionsError("cuda_device: with stateful=True, a state is carried on one device; give one")
    if stateful and "batch_tokens" in given:
        raise OptionsError("batch_tokens: with stateful=True, give batch_size instead")
    source = arguments.open()
    rows = given.get("batch_size", ROWS_OF_STATE)
    with on_device(devices[0]):
        model = BidirectionalLanguageModel.from_weights(
            source.options, source.arrays(), source.source, rows, stateful=stateful
        )
    vocabulary = None
    if source.options.char_cnn is None:
        vocabulary = source.require_vocabulary(None if vocab_file is None else Path(vocab_file))
        distribution.require_size(vocabulary, model.options.n_tokens_vocab, source.source)
    elif vocab_file is not None:
        raise OptionsError("vocab_file: the model reads characters and needs no vocabulary")
    first = PackedEmbedder(model, vocabulary, devices[0], given)
    return [first, *map(first.copied_to, devices[1:])]


class ElmoEmbedder(Embedder):
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
        given = locals()
        if isinstance(vocab_file, int):
            raise OptionsError(
                f"vocab_file is {vocab_file}; to choose a device give cuda_device={vocab_file}"
            )
        settings: Any = {name: given[name] for name in EmbedderSettings.__annotations__}
        arguments = ModelArguments(options_file=options_file, weight_file=weight_file)
        super().__init__(_load(arguments, vocab_file, settings))

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
        return cls._of(_load(arguments, vocab_file, settings))

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
        sentences = batcher.words_of_all(batch)
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
        checked = map(batcher.words_of, count(), batcher.require_sentences(sentences))
        embedded = self._with_rows(batch_size).in_chunks(checked, lambda words: words)
        return (vectors for chunk in embedded for _, vectors in chunk)

    @_takes_allennlp_names
    def embed_file(
        self,
        input_file: lines.TextFile,
        output_file: str | Path,
        layers: packing.Layers = "all",
        batch_size: int | None = None,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        *,
        dtype: str = "float32",
        compression: str | None = None,
        overwrite: bool = False,
        resume: bool = False,
    ) -> EmbeddingReport:
        """Embed a file of one whitespace-tokenised sentence per line; see `bilm.embedding.hdf5_output`.

        The file may be open. AllenNLP's ``output_file_path`` and ``output_format`` are taken for
        `output_file` and `layers`.

        Raises:
            DataError: a file cannot be read or written, or the output exists or is the input.
            OptionsError: there are no such layers, or `batch_size` is out of range.
        """
        check_embeddings(Path(output_file), overwrite, resume, [lines.place_of(input_file)])
        form = FileFormat(layers, use_sentence_keys, forget_sentences, dtype=dtype, compression=compression)
        return embed_file(
            self._with_rows(batch_size),
            lines.lines_of(input_file),
            Path(output_file),
            form,
            overwrite=overwrite,
            resume=resume,
        )

    def _with_rows(self, batch_size: int | None) -> ElmoEmbedder:
        """This embedder, with another number of sentences side by side if it is given."""
        if batch_size is None:
            return self
        return self._of([embedder.with_rows(batch_size) for embedder in self._copies])


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
    outputs.check_output(outfile, True, [vocab_file, options_file, weight_file])
    model = BidirectionalLanguageModel(options_file, weight_file)
    width = require_characters(model.options)
    vocabulary = UnicodeCharsVocabulary(vocab_file, width)
    vectors = WordVectors(model.encoder, vocabulary, vocabulary.size)(vocabulary.words)
    hdf5_file.write_token_embeddings(outfile, vectors)


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
    outputs.check_output(outfile, True, [vocab_file, dataset_file, options_file, weight_file])
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
