"""Directories of Parquet files of embeddings: which of them are ours, and how they are made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bilm.embedding_files.vector_tables import require_pyarrow
from bilm.errors import BilmError, DataError
from bilm.io import PathLike
from bilm.io.atomic import replacing_directory
from bilm.io.outputs import refuse_inputs, require_directory, require_parent
from bilm.io.reasons import os_errors_as

ABOUT = "_bilm.json"
"""What a directory says of itself; readers of Parquet pass over names that begin with an underscore."""
_PART = re.compile(r"part-\d{6}(-[\da-f]{32}-\d+)?\.parquet")
_WRITER = "bilm embed"


def part_name(number: int) -> str:
    """The name of a file, which sorts by its number from 0."""
    return f"part-{number:06}.parquet"


def is_part(name: str) -> bool:
    """Whether it is the name of one of our files."""
    return bool(_PART.fullmatch(name))


def write_options(compression: str | None) -> dict[str, Any]:
    """How pyarrow writes the tables: vectors hold no value twice, so that dictionaries only cost."""
    return {"compression": compression or "none", "use_dictionary": ["file"], "write_statistics": ["line"]}


def check_parquet(path: PathLike, overwrite: bool, inputs: Iterable[PathLike | int | None] = ()) -> None:
    """Refuse a directory that cannot be made, or by which something else would be lost.

    Args:
        path: the directory.
        overwrite: whether a directory that we wrote may be there already, with nothing else in it.
        inputs: see `bilm.io.outputs.refuse_inputs`.

    Raises:
        DataError: says why not; or pyarrow is not installed.
    """
    require_pyarrow()
    target = require_directory(path)
    require_parent(path)
    refuse_inputs(path, inputs)
    if not target.exists():
        return
    with os_errors_as(DataError, f"{path}: cannot be read"):
        names = {inner.name for inner in target.iterdir()}
        about = (target / ABOUT).read_text(encoding="utf-8") if ABOUT in names else ""
    refuse_foreign(str(path), names, about)
    if names and not overwrite:
        raise DataError(f"{path}: exists; overwrite=True replaces it")


def refuse_foreign(path: str, names: Iterable[str], about: str) -> None:
    """Refuse a directory with files that are not ours.

    Args:
        path: the directory.
        names: what is in it.
        about: the content of its `ABOUT`.

    Raises:
        DataError: names one of the files.
    """
    foreign = sorted(name for name in names if name != ABOUT and not is_part(name))
    if foreign or (names and not _is_ours(about)):
        what = f"holds {foreign[0]}, which" if foreign else "holds what"
        raise DataError(f"{path}: exists and {what} bilm did not write; give another name")


def _is_ours(about: str) -> bool:
    try:
        content = json.loads(about)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("written_by") == _WRITER


def about_json(settings: dict[str, Any]) -> str:
    """The content of `ABOUT`."""
    return json.dumps({"written_by": _WRITER, **settings}, indent=2) + "\n"


@contextmanager
def parquet_directory(path: PathLike, settings: dict[str, Any]) -> Iterator[Path]:
    """A directory to write the files into, which takes the place of `path` when the block succeeds.

    Args:
        path: was checked by `check_parquet`.
        settings: what `ABOUT` says of the files; more may be added in the block.

    Raises:
        DataError: the system refuses to write.
    """
    try:
        with replacing_directory(Path(path)) as directory:
            directory.mkdir()
            yield directory
            (directory / ABOUT).write_text(about_json(settings), encoding="utf-8")
    except BilmError:
        raise
    except OSError as error:
        raise cannot_be_written(str(path), error) from error


def cannot_be_written(path: str, error: OSError) -> DataError:
    """What the system says of a failed write, in one line."""
    said = re.search(r"\[errno \d+\] ([^\n]+)", str(error.strerror or error))  # as pyarrow quotes it
    return DataError(f"{path}: cannot be written: {said[1] if said else error.strerror or error}")
