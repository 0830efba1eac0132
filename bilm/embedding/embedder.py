"""Fast embedding of sentences: each distinct word is encoded once, and sentences are packed.

The module also has bilm-tf's two functions that write vectors to a file.
"""

import functools
import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from bilm.backend.keras_backend import keras, on_device
from bilm.data import batcher, packing
from bilm.embedding.chunk_embedder import ChunkEmbedder, EmbedderSettings, PackedModel, SoftmaxRows
from bilm.embedding.hdf5_output import EmbeddingReport, FileFormat, check_embeddings, embed_file
from bilm.embedding.word_output import WordOccurrence, mean_vectors, occurrences
from bilm.errors import DataError, OptionsError, require_flags, require_positive, require_words
from bilm.io import PathLike, lines, outputs, run_files
from bilm.models import bidirectional_lm, sentence_encoder
from bilm.options import Precision
from bilm.options.options_file import load_inference_options
from bilm.run_directory.files import vocabulary_files
from bilm.run_directory.model_source import ModelArguments
from bilm.text.extract import raw_lines
from bilm.text.pipeline import TextPipeline
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from bilm.weights import distribution, dump, hdf5_file, names
from bilm.weights.distribution import StoredModel

_ALLENNLP = {"output_file_path": "output_file", "output_format": "layers"}


def _takes_allennlp_names(embed_file: Callable[..., EmbeddingReport]) -> Callable[..., EmbeddingReport]:
    """Let `ElmoEmbedder.embed_file` accept AllenNLP's names of two keyword arguments."""

    @functools.wraps(embed_file)
    def call(*args: Any, **kwargs: Any) -> EmbeddingReport:  # noqa: ANN401
        return embed_file(*args, **{_ALLENNLP.get(name, name): value for name, value in kwargs.items()})

    return call


class EmbedderKeywords(TypedDict, total=False):
    """Keyword arguments of `ElmoEmbedder`, for editors; `EmbedderSettings` checks them."""

    stateful: bool
    batch_size: int | None
    batch_tokens: int | None
    max_cached_words: int | None
    cuda_device: int | Sequence[int] | None
    precision: str | None
    with_softmax: bool


class EmbeddedSentence(NamedTuple):
    """A sentence of a raw text.

    Attributes:
        words: words of the sentence.
        vectors: float32 (layers, words, dim), or of another shape, see `ElmoEmbedder.embed_sentences`.
    """

    words: list[str]
    vectors: np.ndarray


