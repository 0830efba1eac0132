"""Jobs over texts on Ray: what is read, what the workers make of it, and counting, embedding and scoring.

Files are read in pieces, and what workers make of the pieces comes in their order. ``ray.data.read_text`` has
no numbers of lines, and holds a file in memory whole; this reads as all of bilm. Importing this needs neither
Ray nor TensorFlow.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from bilm.data.corpus import find_files
from bilm.embedding.packing import Layers
from bilm.embedding.parquet_output import (
    ABOUT,
    FILE,
    LINE,
    SENTENCE,
    TOKENS,
    WHAT,
    about_embeddings,
    about_json,
    are_ours,
    cannot_be_written,
    check_parquet,
    embedded,
    parquet_directory,
    part_name,
    require_pyarrow,
    sentence_tables,
    texts_of,
    write_options,
)
from bilm.errors import BilmError, DataError
from bilm.io import PathLike, is_url
from bilm.io.lines import read_lines, read_stream_lines
from bilm.io.messages import os_errors_as
from bilm.ray.cluster import Cluster, Workers, require_ray

if TYPE_CHECKING:
    import pyarrow as pa
    import ray.data

    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.scoring import Scorer, SentenceScore
    from bilm.run_directory.model_source import ModelArguments

_BYTES_OF_A_WORD = 5.5
_PIECES_OF_A_WORKER = 8
_LEAST_WORDS = 1 << 11
_MOST_WORDS = 1 << 16  # of a piece that a model takes
_MOST_WORDS_TO_COUNT = 1 << 20  # the more, the fewer counts of the same word the driver adds
_MOST_BYTES = 1 << 31  # of a block, so that a piece is one
_ROWS_OF_A_GROUP = 1024

_Model = TypeVar("_Model")
Batch = "pa.Table | Mapping[str, np.ndarray]"
"""What ``map_batches`` gives: with ``batch_format="pyarrow"`` or ``"numpy"``."""

# --- texts and their pieces ---------------------------------------------------------------------------


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there.

    Raises:
        DataError: pyarrow knows no such file system.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(url)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise DataError(f"{url}: {str(error).splitlines()[0]}") from error


def text_files(patterns: Sequence[str]) -> list[str]:
    """The files of texts in their order: local ones by their absolute paths, others by URL.

    Args:
        patterns: files, directories and globs; of other file systems, files and directories.

    Raises:
        DataError: there is no such file.
    """
    found: list[str] = []
    for pattern in patterns:
        if is_url(pattern):
            found += _remote_files(pattern)
        else:
            found += [os.path.abspath(file) for file in find_files([pattern])]
    return list(dict.fromkeys(found))


def _remote_files(url: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    system, path = file_system(url)
    with os_errors_as(DataError, url):
        info = system.get_file_info(path)
        if info.type is FileType.File:
            return [url]
        if info.type is not FileType.Directory:
            raise DataError(f"{url}: No such file or directory")
        inner = sorted(one.path for one in system.get_file_info(FileSelector(path)) if one.is_file)
    if not inner:
        raise DataError(f"{url}: the directory has no files")
    return [url.rstrip("/") + one.removeprefix(path.rstrip("/")) for one in inner]


def words_of_a_piece(files: Sequence[str], n_workers: int, most: int) -> int:
    """How many words a worker gets at a time: fewer of small texts, so that there is some for each."""
    n_bytes = sum(map(_size, files))
    words = n_bytes / _BYTES_OF_A_WORD / (n_workers * _PIECES_OF_A_WORKER)
    return int(min(max(words, _LEAST_WORDS), most))


def _size(file: str) -> int:
    if not is_url(file):
        return os.path.getsize(file)
    system, path = file_system(file)
    return system.get_file_info(path).size or 0


def lines_of(file: str) -> Iterator[str]:
    """The lines of a file without their ends, decompressed by content.

    Raises:
        DataError: as `bilm.io.lines.read_lines`.
    """
    if not is_url(file):
        yield from read_lines(file)
        return
    system, path = file_system(file)
    with os_errors_as(DataError, file):
        stream = system.open_input_stream(path, compression=None)
    with stream:
        yield from read_stream_lines(stream, file)


def pieces(batch: Mapping[str, Any], n_words: int) -> Iterator[pa.Table]:
    """Read files in pieces, a row of their own each: `file`, `line` of the first, and `sentence`, a list.

    Args:
        batch: the files, as `item`; for ``map_batches``.
        n_words: of a piece, with marks, and whole sentences.
    """
    import pyarrow as pa

    for file in map(str, batch["item"]):
        for table in sentence_tables(file, lines_of(file), lambda _, n_tokens: n_tokens >= n_words):
            sentences = pa.array([table[SENTENCE].to_pylist()], pa.list_(pa.string()))
            yield pa.table({FILE: [file], LINE: table[LINE][:1], SENTENCE: sentences})


def sentences_of(table: pa.Table) -> pa.Table:
    """The rows of `pieces` as a row a sentence."""
    import pyarrow as pa

    parts = [
        table.schema.empty_table().select([FILE, LINE]).append_column(SENTENCE, pa.array([], pa.string()))
    ]
    for row in table.to_pylist():
        numbers = range(row[LINE], row[LINE] + len(row[SENTENCE]))
        columns = {
            FILE: pa.array([row[FILE]] * len(numbers), pa.string()),
            LINE: pa.array(numbers, pa.int64()),
        }
        parts.append(pa.table({**columns, SENTENCE: pa.array(row[SENTENCE], pa.string())}))
    return pa.concat_tables(parts).combine_chunks()


# --- workers ------------------------------------------------------------------------------------------


class _Worker(Generic[_Model]):
    """Opens a model when it is made, in the process that runs it.

    Ray passes on the error of a call, but of a constructor's only the text: so the first call raises it.
    """

    def __init__(self, column: str, n_threads: int | None, open_model: Callable[[], _Model]) -> None:
        self._column = column
        self._failure: BilmError | None = None
        try:
            if n_threads is not None:  # it counts if TensorFlow does not run yet
                os.environ |= {"TF_NUM_INTRAOP_THREADS": str(n_threads), "TF_NUM_INTEROP_THREADS": "1"}
            self._model: _Model = open_model()
        except BilmError as error:
            self._failure = error

    @property
    def model(self) -> _Model:
        if self._failure is not None:
            raise self._failure
        return self._model


class Embed(_Worker["ElmoEmbedder"]):
    """Vectors of sentences, for ``dataset.map_batches(bilm.ray.Embed, ...)``: one model a worker.

    Sentences of a batch are packed as `bilm.ElmoEmbedder` does it, and their vectors are the same.

    Args:
        model: by its path, which every machine must have; or `ModelArguments`.
        vocab_file: of a word-level model, instead of the one that comes with it.
        column: of the batches, with a sentence each, words separated by whitespace; `text` is that of
            ``ray.data.read_text``.
        layers: ``all``, ``top``, ``average`` or the number of one from 0.
        dtype: ``float16`` or ``float32``.
        n_threads: of TensorFlow in this process; as TensorFlow chooses by default.
        settings: `batch_size`, `batch_tokens`, `max_cached_words` and `cuda_device` of `ElmoEmbedder`.

    A call takes a batch as a dictionary of arrays or as an Arrow table, and gives it back as a table with two
    more columns: `tokens`, and `vectors` as lists of lists, (layers, words, dim) for all layers, else
    (words, dim); a blank sentence has no words.

    Raises:
        BilmError: when it is called: the model cannot be read, or a batch has no such column.

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
        layers: Layers = "all",
        dtype: str = "float16",
        n_threads: int | None = None,
        **settings: Any,
    ) -> None:
        self._layers, self._dtype = layers, dtype

        def open_model() -> ElmoEmbedder:
            from bilm.embedding.embedder import ElmoEmbedder

            return ElmoEmbedder.of_arguments(_arguments(model), vocab_file, **settings)

        super().__init__(column, n_threads, open_model)

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """Embed a batch; see the class."""
        return embedded(self.model, as_table(batch), self._layers, self._dtype, self._column)


