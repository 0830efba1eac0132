"""Jobs over texts on Ray: reading, counting, embedding and scoring.

Files are read in pieces, and the results keep the order of the pieces. ``ray.data.read_text`` is not used,
because it has no line numbers and holds a whole file in memory.
"""

import dataclasses
import logging
import os
import sys
import urllib.parse
import uuid
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import ray.data
from pyarrow.fs import FileSelector, FileType
from ray.data.datasource import FilenameProvider

from bilm.backend import settings as backend_settings
from bilm.data import corpus, packing
from bilm.embedding import parquet_output as parquet
from bilm.errors import DataError
from bilm.io import PathLike, is_url, lines, messages, shards
from bilm.ray.cluster import Cluster, Workers
from bilm.run_directory.model_source import ModelArguments

if TYPE_CHECKING:
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.scoring import Scorer, SentenceScore

_BYTES_OF_A_WORD = 5.5
_PIECES_OF_A_WORKER = 8
_LEAST_WORDS = 1 << 11
_MOST_WORDS = 1 << 16  # of a piece for a model
_MOST_WORDS_TO_COUNT = 1 << 20  # larger pieces leave the driver fewer counts to add
_MOST_BYTES = 1 << 31  # of a block; no piece is split
_ROWS_OF_A_GROUP = 1024

Batch: TypeAlias = pa.Table | Mapping[str, np.ndarray]
"""A batch of ``map_batches`` with ``batch_format="pyarrow"`` or ``"numpy"``."""

# --- texts and their pieces ---------------------------------------------------------------------------


def text_files(patterns: Sequence[str]) -> list[str]:
    """List the files of texts in order: local files as absolute paths, others as URLs.

    Args:
        patterns: local files, directories and globs; URLs of files and directories.

    Raises:
        DataError: a pattern matches no file.
    """
    files: list[str] = []
    for pattern in patterns:
        if not is_url(pattern):
            files += map(os.path.abspath, shards.find_files([pattern]))
            continue
        system, path = parquet.file_system(pattern)
        with messages.os_errors_as(DataError, pattern):
            if system.get_file_info(path).type is FileType.File:
                files.append(pattern)
                continue
            inner = system.get_file_info(FileSelector(path, allow_not_found=True))
        names = sorted(file.base_name for file in inner if file.is_file)
        if not names:
            raise DataError(f"{pattern}: No such file, nor a directory with files in it")
        address, mark, query = pattern.partition("?")
        quoted = str if pattern.startswith(("fsspec+", "hf:")) else urllib.parse.quote
        files += [f"{address.rstrip('/')}/{quoted(name)}{mark}{query}" for name in names]
    return list(dict.fromkeys(files))


def lines_of(file: str) -> Iterator[str]:
    """Yield the lines of a file without line ends; compression is recognised by content.

    Args:
        file: absolute path or URL.

    Raises:
        DataError: as `bilm.io.lines.read_lines`.
    """
    system, path = parquet.file_system(file)
    with messages.os_errors_as(DataError, file):
        stream = system.open_input_stream(path, compression=None)
    with stream:
        yield from lines.read_stream_lines(stream, file)


def pieces(batch: Mapping[str, Any], n_words: int) -> Iterator[pa.Table]:
    """Read files in pieces, each one row that holds the columns of `sentence_tables` as lists.

    Args:
        batch: batch of ``map_batches`` with the files as column `item`.
        n_words: words of a piece with sentence marks; the sentence that reaches it is kept whole.
    """
    for file in map(str, batch["item"]):
        for table in parquet.sentence_tables(file, lines_of(file), n_words):
            ends = pa.array([0, table.num_rows], pa.int32())
            columns = [pa.ListArray.from_arrays(ends, column.combine_chunks()) for column in table.columns]
            yield pa.table(columns, table.column_names)


def sentences_of(batch: Batch) -> pa.Table:
    """Convert a batch of sentences, or of `pieces`, to a table with one row per sentence."""
    table = pa.table(batch)
    own = {parquet.FILE, parquet.LINE, parquet.SENTENCE}
    if {*table.column_names} != own or not all(map(pa.types.is_list, table.schema.types)):
        return table
    return pa.table([column.combine_chunks().flatten() for column in table.columns], table.column_names)


# --- workers ------------------------------------------------------------------------------------------


class _Worker:
    """A worker that opens its model at the first call.

    The constructor does not open it, because Ray forwards an exception of a call, but only the text of an
    exception of a constructor.
    """

    def __init__(
        self,
        model: str | Path | ModelArguments,
        vocab_file: str | Path | None = None,
        *,
        column: str = "text",
        n_threads: int | None = None,
        xla: bool = True,
    ) -> None:
        self._arguments = model if isinstance(model, ModelArguments) else ModelArguments(model=model)
        self._vocab_file, self._column = vocab_file, column
        if n_threads is not None:
            backend_settings.use_threads(n_threads)
        if not xla:
            backend_settings.use_xla(False)