class ElmoEmbedder(ChunkEmbedder):
    """Embedder of sentences with a pretrained biLM, like AllenNLP 0.9's class of this name.

    A vector depends on its own sentence alone, unless `stateful`.

    Args:
        options_file: ``options.json`` of the weights.
        weight_file: HDF5 weights, or the state dict (``.th``) or archive (``model.tar.gz``) of an AllenNLP
            model with an ELMo in it.
        vocab_file: vocabulary, for a word-level model or `with_softmax`; otherwise refused.
        model: path of a model, instead of the two files, see `from_model`; or the arguments that name it, or
            the opened model.
        stateful: carry the LSTM state from batch to batch, as AllenNLP did; a batch is then `batch_size`
            consecutive sentences.
        batch_size: maximum rows of packed sentences, 128 by default; if `stateful`, sentences per batch, 64
            by default.
        batch_tokens: tokens computed together, rounded up to whole sentences, 16384 by default; it
            determines the memory needed. Not with `stateful`.
        max_cached_words: distinct words whose vectors are cached; by default as many as fit in 256 MB.
        cuda_device: -1 for the CPU, or the number of a GPU; by default the first GPU if there is one. With
            several numbers, each device has a copy of the model, and long texts are divided among them.
        precision: data type of matrix products, ``float32`` by default; with ``bfloat16`` vectors have two to
            three digits.
        with_softmax: let ``layers="concat"`` add the softmax row of each word, or that of ``<UNK>``.

    Attributes:
        steps: steps from raw text to sentences of the model, or that they are unknown.
        files: files that the model was read from; none of a copy.

    An embedder can be copied and pickled, with its weights, but not used in a fork: pass it to processes that
    ``multiprocessing.get_context("spawn")`` starts.

    Raises:
        BilmError: a file cannot be read, the files do not fit each other, or an argument is out of range.

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
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        vocab_file: str | Path | None = None,
        *,
        model: str | Path | ModelArguments | StoredModel | None = None,
        **settings: Unpack[EmbedderKeywords],
    ) -> None:
        if isinstance(vocab_file, int):
            raise OptionsError(
                f"vocab_file is {vocab_file}; to choose a device give cuda_device={vocab_file}"
            )
        checked = EmbedderSettings(**settings)
        if not isinstance(model, ModelArguments | StoredModel):
            model = ModelArguments(model, options_file=options_file, weight_file=weight_file)
        source = model.open() if isinstance(model, ModelArguments) else model
        vocabulary = rows = None
        reads_words, with_softmax = source.options.char_cnn is None, checked.with_softmax
        n_predicted = source.predicting_options().n_tokens_vocab if with_softmax else None
        if reads_words or with_softmax:
            vocabulary = source.own_vocabulary(vocab_file, n_predicted, with_characters=False)
        elif vocab_file is not None:
            raise OptionsError(
                "`vocab_file`: the model reads characters and needs no vocabulary; leave it out"
            )
        arrays, models, precision = source.arrays(), [], checked.precision or Precision.FLOAT32
        if with_softmax and vocabulary is not None:
            kernel = arrays["softmax/W" if "softmax/W" in arrays else "encoder/embedding"]
            rows = SoftmaxRows(vocabulary, kernel)
        for device in checked.devices:
            with on_device(device):
                encoder = sentence_encoder.make_encoder(source.options, arrays, source.source, precision)
            models.append(PackedModel(encoder, vocabulary if reads_words else None, device, checked, rows))
        super().__init__(models, checked.batch_size)
        self.steps = source.steps
        self.files = [Path(file).absolute() for file in (*source.files, vocab_file) if file is not None]

    @classmethod
    def from_model(
        cls,
        model: str | Path,
        vocab_file: str | Path | None = None,
        *,
        checkpoint: PathLike | int | None = None,
        **settings: Unpack[EmbedderKeywords],
    ) -> "ElmoEmbedder":
        """Load a model by its path alone.

        Args:
            model: a folder or an archive with ``options.json``, weights and perhaps ``vocab.txt`` or
                ``vocab.txt.gz``, as on vectors.nlpl.eu; a run directory; or a file of weights with its
                options beside it. Archives are not unpacked.
            vocab_file: vocabulary of a word-level model, instead of the one that comes with it.
            checkpoint: checkpoint of a run, see `RunDirectory.choose`; None for the newest.
            **settings: keyword arguments of the class.

        Raises:
            BilmError: there is no such model, it is another program's, which the message then names, or an
                argument is out of range.

        Example:
            >>> ElmoEmbedder.from_model("weights.hdf5").embed_sentence(["Time", "flies"]).shape
            (3, 2, 24)
        """
        arguments = ModelArguments(model=model, checkpoint=checkpoint)
        return cls(model=arguments, vocab_file=vocab_file, **settings)

    def __getstate__(self) -> dict[str, Any]:
        """Return the arguments, for pickle and copy."""
        return super().__getstate__() | {"steps": self.steps, "files": []}

    @functools.cached_property
    def pipeline(self) -> TextPipeline:
        """Steps from raw text to sentences, as the training text was made.

        Raises:
            ArgumentError: the model has none, because it was not trained on a corpus of `bilm.prepare`.
            DataError: the model's ``text.json`` is damaged, or of a later version.
        """
        return self.steps.require()

    @classmethod
    def from_bytes(cls, archive: bytes, **settings: Unpack[EmbedderKeywords]) -> "ElmoEmbedder":
        """Load the result of `to_bytes`, or another ZIP archive of a model.

        Args:
            archive: content of the archive.
            **settings: keyword arguments of the class.

        Raises:
            BilmError: the archive does not hold a model, or an argument is out of range.
        """
        with TemporaryDirectory() as folder:
            file = Path(folder, "elmo.zip")
            file.write_bytes(archive)
            return cls.from_model(file, **settings)

    def to_bytes(self) -> bytes:
        """Return the model, without its softmax, as a ZIP archive.

        Written to a file, it is a model that `from_model` and ``--model`` take.
        """
        encoder, content = self.model.encoder, io.BytesIO()
        own, weights = names.dump_names(encoder.options), encoder.named_weights()
        arrays = {n.hdf5: keras.ops.convert_to_numpy(weights[n.own]) for n in own if n.own in weights}
        members: dict[str, Any] = {distribution.WEIGHTS_NAME: hdf5_file.hdf5_content(arrays)}
        members[distribution.OPTIONS_NAME] = dump.options_text(encoder.options)
        if self.vocabulary is not None:
            name = distribution.VOCABULARY_NAME
            members[name] = vocabulary_files(self.vocabulary)[name]
        if self.steps.content is not None:
            members[run_files.TEXT_FILE] = self.steps.content
        with zipfile.ZipFile(content, "w") as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name), data)  # without the time: equal models, equal bytes
        return content.getvalue()

    def get_output_dim(self) -> int:
        """Return `dim`, by AllenNLP's name."""
        return self.dim

    def embed_sentence(self, sentence: Sequence[str]) -> np.ndarray:
        """Embed one sentence: float32 (layers, words, dim)."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Embed sentences: float32 (layers, words, dim) each.

        Raises:
            DataError: a sentence is not a list of words; or, if `stateful`, there are more sentences than
                `batch_size`.
        """
        sentences = list(batcher.words_of_each(batch))
        self.model.require_states(len(sentences), "sentences", "smaller batches or a larger batch_size")
        return list(self.embed_sentences(sentences))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Embed sentences into one array padded with zeros, like AllenNLP's method.

        Returns:
            float32 (sentences, layers, words, dim), and int64 (sentences, words), 1 for words, else 0.

        Raises:
            DataError: see `embed_batch`; or there are no sentences.
        """
        embedded = self.embed_batch(batch)
        if not embedded:
            raise DataError("there are no sentences to batch")
        lengths = np.array([vectors.shape[1] for vectors in embedded])
        mask = np.arange(lengths.max()) < lengths[:, None]
        embeddings = np.zeros((len(embedded), self.n_layers, lengths.max(), self.dim), np.float32)
        for row, vectors in zip(embeddings, embedded, strict=True):
            row[:, : vectors.shape[1]] = vectors
        return embeddings, mask.astype(np.int64)

    def embed_sentences(
        self,
        sentences: Iterable[Sequence[str]],
        batch_size: int | None = None,
        *,
        layers: packing.Layers = "all",
        pooling: str | None = None,
    ) -> Iterator[np.ndarray]:
        """Embed any number of sentences and yield their vectors in order, as they are computed.

        Args:
            sentences: the words of each sentence.
            batch_size: `batch_size` for this call; if `stateful`, not more than the embedder's.
            layers: ``"all"``, ``"top"``, ``"average"``, the number of a layer, 0 for the word vectors;
                ``"characters"`` for the output of the character convolutions, before highways and projection;
                or ``"concat"`` for all layers and then, unless the model is word-level, the convolutions, end
                to end: ``n_layers * dim`` dimensions and one for each filter.
            pooling: ``"mean"`` or ``"max"`` over the words of a sentence, which leaves out their dimension;
                a sentence without words gets zeros.

        Yields:
            float32 (layers, words, dim) for ``"all"``, else (words, dim).

        Raises:
            OptionsError: `batch_size` is out of range, or there is no such pooling.
            OptionsError, DataError: when a sentence is reached: there are no such layers, or the sentence is
                not a list of words.
        """
        form = packing.VectorForm(layers, pooling=pooling)
        embedder = self.with_rows(batch_size)
        embedded = embedder.in_chunks(batcher.words_of_each(sentences), lambda words: words, form)
        return (vectors for chunk in embedded for _, vectors in chunk)

    def embed_text(
        self, text: str, *, layers: packing.Layers = "all", pooling: str | None = None
    ) -> list[EmbeddedSentence]:
        """Embed raw text: find its sentences and words as those of the training text, see `pipeline`.

        Args:
            text: raw text; blank lines separate paragraphs.
            layers: as for `embed_sentences`.
            pooling: as for `embed_sentences`.

        Returns:
            The words and the vectors of each sentence.

        Raises:
            ArgumentError: as `pipeline`.
            OptionsError: there are no such layers or pooling.
        """
        sentences = [*self.pipeline.sentences(text)]
        vectors = self.embed_sentences(sentences, layers=layers, pooling=pooling)
        return [EmbeddedSentence(*pair) for pair in zip(sentences, vectors, strict=True)]

    def embed_words(
        self,
        sentences: Iterable[Sequence[str]],
        words: Iterable[str] | None = None,
        *,
        layers: packing.Layers = "average",
    ) -> Iterator[WordOccurrence]:
        """Yield the vectors of words at all their occurrences; only sentences with one are computed.

        Args:
            sentences: the words of each sentence.
            words: words to find, as they are written; None for every word.
            layers: as for `embed_sentences`.

        Raises:
            OptionsError: there are no such layers, or the embedder is stateful and `words` is given.
            DataError: `words` is not a list of words; nor is a sentence, raised when it is reached.
        """
        chosen = None if words is None else require_words("`words`", words)
        read = batcher.words_of_each(sentences)
        report = EmbeddingReport()
        return chain.from_iterable(occurrences(self, read, chosen, packing.VectorForm(layers), report))

    def word_vectors(
        self,
        sentences: Iterable[Sequence[str]],
        words: Iterable[str] | None = None,
        *,
        layers: packing.Layers = "average",
        min_count: int = 1,
    ) -> dict[str, np.ndarray]:
        """Return one vector for each word, the mean over its occurrences: float32 (dim,), or (layers, dim).

        Args:
            sentences: see `embed_words`.
            words: see `embed_words`.
            layers: as for `embed_sentences`.
            min_count: leave out words with fewer occurrences.

        Returns:
            Vectors by word, the most frequent word first.

        Raises:
            BilmError: as `embed_words`; or `min_count` is less than 1.
        """
        require_positive(min_count=min_count)
        return mean_vectors(self.embed_words(sentences, words, layers=layers), min_count)

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
        pooling: str | None = None,
        dtype: str = "float32",
        compression: str | None = None,
        raw: bool = False,
        overwrite: bool = False,
        resume: bool = False,
    ) -> EmbeddingReport:
        """Embed a file of one whitespace-tokenised sentence per line; see `bilm.embedding.hdf5_output`.

        `input_file` may be an open file. `output_file` and `layers` can also be given by AllenNLP's names,
        ``output_file_path`` and ``output_format``. `layers` and `pooling` are those of `embed_sentences`.
        With `raw`, a path is raw text of any kind that `bilm.prepare` reads, except CoNLL-U, and an open file
        is plain text; lines are then its sentences.

        Raises:
            DataError: a file cannot be read or written, or the output exists or is the input.
            OptionsError: there are no such layers, or an argument is out of range or not True or False.
        """
        require_flags(forget_sentences=forget_sentences, use_sentence_keys=use_sentence_keys)
        require_flags(raw=raw, overwrite=overwrite, resume=resume)
        check_embeddings(Path(output_file), overwrite, resume, [lines.place_of(input_file), *self.files])
        keys = (use_sentence_keys, forget_sentences)
        form = FileFormat(layers, dtype, pooling, *keys, compression=compression)
        sentences = (
            self.pipeline.read(raw_lines(input_file, self.pipeline)) if raw else lines.lines_of(input_file)
        )
        write = functools.partial(embed_file, overwrite=overwrite, resume=resume, with_sentences=raw)
        return write(self.with_rows(batch_size), sentences, Path(output_file), form)


def dump_token_embeddings(
    vocab_file: str | Path, options_file: str | Path, weight_file: str | Path, outfile: str | Path
) -> None:
    """Write the context-independent vector of every word of a vocabulary, like bilm-tf's function.

    Args:
        vocab_file: vocabulary, one word per line; row k of the result is the vector of line k.
        options_file: options of a character-level model.
        weight_file: weights of the model.
        outfile: HDF5 with one dataset ``embedding`` (words, projection_dim); replaced if it exists.

    Raises:
        BilmError: a file cannot be read or written, an input is the output, or the files do not fit each
            other.

    Example:
        >>> dump_token_embeddings("vocab.txt", "options.json", "weights.hdf5", "vectors.hdf5")
        >>> from bilm import BidirectionalLanguageModel
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
    model = bidirectional_lm.BidirectionalLanguageModel(options_file, weight_file)
    width = sentence_encoder.require_characters(model.options).max_characters_per_token
    vocabulary = UnicodeCharsVocabulary(vocab_file, width)
    vocabulary.unicode_form = model.options.unicode_form
    vectors = sentence_encoder.WordVectors(model.encoder, vocabulary, vocabulary.size)(vocabulary.words)
    hdf5_file.write_token_embeddings(outfile, vectors)