class Score(_Worker["Scorer"]):
    """Log-probabilities of sentences, for ``dataset.map_batches(bilm.ray.Score, ...)``: one model a worker.

    They are those of ``bilm score``: natural, each sentence by itself, words outside the vocabulary as
    ``<UNK>``.

    Args:
        model: by its path, which every machine must have: a run, or weights with their softmax; or
            `ModelArguments`.
        vocab_file: see `bilm.test`.
        column: see `Embed`.
        n_threads: see `Embed`.

    A call gives the batch back as an Arrow table with more columns: `tokens`; `known`, a list of booleans
    (words,); `forward` and `backward`, lists of floats (words + 1,), see
    `bilm.embedding.scoring.SentenceScore`. The scores of a blank sentence are null, as is `backward` for a
    model of one direction.

    Raises:
        BilmError: when it is called: the model cannot be read or has no softmax, or a batch lacks the column.
    """

    def __init__(
        self,
        model: str | Path | ModelArguments,
        vocab_file: str | Path | None = None,
        *,
        column: str = "text",
        n_threads: int | None = None,
    ) -> None:
        def open_model() -> Scorer:
            from bilm.embedding.scoring import Scorer
            from bilm.models.language_model import open_predictor

            stored = _arguments(model).open(takes_files=False)
            predictor = open_predictor(stored, None if vocab_file is None else Path(vocab_file))
            return Scorer(predictor.load([])[0], predictor.vocabulary)

        super().__init__(column, n_threads, open_model)

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """Score a batch; see the class."""
        import pyarrow as pa

        table = as_table(batch)
        sentences = [text.split() for text in texts_of(table, self._column)]
        made = self.model(words for words in sentences if words)
        scores = [next(made) if words else None for words in sentences]
        table = table.append_column(TOKENS, pa.array(sentences, pa.list_(pa.string())))
        for name, values in (
            ("known", [None if score is None else score.is_known for score in scores]),
            ("forward", [None if score is None else score.forward for score in scores]),
            ("backward", [None if score is None else score.backward for score in scores]),
        ):
            kind = pa.bool_() if name == "known" else pa.float32()
            table = table.append_column(name, pa.array(values, pa.list_(kind)))
        return table


