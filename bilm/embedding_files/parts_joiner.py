"""Joining the parts of a file of embeddings into one file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py

from bilm.embedding_files.parts import Part, close_anyway, named_failures, overhead, write_attributes
from bilm.embedding_files.parts_directory import remove_parts
from bilm.io.atomic import replacing, require_room


class PartsJoiner:
    """Makes one file of parts, while the later ones are not there yet; a context manager.

    The file has its name when it is finished; an error leaves nothing but the parts.

    Args:
        outfile: replaced if it exists.
        settings: how the parts were made.
        left_out: datasets that a part may have and the file gets anew.

    Raises:
        DataError: nothing can be written there.
    """

    def __init__(self, outfile: Path, settings: Mapping[str, Any], left_out: Collection[str] = ()) -> None:
        self._outfile, self._settings, self._left_out = outfile, settings, left_out
        self._n_added = 0

    def __enter__(self) -> PartsJoiner:
        """Begin."""
        with named_failures(self._outfile):
            with ExitStack() as stack:
                self._temporary = stack.enter_context(replacing(self._outfile))
                self._file = h5py.File(self._temporary, "w")
                self._replace = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what is not finished."""
        close_anyway(self._file)
        self._replace.__exit__(kind, error, trace)

    def add(self, parts: Sequence[Part]) -> None:
        """Add those parts that are not added yet.

        Args:
            parts: all of them so far, in order.

        Raises:
            DataError: a part cannot be read, or the file not be written.
        """
        for part in parts[self._n_added :]:
            with named_failures(self._outfile):
                require_room(self._temporary.parent, part.path.stat().st_size + overhead(0))
                with h5py.File(part.path, "r") as source:
                    for key in source:
                        if key not in self._left_out:
                            h5py.h5o.copy(source.id, key.encode(), self._file.id, key.encode())
        self._n_added = len(parts)

    def finish(self, parts: Sequence[Part], digest: str, texts: Mapping[str, str]) -> None:
        """Give the file its name and remove the parts.

        Args:
            parts: all of them, in order.
            digest: of the whole text.
            texts: datasets of one string to add.

        Raises:
            DataError: the file cannot be written; the parts are still there.
        """
        self.add(parts)
        with named_failures(self._outfile):
            require_room(self._temporary.parent, sum(map(len, texts.values())) + overhead(0))
            for name, text in texts.items():
                self._file.create_dataset(name, data=[text], dtype=h5py.string_dtype())
            write_attributes(self._file, self._settings, digest, parts[-1].end)
            self._file.close()
            self._replace.close()
        remove_parts(self._outfile)
