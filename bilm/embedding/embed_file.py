"""Embedding a text into a file: sentences in, vectors out, computing and writing at the same time."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.embedding.hdf5_output import (
    Part,
    PartsJoiner,
    PartsWriter,
    TextDigest,
    find_parts,
    parts_held,
    refuse_existing,
    remove_parts,
)
from bilm.embedding.packing import Embedder, Layers, chunks, no_vectors
from bilm.errors import DataError, OptionsError
from bilm.io.background import map_in_order, prefetch

# What a name in HDF5 cannot hold, and what stands for it.
_STAND_INS = str.maketrans({"/": "\N{DIVISION SLASH}", "\0": "\N{SYMBOL FOR NULL}"})
_OWN_GROUP = "."


@dataclass(frozen=True)
class FileFormat:
    """What is written.

    Attributes:
        layers: which layers; (layers, words, dim) for all of them, else (words, dim).
        use_sentence_keys: name a dataset by its sentence, see `Keys`, instead of by its line number from 0.
        forget_sentences: leave out ``sentence_to_index``, which maps sentences to line numbers (the
            last, of equal ones); blank lines are not in it.
        include_sentence_indices: write it as ``sentence_indices`` too, as older versions of AllenNLP.
        dtype: ``float32`` or ``float16``.
        compression: ``gzip``, ``lzf`` or None.
    """

    layers: Layers = "all"
    use_sentence_keys: bool = False
    forget_sentences: bool = False
    include_sentence_indices: bool = False
    dtype: str = "float32"
    compression: str | None = None


class Keys:
    """Names of the datasets, given out line by line.

    Args:
        use_sentences: a sentence is its own key: written once, blank lines not at all. A slash becomes
            U+2215, a NUL U+2400 and a sentence that is one full stop U+2024, which HDF5 can hold.
    """

    def __init__(self, use_sentences: bool) -> None:
        self._use_sentences = use_sentences
        self._sentences: dict[str, str] = {}

    def assign(self, number: int, sentence: str) -> str | None:
        """The key of line `number`, from 0; None if the line has no dataset of its own."""
        if not self._use_sentences:
            return str(number)
        if not sentence:
            return None
        key = sentence.translate(_STAND_INS)
        key = "\N{ONE DOT LEADER}" if key == _OWN_GROUP else key
        while key in self._sentences:
            if self._sentences[key] == sentence:
                return None
            key += "\N{DIVISION SLASH}"  # of another sentence, which has the stand-in itself
        self._sentences[key] = sentence
        return key


class _Line(NamedTuple):
    """A line, the key of its dataset if it gets one, and its words."""

    text: str
    key: str | None
    words: list[str]


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines and the datasets that they get."""

    lines: list[str]
    arrays: dict[str, np.ndarray]
    n_blank: int
    n_tokens: int


class EmbeddedText:
    """The lines, their keys and their sum."""

    def __init__(self, lines: Iterable[str], form: FileFormat) -> None:
        self._lines = iter(lines)
        self._form = form
        self._keys = Keys(form.use_sentence_keys)
        self._index: dict[str, str] = {}
        self._n_lines = 0
        self.n_blank = 0
        self.digest = TextDigest()

    def is_at_end(self) -> bool:
        """Whether no line is left."""
        for line in self._lines:
            self._lines = chain([line], self._lines)
            return False
        return True

    def skip(self, parts: Sequence[Part]) -> int:
        """Pass over the lines of parts that are there; their number.

        Raises:
            DataError: the lines are others.
        """
        for part in parts:
            digest = TextDigest()
            for line in islice(self._lines, part.end - self._n_lines):
                digest.add(line)
                self.n_blank += not self._take(line).words
            if self._n_lines != part.end or digest.hexdigest() != part.digest:
                raise DataError(f"{part.path}: belongs to another text; overwrite=True starts again")
        return self._n_lines

    def _take(self, line: str) -> _Line:
        """Count the next line in."""
        sentence = line.strip()
        key = self._keys.assign(self._n_lines, sentence)
        if sentence and not (self._form.forget_sentences or self._form.use_sentence_keys):
            self._index[sentence] = str(self._n_lines)
        self.digest.add(line)
        self._n_lines += 1
        return _Line(line, key, sentence.split())

    def chunks(self, embedder: Embedder) -> Iterator[Chunk]:
        """Embed the lines that are left."""
        # A blank line is no row of a batch whose state is carried.
        blank = None if embedder.stateful else ()
        lines = map(self._take, self._lines)
        found = chunks(lines, embedder.is_chunk, lambda line: line.words or blank)
        yield from map_in_order(lambda chunk: self._embed(embedder, chunk), found, embedder.n_at_once)

    def _embed(self, embedder: Embedder, lines: list[_Line]) -> Chunk:
        form = self._form
        # A repeated sentence is embedded again only for the state it leaves behind.
        needed = [line for line in lines if line.words and (line.key is not None or embedder.stateful)]
        results = embedder.embed_chunk([line.words for line in needed], form.layers, form.dtype)
        arrays = {one.key: array for one, array in zip(needed, results, strict=True) if one.key is not None}
        blank = [line for line in lines if not line.words]
        empty = no_vectors(embedder, form.layers, form.dtype)
        arrays |= {line.key: empty for line in blank if line.key is not None}
        n_tokens = sum(len(line.words) for line in needed)
        return Chunk([line.text for line in lines], arrays, len(blank), n_tokens)

    @property
    def index_names(self) -> list[str]:
        """Datasets that map the sentences to line numbers."""
        if self._form.use_sentence_keys or self._form.forget_sentences:
            return []
        return ["sentence_to_index"] + ["sentence_indices"] * self._form.include_sentence_indices

    def indices(self) -> dict[str, str]:
        """Those datasets."""
        return dict.fromkeys(self.index_names, json.dumps(self._index))


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