class Embed(_Worker):
    """Embeds sentences in ``dataset.map_batches(bilm.ray.Embed, ...)``, with one model per worker.

    A call takes a batch as a dictionary of arrays or as an Arrow table, and returns it as a table with two
    more columns: `tokens`, and `vectors` as nested lists, (layers, words, dim) for all layers, else
    (words, dim); if pooled, they lack the words' dimension. A blank sentence has no words.

    Args:
        model: path of the model, valid on every machine; or `ModelArguments`.
        vocab_file: vocabulary of a word-level model, instead of its own.
        column: name of the column with the sentences, words separated by whitespace; `text` is the column of
            ``ray.data.read_text``.
        layers: see `ElmoEmbedder.embed_sentences`.
        dtype: ``float16``, the default, or ``float32``.
        pooling: see `ElmoEmbedder.embed_sentences`.
        n_threads: threads of TensorFlow in this process; by default TensorFlow chooses.
        xla: false to disable XLA in this process, see `bilm.use_xla`.
        settings: `batch_size`, `batch_tokens`, `max_cached_words` and `cuda_device` of `ElmoEmbedder`.

    Raises:
        BilmError: in a call: the model cannot be read, or a batch lacks the column.

    Example:
        >>> embed = Embed("run", column="line")
        >>> embed({"line": np.array(["Time flies"])}).column_names
        ['line', 'tokens', 'vectors']
    """

    def __init__(
        self,
        model: str | Path | ModelArguments,
        vocab_file: str | Path | None = None,
        *,
        column: str = "text",
        layers: packing.Layers = "all",
        dtype: str = "float16",
        pooling: str | None = None,
        n_threads: int | None = None,
        xla: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(model, vocab_file, column=column, n_threads=n_threads, xla=xla)
        self._form, self._settings = packing.VectorForm(layers, dtype, pooling), settings

    @cached_property
    def _model(self) -> "ElmoEmbedder":
        from bilm.embedding.embedder import ElmoEmbedder

        return ElmoEmbedder(model=self._arguments, vocab_file=self._vocab_file, **self._settings)

    def __call__(self, batch: Batch) -> pa.Table:
        """Embed a batch; see the class."""
        return parquet.embedded(self._model, sentences_of(batch), self._form, self._column)


class Score(_Worker):
    """Scores sentences in ``dataset.map_batches(bilm.ray.Score, ...)``, with one model per worker.

    The log-probabilities are those of ``bilm score``: natural, each sentence by itself, words outside the
    vocabulary as ``<UNK>``. A call returns the batch as an Arrow table with four more columns: `tokens`;
    `known`, a list of booleans (words,); `forward` and `backward`, lists of floats (words + 1,), see
    `bilm.embedding.scoring.SentenceScore`. The scores of a blank sentence are null, as is `backward` for a
    model of one direction.

    Args:
        model: path of the model, valid on every machine: a run, or weights with their softmax; or
            `ModelArguments`.
        vocab_file: see `bilm.test`.
        column: see `Embed`.
        n_threads: see `Embed`.
        xla: see `Embed`.

    Raises:
        BilmError: in a call: the model cannot be read or has no softmax, or a batch lacks the column.
    """

    @cached_property
    def _model(self) -> "Scorer":
        from bilm.embedding.scoring import Scorer

        return Scorer.from_stored(self._arguments.open(), self._vocab_file)

    def __call__(self, batch: Batch) -> pa.Table:
        """Score a batch; see the class."""
        table = sentences_of(batch)
        added = parquet.TOKENS, "known", "forward", "backward"
        sentences = [text.split() for text in parquet.texts_of(table, self._column, added)]
        scored = self._model(words for words in sentences if words)
        scores = [next(scored) if words else None for words in sentences]
        table = table.append_column(parquet.TOKENS, pa.array(sentences, pa.list_(pa.string())))
        kinds = {"is_known": pa.bool_(), "forward": pa.float32(), "backward": pa.float32()}
        for name, kind in kinds.items():
            values = [None if score is None else getattr(score, name) for score in scores]
            table = table.append_column(name.removeprefix("is_"), pa.array(values, pa.list_(kind)))
        return table


# --- a dataset of pieces ------------------------------------------------------------------------------


@contextmanager
def _in_order() -> Iterator[None]:
    """Configure Ray Data for a block: datasets keep the order of rows, and errors are raised, not logged."""
    context = ray.data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.target_max_block_size = _MOST_BYTES
    context.raise_original_map_exception = True
    context.enable_progress_bars = context.enable_progress_bars and sys.stderr.isatty()
    logger = logging.getLogger("ray.data")
    with warnings.catch_warnings(), ray.data.DataContext.current(context), ExitStack() as stack:
        warnings.filterwarnings("ignore", module=r"ray\.data")  # for example of more workers than pieces
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)  # errors are raised as well
        yield


