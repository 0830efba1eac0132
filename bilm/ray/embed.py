"""Embedding texts on Ray into a directory of Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.embedding.packing import Layers
from bilm.embedding.parquet_output import (
    ABOUT,
    about_embeddings,
    about_json,
    cannot_be_written,
    check_parquet,
    parquet_directory,
    part_name,
    refuse_foreign,
    require_pyarrow,
    write_options,
)
from bilm.errors import DataError
from bilm.io import PathLike, is_url
from bilm.ray.cluster import Cluster, errors_of_workers, require_ray
from bilm.ray.pipeline import EmbedPieces, absolute, absolute_path, in_order, read_pieces, run_workers
from bilm.ray.texts import file_system, text_files
from bilm.run_directory.model_source import ModelArguments

_ROWS_OF_A_GROUP = 1024


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
    refuse_foreign(path, names, about)
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
            its file ``_bilm.json`` is written last.
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
    files = text_files(texts)
    about = about_embeddings(layers, dtype)
    settings |= {"layers": layers, "dtype": dtype}
    with (cluster or Cluster()).connected() as workers, in_order():
        found = run_workers(
            read_pieces(files, workers),
            EmbedPieces,
            workers,
            absolute(model),
            absolute_path(vocab_file),
            **settings,
        )
        if is_url(directory):
            return _write_remote(found, directory, about, compression)
        with parquet_directory(directory, about) as place:
            _write(found, str(place), directory, compression)
            about["lines"] = number_parts(place)
            return about["lines"]


def _write(found: Any, place: str, name: str, compression: str | None) -> None:  # noqa: ANN401
    """Let the workers write files, whose names sort in the order of the text."""
    try:
        with errors_of_workers():
            found.write_parquet(
                place,
                filename_provider=_names_of_parts(),
                row_group_size=_ROWS_OF_A_GROUP,
                ray_remote_args={"num_cpus": 0},  # beside the workers, who have the others
                **write_options(compression),
            )
    except OSError as error:
        raise cannot_be_written(name, error) from error


def number_parts(place: Path) -> int:
    """Give the files that Ray's tasks wrote their names, and count their rows.

    Raises:
        DataError: there are none, or lines are missing.
    """
    import pyarrow.parquet as pq

    files = sorted(place.glob("*.parquet"))
    n_rows = 0
    for number, file in enumerate(files):
        n_rows += pq.read_metadata(file).num_rows
        file.rename(place / part_name(number))
    if not n_rows:
        raise DataError("there are no sentences to embed: the texts are empty")
    return n_rows


def _names_of_parts() -> Any:  # noqa: ANN401
    from ray.data.datasource import FilenameProvider

    class Names(FilenameProvider):
        def get_filename_for_task(self, write_uuid: str, task_index: int) -> str:
            return f"part-{task_index:06}-{write_uuid}.parquet"

    return Names()


def _names(system: Any, place: str) -> list[str]:  # noqa: ANN401
    from pyarrow.fs import FileSelector

    return [one.base_name for one in system.get_file_info(FileSelector(place, allow_not_found=True))]


def _write_remote(found: Any, url: str, about: dict[str, Any], compression: str | None) -> int:  # noqa: ANN401
    import pyarrow.parquet as pq

    system, place = file_system(url)
    for name in sorted(_names(system, place)):  # the file that says it is complete is the first
        system.delete_file(f"{place}/{name}")
    try:
        _write(found, url, url, compression)
    except BaseException:
        for name in _names(system, place):
            if name.endswith(".parquet"):
                system.delete_file(f"{place}/{name}")
        raise
    parts = [name for name in _names(system, place) if name.endswith(".parquet")]
    n_rows = sum(pq.read_metadata(f"{place}/{name}", filesystem=system).num_rows for name in parts)
    if not n_rows:
        raise DataError("there are no sentences to embed: the texts are empty")
    with system.open_output_stream(f"{place}/{ABOUT}") as stream:
        stream.write(about_json({**about, "lines": n_rows}).encode())
    return n_rows