def dump_bilm_embeddings(
    vocab_file: str | Path | None,
    dataset_file: str | Path,
    options_file: str | Path,
    weight_file: str | Path,
    outfile: str | Path,
    *,
    stateful: bool = True,
) -> None:
    """Write the vectors of every layer for the sentences of a text, like bilm-tf's function.

    Args:
        vocab_file: vocabulary of a word-level model. A character-level model takes any, or None, since it
            reads the characters of all words.
        dataset_file: text, one sentence per line, words separated by whitespace.
        options_file: options of the model.
        weight_file: weights of the model.
        outfile: HDF5 with one dataset (layers, words, dim) per line, named by the line number from 0;
            replaced if it exists.
        stateful: carry the LSTM state from sentence to sentence, as bilm-tf always does. False embeds each
            sentence by itself, as `bilm.ElmoEmbedder` and the command do, and is many times as fast.

    Raises:
        BilmError: a file cannot be read or written, an input is the output, or the files do not fit each
            other.

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
    vocabulary = vocab_file if load_inference_options(options_file).char_cnn is None else None
    settings: EmbedderKeywords = {"stateful": stateful, "batch_size": 1 if stateful else None}
    embedder = ElmoEmbedder(options_file, weight_file, vocabulary, **settings)
    embedder.embed_file(dataset_file, outfile, forget_sentences=True, overwrite=True)
