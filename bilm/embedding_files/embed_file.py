"""Embedding a text into a file: sentences in, HDF5 out, computing and writing at the same time."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.embedding_files.chunks import Embedder
from bilm.embedding_files.embedded_text import EmbeddedText, FileFormat
from bilm.embedding_files.parts import Part, find_parts
from bilm.embedding_files.parts_directory import parts_held, refuse_existing, remove_parts
from bilm.embedding_files.parts_joiner import PartsJoiner
from bilm.embedding_files.parts_writer import PartsWriter
from bilm.errors import DataError, OptionsError
from bilm.io.prefetch import prefetch


@dataclass(frozen=True)
class EmbeddingReport:
    """What has been done.

    Attributes:
        n_lines: lines of the text so far.
        n_blank: of them, lines without words.
        n_tokens: words embedded by this call.
        n_kept: lines that were there already.
        seconds: of this call.
    """

    n_lines: int
    n_blank: int
    n_tokens: int
    n_kept: int
    seconds: float


def embed_file(
    embedder: Embedder,
    lines: Iterable[str],
    outfile: Path,
    form: FileFormat,
    *,
    overwrite: bool = False,
    resume: bool = False,
    callback: Callable[[EmbeddingReport], None] | None = None,
) -> EmbeddingReport:
    """Embed lines and write them to a file.

    A blank line has an empty dataset, so that keys are line numbers; under sentence keys it has none.

    Args:
        embedder: makes the vectors.
        lines: words separated by whitespace.
        outfile: HDF5; it has its name only when it is complete.
        form: what is written.
        overwrite: replace what is there.
        resume: keep what is there, of the same text and model, and do the rest.
        callback: told of every few thousand words that were written.

    Returns:
        What was done in all.

    Raises:
        DataError: there is no line, the output exists, cannot be written or is being written by another
            process, or what is to be resumed is of another text or other settings.
        OptionsError: `resume` while the state is carried, which is nowhere kept.
    """
    if resume and embedder.stateful:
        raise OptionsError("resume: the LSTM state is not saved; start again, or embed without state")
    with parts_held(outfile):
        return _embed_file(embedder, lines, outfile, form, overwrite, resume, callback)


def _embed_file(
    embedder: Embedder,
    lines: Iterable[str],
    outfile: Path,
    form: FileFormat,
    overwrite: bool,
    resume: bool,
    callback: Callable[[EmbeddingReport], None] | None,
) -> EmbeddingReport:
    started = time.monotonic()
    settings = _settings(embedder, form)
    parts: list[Part] = []
    if resume:
        parts = find_parts(outfile, settings)
    elif not overwrite:
        refuse_existing(outfile)
    text = EmbeddedText(lines, form)
    n_kept = text.skip(parts)
    is_done = text.is_at_end()
    if is_done and not parts:
        raise DataError("there are no sentences to embed: the text is empty")
    if overwrite and not resume:
        remove_parts(outfile)

    def report(n_lines: int, n_blank: int, n_tokens: int) -> EmbeddingReport:
        return EmbeddingReport(n_lines, n_blank, n_tokens, n_kept, time.monotonic() - started)

    n_lines, n_blank, n_tokens = n_kept, text.n_blank, 0
    if is_done and [part.path for part in parts] == [outfile]:
        return report(n_lines, n_blank, n_tokens)
    with (
        PartsWriter(outfile, settings, n_kept, form.compression) as writer,
        PartsJoiner(outfile, settings, text.index_names) as joiner,
    ):
        for chunk in prefetch(text.chunks(embedder), depth=1):
            writer.write(chunk.lines, chunk.arrays)
            joiner.add([*parts, *writer.parts])
            n_lines += len(chunk.lines)
            n_blank += chunk.n_blank
            n_tokens += chunk.n_tokens
            if callback is not None:
                callback(report(n_lines, n_blank, n_tokens))
        writer.finish()
        joiner.finish([*parts, *writer.parts], text.digest.hexdigest(), text.indices())
    return report(n_lines, n_blank, n_tokens)


def _settings(embedder: Embedder, form: FileFormat) -> dict[str, Any]:
    """What a file must have in common with the one it continues."""
    return dataclasses.asdict(form) | {"stateful": embedder.stateful, "model": embedder.fingerprint}
