"""Embedding a text into a file: sentences in, HDF5 out, computing and writing at the same time."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from bilm.embedding.keys import Keys
from bilm.embedding.parts import Part, PartsJoiner, PartsWriter, TextDigest, find_parts
from bilm.embedding.parts_directory import parts_held, refuse_existing, remove_parts
from bilm.errors import DataError, OptionsError
from bilm.io.prefetch import prefetch

Layers = Literal["all", "top", "average"] | int
"""Which layers: all of them, the top one, their plain mean, or one by its number from 0, the word vectors."""


class Embedder(Protocol):
    """What makes the vectors, see `bilm.embedding.embedder.ElmoEmbedder`."""

    @property
    def n_layers(self) -> int:
        """Layers of a result."""

    @property
    def dim(self) -> int:
        """Width of a result."""

    @property
    def stateful(self) -> bool:
        """Whether a vector depends on the sentences before."""

    @property
    def fingerprint(self) -> str:
        """What tells the model from others."""

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together."""

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences, in their order."""


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
        lines: words separated by white space.
        outfile: HDF5; it has its name only when it is complete.
        form: what is written.
        overwrite: replace what is there.
        resume: keep what is there, of the same text and model, and do the rest.
        callback: told of every few thousand words that were written.

    Returns:
        What was done in all.

    Raises:
        DataError: there is no line, the output exists, cannot be written or is being written by another
            process, or what is to be gone on with is of another text or was made otherwise.
        OptionsError: `resume` while the state is carried, which is nowhere kept.
    """
    if resume and embedder.stateful:
        raise OptionsError(
            "resume: the LSTM state at the interruption is not kept; begin anew, or without state"
        )
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
    text = _Text(lines, form)
    n_kept = text.skip(parts)
    is_done = text.is_at_end()
    if is_done and not parts:
        raise DataError("there is no sentence to embed: the text is empty")
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
    """What a file must have in common with the one it goes on with."""
    return dataclasses.asdict(form) | {"stateful": embedder.stateful, "model": embedder.fingerprint}


@dataclass(frozen=True)
class _Chunk:
    """Consecutive lines and the datasets that they get."""

    lines: list[str]
    arrays: dict[str, np.ndarray]
    n_blank: int
    n_tokens: int


class _Text:
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
                _, sentence = self._take(line)
                self.n_blank += not sentence
            if self._n_lines != part.end or digest.hexdigest() != part.digest:
                raise DataError(f"{part.path}: is of another text; overwrite=True starts anew")
        return self._n_lines

    def _take(self, line: str) -> tuple[str | None, str]:
        """The key of the next line, and its sentence."""
        sentence = line.strip()
        key = self._keys.assign(self._n_lines, sentence)
        if sentence and not (self._form.forget_sentences or self._form.use_sentence_keys):
            self._index[sentence] = str(self._n_lines)
        self.digest.add(line)
        self._n_lines += 1
        return key, sentence

    def chunks(self, embedder: Embedder) -> Iterator[_Chunk]:
        """Embed the lines that are left."""
        lines: list[str] = []
        found: list[tuple[str | None, list[str]]] = []
        n_tokens = 0
        for line in self._lines:
            key, sentence = self._take(line)
            lines.append(line)
            found.append((key, sentence.split()))
            n_tokens += len(found[-1][1]) + 2
            n_sentences = sum(bool(words) for _, words in found) if embedder.stateful else len(found)
            if embedder.is_chunk(n_sentences, n_tokens):
                yield self._embed(embedder, lines, found)
                lines, found, n_tokens = [], [], 0
        if lines:
            yield self._embed(embedder, lines, found)

    def _embed(
        self, embedder: Embedder, lines: list[str], found: list[tuple[str | None, list[str]]]
    ) -> _Chunk:
        form = self._form
        # A repeated sentence is embedded again only for the state it leaves behind.
        needed = [(key, words) for key, words in found if words and (key is not None or embedder.stateful)]
        results = embedder.embed_chunk([words for _, words in needed], form.layers, form.dtype)
        arrays = {key: array for (key, _), array in zip(needed, results, strict=True) if key is not None}
        shape = (embedder.n_layers, 0, embedder.dim) if form.layers == "all" else (0, embedder.dim)
        arrays |= {key: np.zeros(shape, form.dtype) for key, words in found if key is not None and not words}
        n_blank = sum(not words for _, words in found)
        return _Chunk(lines, arrays, n_blank, sum(len(words) for _, words in needed))

    @property
    def index_names(self) -> list[str]:
        """Datasets that map the sentences to line numbers."""
        if self._form.use_sentence_keys or self._form.forget_sentences:
            return []
        return ["sentence_to_index"] + ["sentence_indices"] * self._form.include_sentence_indices

    def indices(self) -> dict[str, str]:
        """Those datasets."""
        return dict.fromkeys(self.index_names, json.dumps(self._index))