def _read_pieces(files: Sequence[str], workers: Workers, most_words: int = _MOST_WORDS) -> ray.data.Dataset:
    """Read texts as a dataset of one piece per block; small texts give smaller pieces, for all workers."""
    n_bytes = sum(system.get_file_info(path).size or 0 for system, path in map(parquet.file_system, files))
    words = n_bytes / _BYTES_OF_A_WORD / (workers.n * _PIECES_OF_A_WORKER)
    n_words = int(min(max(words, _LEAST_WORDS), most_words))
    named = ray.data.from_items(list(files), override_num_blocks=len(files))
    read = named.map_batches(pieces, batch_size=1, fn_kwargs={"n_words": n_words})
    return read.repartition(target_num_rows_per_block=1)


@contextmanager
def _results(
    texts: Sequence[str],
    worker: type,
    model: ModelArguments,
    vocab_file: PathLike | None,
    cluster: Cluster | None,
    **settings: Any,
) -> Iterator[ray.data.Dataset]:
    """Connect, and yield the dataset of the workers' results.

    Args:
        texts: see `text_files`.
        worker: `Embed` or `Score`, constructed once in each process.
        model: model that the workers open.
        vocab_file: vocabulary of the model.
        cluster: see `Cluster`.
        settings: further arguments of `worker`.
    """
    files = text_files(texts)
    # The workers have another current directory.
    paths = ((name, path) for name, path in vars(model).items() if path)
    absolute: dict[str, Any] = {
        name: Path(os.path.abspath(path))
        for name, path in paths
        if name != "checkpoint" or os.path.dirname(str(path))
    }
    vocabulary = None if vocab_file is None else os.path.abspath(vocab_file)
    with (cluster or Cluster()).connected() as workers, _in_order():
        # As commands choose: TensorFlow, no more memory of a GPU than needed, and float32 that is float32.
        variables = {"KERAS_BACKEND": "tensorflow", "NVIDIA_TF32_OVERRIDE": "0"}
        variables["TF_FORCE_GPU_ALLOW_GROWTH"] = os.environ.get("TF_FORCE_GPU_ALLOW_GROWTH", "true")
        if not workers.gpus:  # Ray leaves them visible
            variables["CUDA_VISIBLE_DEVICES"] = "-1"
        settings |= {"column": parquet.SENTENCE, "n_threads": workers.cpus, "xla": backend_settings.xla_is_on}
        yield _read_pieces(files, workers).map_batches(
            worker,
            batch_size=1,  # a piece; for GPUs Ray requires a number
            batch_format="pyarrow",
            fn_constructor_args=(dataclasses.replace(model, **absolute), vocabulary),
            fn_constructor_kwargs=settings,
            compute=ray.data.ActorPoolStrategy(size=workers.n),
            num_cpus=workers.reserved_cpus,
            num_gpus=workers.gpus,
            runtime_env={"env_vars": variables},
        )