def as_table(batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
    """A batch of ``map_batches`` as an Arrow table.

    Raises:
        DataError: it is neither a table nor a dictionary of columns.
    """
    import pyarrow as pa

    if isinstance(batch, pa.Table):
        return batch
    if isinstance(batch, Mapping):
        return pa.table({name: pa.array(column) for name, column in batch.items()})
    raise DataError(
        f"a batch is {type(batch).__name__}; give map_batches batch_format='pyarrow' or 'numpy' for it"
    )


def _arguments(model: str | Path | ModelArguments) -> ModelArguments:
    from bilm.run_directory.model_source import ModelArguments

    return model if isinstance(model, ModelArguments) else ModelArguments(model=model)


# --- a dataset of pieces ------------------------------------------------------------------------------


class _EmbedPieces(Embed):
    """`Embed` for the pieces of a text."""

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        return super().__call__(sentences_of(as_table(batch)))


class _ScorePieces(Score):
    """`Score` for the pieces of a text."""

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        return super().__call__(sentences_of(as_table(batch)))


@contextmanager
def _in_order() -> Iterator[None]:
    """Let the datasets that are made inside keep the order of their rows, and leave errors to us."""
    import ray.data

    context = ray.data.DataContext.get_current()
    changed = {
        "target_max_block_size": _MOST_BYTES,
        "raise_original_map_exception": True,
        "enable_progress_bars": context.enable_progress_bars and sys.stderr.isatty(),
    }
    before = {name: getattr(context, name) for name in changed}
    preserve_order = context.execution_options.preserve_order
    handlers = [
        (handler, handler.level)
        for handler in logging.getLogger("ray.data").handlers
        if type(handler).__module__.startswith("ray.")  # those of the root logger may be there too
    ]
    try:
        context.execution_options.preserve_order = True
        for name, value in changed.items():
            setattr(context, name, value)
        for handler, _ in handlers:
            handler.setLevel(logging.CRITICAL)  # an error is raised as well, and said once
        yield
    finally:
        context.execution_options.preserve_order = preserve_order
        for name, value in before.items():
            setattr(context, name, value)
        for handler, level in handlers:
            handler.setLevel(level)


def _read_pieces(files: Sequence[str], workers: Workers, most_words: int = _MOST_WORDS) -> ray.data.Dataset:
    """The texts in pieces, one a block, so that a worker gets one at a time."""
    import ray.data

    n_words = words_of_a_piece(files, workers.n, most_words)
    named = ray.data.from_items(list(files), override_num_blocks=len(files))
    found = named.map_batches(pieces, batch_size=1, fn_kwargs={"n_words": n_words})
    return found.repartition(target_num_rows_per_block=1)


@contextmanager
def _results(
    texts: Sequence[str],
    worker: type,
    model: ModelArguments,
    vocab_file: PathLike | None,
    cluster: Cluster | None,
    **settings: Any,
) -> Iterator[ray.data.Dataset]:
    """Connect, and give what workers make of texts, each a process with a model of its own.

    Args:
        texts: see `text_files`.
        worker: a class, made once in each process.
        model: which the workers open.
        vocab_file: of the model.
        cluster: where.
        settings: of the class.
    """
    from ray.data import ActorPoolStrategy

    files = text_files(texts)
    paths = ("model", "save_dir", "options_file", "weight_file")
    given = {name: getattr(model, name) for name in paths}
    # Paths that hold in the workers, whatever their current directory is.
    absolute: dict[str, Any] = {name: Path(os.path.abspath(path)) for name, path in given.items() if path}
    vocabulary = None if vocab_file is None else os.path.abspath(vocab_file)
    with (cluster or Cluster()).connected() as workers, _in_order():
        yield _read_pieces(files, workers).map_batches(
            worker,
            batch_size=None,
            batch_format="pyarrow",
            fn_constructor_args=(dataclasses.replace(model, **absolute), vocabulary),
            fn_constructor_kwargs={**settings, "column": SENTENCE, "n_threads": workers.cpus},
            compute=ActorPoolStrategy(size=workers.n),
            num_cpus=workers.reserved_cpus,
            num_gpus=workers.gpus,
        )


def _rows(found: ray.data.Dataset, *columns: str) -> Iterator[dict[str, Any]]:
    """The rows of a dataset in their order, of these columns; fetched as they are needed."""
    for table in found.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield from table.select(columns).to_pylist()


# --- the jobs -----------------------------------------------------------------------------------------


@dataclass
class WordCounts:
    """Words and lines of texts.

    Attributes:
        words: how often each occurs.
        n_lines: lines of the texts.
        n_blank: of them, lines without words.
    """

    words: Counter[str] = field(default_factory=Counter)
    n_lines: int = 0
    n_blank: int = 0


def count_words(texts: Sequence[str], cluster: Cluster | None = None) -> WordCounts:
    """Count the words of texts: the workers count pieces, and the driver adds their counts.

    Args:
        texts: files, directories and globs, or URLs.
        cluster: where, see `Cluster`; a worker needs no model, and by default one CPU.

    Raises:
        BilmError: a text cannot be read, with file and line; there is no Ray; or it failed.
    """
    files = text_files(texts)
    total = WordCounts()
    with (cluster or Cluster()).connected(has_model=False) as workers, _in_order():
        counted = _read_pieces(files, workers, _MOST_WORDS_TO_COUNT).map_batches(
            _count_pieces,
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=workers.reserved_cpus,
            concurrency=workers.n,
        )
        for row in _rows(counted, "words", "counts", "n_lines", "n_blank"):
            total.words.update(dict(zip(row["words"], row["counts"], strict=True)))
            total.n_lines += row["n_lines"]
            total.n_blank += row["n_blank"]
    return total


def _count_pieces(batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
    """The counts of pieces, in one row."""
    import pyarrow as pa

    lines = [line.split() for piece in as_table(batch)[SENTENCE].to_pylist() for line in piece]
    words = Counter(chain.from_iterable(lines))
    return pa.table(
        {
            "words": pa.array([list(words)], pa.list_(pa.string())),
            "counts": pa.array([list(words.values())], pa.list_(pa.int64())),
            "n_lines": [len(lines)],
            "n_blank": [lines.count([])],
        }
    )


def score(
    texts: Sequence[str],
    model: ModelArguments,
    vocab_file: PathLike | None = None,
    *,
    cluster: Cluster | None = None,
) -> Iterator[tuple[str, int, SentenceScore]]:
    """Score the sentences of texts on Ray, each by itself, as ``bilm score`` does.

    Args:
        texts: files, directories and globs, or URLs; the workers read them.
        model: a run, or weights with their softmax; the workers open it.
        vocab_file: see `bilm.test`.
        cluster: where, see `Cluster`.

    Yields:
        The file, the number of the line from 0, and its score, in the order of the texts; no blank lines.

    Raises:
        BilmError: as `embed`, or the model has no softmax.
    """
    from bilm.embedding.scoring import SentenceScore

    with _results(texts, _ScorePieces, model, vocab_file, cluster) as scored:
        for row in _rows(scored, FILE, LINE, TOKENS, "known", "forward", "backward"):
            if row[TOKENS]:
                forward = np.array(row["forward"], np.float32)
                backward = None if row["backward"] is None else np.array(row["backward"], np.float32)
                sentence = SentenceScore(row[TOKENS], forward, backward, np.array(row["known"]))
                yield row[FILE], row[LINE], sentence


def check_outputs(path: str, overwrite: bool, inputs: Sequence[PathLike | int | None] = ()) -> None:
    """Refuse a directory for Parquet files that cannot be made, here or on another file system.

    Args:
        path: a local path or a URL.
        overwrite: see `check_parquet`.
        inputs: see `check_parquet`.

    Raises:
        DataError: says why not.
    """
    if not is_url(path):
        check_parquet(path, overwrite, [one for one in inputs if not isinstance(one, str) or not is_url(one)])
        return
    require_pyarrow()
    system, place = file_system(path)
    names = _names(system, place)
    about = ""
    if ABOUT in names:
        with system.open_input_stream(f"{place}/{ABOUT}") as stream:
            about = stream.read().decode("utf-8", "replace")
    if names and not are_ours(names, about):
        raise DataError(
            f"{path}: exists and is not {WHAT} that bilm wrote, with nothing else in it; give another name"
        )
    if names and not overwrite:
        raise DataError(f"{path}: exists; overwrite=True replaces it")


def embed(
    texts: Sequence[str],
    directory: str,
    model: ModelArguments,
    vocab_file: PathLike | None = None,
    *,
    cluster: Cluster | None = None,
    layers: Layers = "all",
    dtype: str = "float16",
    compression: str | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> int:
    """Embed texts on Ray into Parquet files, a row for each line, in the order of the texts.

    Args:
        texts: files, directories and globs, or URLs; the workers read them.
        directory: of the files: a local one gets its name when it is complete; on another file system
            its file ``_bilm.json`` is written when the others are complete, and old files are removed last.
        model: by its arguments; the workers open it.
        vocab_file: of a word-level model.
        cluster: where, see `Cluster`.
        layers: which layers.
        dtype: ``float16`` or ``float32``.
        compression: a codec of Parquet's, or None.
        overwrite: replace a directory that this has written.
        settings: of `ElmoEmbedder`.

    Returns:
        How many lines were embedded.

    Raises:
        BilmError: as `bilm.ElmoEmbedder`; a text or the output cannot be read or written, with file and
            line; there is no Ray; or it failed.
    """
    require_ray()
    check_outputs(directory, overwrite)
    run_id = uuid.uuid4().hex
    about = about_embeddings(layers, dtype)
    settings |= {"layers": layers, "dtype": dtype}
    output: AbstractContextManager[str | Path] = (
        _remote_directory(directory, about, run_id)
        if is_url(directory)
        else parquet_directory(directory, about, overwrite)
    )
    with output as place:
        with _results(texts, _EmbedPieces, model, vocab_file, cluster, **settings) as embedded_texts:
            embedded_texts.write_parquet(
                str(place),
                filename_provider=_names_of_parts(run_id),
                row_group_size=_ROWS_OF_A_GROUP,
                ray_remote_args={"num_cpus": 0},  # beside the workers, who have the others
                **write_options(compression),
            )
        about["lines"] = _count_rows(str(place), run_id)
        if isinstance(place, Path):
            for number, file in enumerate(sorted(place.iterdir())):
                file.rename(place / part_name(number))
    return about["lines"]


@contextmanager
def _remote_directory(url: str, about: dict[str, Any], run_id: str) -> Iterator[str]:
    """As `parquet_directory`, where nothing can be renamed: new files stand beside the old ones for a while.

    Raises:
        DataError: the file system refuses to write; the old files are there still, the new ones are not.
    """
    system, place = file_system(url)
    old = _names(system, place)
    try:
        yield url
        with system.open_output_stream(f"{place}/{ABOUT}") as stream:
            stream.write(about_json(about).encode())
    except BaseException as error:
        for name in _names(system, place):
            if run_id in name:
                system.delete_file(f"{place}/{name}")
        if isinstance(error, OSError):
            raise cannot_be_written(url, error) from error
        raise
    for name in old:
        if name != ABOUT:
            system.delete_file(f"{place}/{name}")


def _names_of_parts(run_id: str) -> Any:  # noqa: ANN401
    """Names of files that sort in the order of the text, and say who wrote them."""
    from ray.data.datasource import FilenameProvider

    class Names(FilenameProvider):
        def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
            return f"part-{task_index:06}-{run_id}{write_uuid}.parquet"

    return Names()


def _names(system: Any, place: str) -> list[str]:  # noqa: ANN401
    from pyarrow.fs import FileSelector

    return sorted(one.base_name for one in system.get_file_info(FileSelector(place, allow_not_found=True)))


def _count_rows(url: str, run_id: str) -> int:
    """The rows of the files that this run wrote.

    Raises:
        DataError: there are none.
    """
    import pyarrow.parquet as pq

    system, place = file_system(url)
    files = [f"{place}/{name}" for name in _names(system, place) if run_id in name]
    n_rows = sum(pq.read_metadata(file, filesystem=system).num_rows for file in files)
    if not n_rows:
        raise DataError("there are no sentences to embed: the texts are empty")
    return n_rows