def _rows(results: ray.data.Dataset, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a dataset in order, with these columns; blocks are fetched when needed."""
    for table in results.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield from table.select(columns).to_pylist()


# --- the jobs -----------------------------------------------------------------------------------------


def count_words(texts: Sequence[str], cluster: Cluster | None = None) -> tuple[Counter[str], int, int]:
    """Count the words of texts: workers count pieces, the driver adds the counts.

    Args:
        texts: files, directories and globs, or URLs.
        cluster: see `Cluster`; a worker has no model, and by default one CPU.

    Returns:
        The count of each word, the number of sentences, and the number of blank lines.

    Raises:
        BilmError: a text cannot be read (names file and line), or Ray failed.
    """
    files = text_files(texts)
    words: Counter[str] = Counter()
    with (cluster or Cluster()).connected(has_model=False) as workers, _in_order():
        counted = _read_pieces(files, workers, _MOST_WORDS_TO_COUNT).map_batches(
            _count_pieces,
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=workers.reserved_cpus,
            compute=ray.data.TaskPoolStrategy(size=workers.n),
        )
        for row in _rows(counted, "words", "counts"):
            words.update(dict(zip(row["words"], row["counts"], strict=True)))
    return words, *corpus.take_lines(words)


def _count_pieces(batch: pa.Table) -> pa.Table:
    """Count the words of pieces, into one row."""
    words = corpus.count_words(map(str.split, sentences_of(batch)[parquet.SENTENCE].to_pylist()))
    return pa.table({"words": [list(words)], "counts": [list(words.values())]})


def score(
    texts: Sequence[str],
    model: ModelArguments,
    vocab_file: PathLike | None = None,
    *,
    cluster: Cluster | None = None,
) -> "Iterator[tuple[str, int, SentenceScore]]":
    """Score the sentences of texts on Ray, each by itself, as ``bilm score`` does.

    Args:
        texts: files, directories and globs, or URLs; read by the workers.
        model: a run, or weights with their softmax; opened by the workers.
        vocab_file: see `bilm.test`.
        cluster: see `Cluster`.

    Yields:
        File, line number from 0, and score, in the order of the texts; blank lines are skipped.

    Raises:
        BilmError: as `embed`, or the model has no softmax.
    """
    from bilm.embedding.scoring import SentenceScore

    with _results(texts, Score, model, vocab_file, cluster) as scored:
        for row in _rows(scored, parquet.FILE, parquet.LINE, parquet.TOKENS, "known", "forward", "backward"):
            if row[parquet.TOKENS]:
                forward = np.array(row["forward"], np.float32)
                backward = None if row["backward"] is None else np.array(row["backward"], np.float32)
                sentence = SentenceScore(row[parquet.TOKENS], forward, backward, np.array(row["known"]))
                yield row[parquet.FILE], row[parquet.LINE], sentence


def embed(
    texts: Sequence[str],
    directory: str,
    model: ModelArguments,
    vocab_file: PathLike | None = None,
    *,
    form: packing.VectorForm,
    cluster: Cluster | None = None,
    compression: str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> int:
    """Embed texts on Ray into Parquet files, one row per line, in the order of the texts.

    Args:
        texts: files, directories and globs, or URLs; read by the workers.
        directory: directory or URL of the output. A local directory gets its name when it is complete; at a
            URL, ``_bilm.json`` is written after all other files, and old files are removed last.
        model: model that the workers open.
        vocab_file: vocabulary of a word-level model.
        form: form of the vectors.
        cluster: see `Cluster`.
        compression: a codec of Parquet, or None.
        overwrite: replace an earlier output directory of this function.
        settings: further arguments of `ElmoEmbedder`.

    Returns:
        The number of embedded lines.

    Raises:
        BilmError: as `bilm.ElmoEmbedder`; a text cannot be read (names file and line), the output cannot be
            written, or Ray failed.
    """
    parquet.check_parquet(directory, overwrite)
    run_id = uuid.uuid4().hex
    settings |= dataclasses.asdict(form)
    with output_directory(directory, overwrite, run_id) as place:
        with _results(texts, Embed, model, vocab_file, cluster, **settings) as results:
            results.write_parquet(
                place,
                filename_provider=_Names(run_id),
                row_group_size=_ROWS_OF_A_GROUP,
                ray_remote_args={"num_cpus": 0},  # the workers have reserved the CPUs
                **parquet.write_options(compression),
            )
        system, path = parquet.file_system(place)
        files = [f"{path}/{name}" for name in parquet.names_in(system, path) if run_id in name]
        n_lines = pyarrow.dataset.dataset(files, filesystem=system).count_rows() if files else 0
        if not n_lines:
            raise DataError("there are no sentences to embed: the texts are empty")
        if not is_url(place):
            for number, file in enumerate(files):
                os.rename(file, os.path.join(place, parquet.part_name(number)))
        with system.open_output_stream(f"{path}/{parquet.ABOUT}") as stream:
            stream.write(parquet.about_embeddings(form, n_lines).encode())
    return n_lines


class _Names(FilenameProvider):
    """Names output files so that they sort in the order of the text; a name contains the id of the call."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self._run_id = run_id

    def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
        return f"part-{task_index:06}-{self._run_id}{write_uuid}.parquet"


@contextmanager
def output_directory(directory: str, overwrite: bool, run_id: str) -> Iterator[str]:
    """Yield the directory to write into: a temporary one (see `parquet_directory`), or the URL itself.

    At a URL files cannot be renamed: new files are written beside the old ones, which are removed when the
    block succeeds.

    Raises:
        DataError: the file system refuses to write; new files are removed, old files are kept.
    """
    if not is_url(directory):
        with parquet.parquet_directory(directory, overwrite) as (place,):
            yield str(place)
        return
    system, path = parquet.file_system(directory)
    old = parquet.names_in(system, path)
    try:
        with messages.os_errors_as(DataError, f"{directory}: cannot be written"):
            yield directory
    except BaseException:
        for name in parquet.names_in(system, path):
            if run_id in name:
                system.delete_file(f"{path}/{name}")
        raise
    for name in old:
        if name != parquet.ABOUT:
            system.delete_file(f"{path}/{name}")
