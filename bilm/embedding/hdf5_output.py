"""Embedding of a text into an HDF5 file.

While the next lines are computed, embeddings are written to part files beside the output and then copied into
it. An interrupted call can be resumed from its parts.
"""

import dataclasses
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import h5py
import numpy as np

from bilm.data.packing import VectorForm
from bilm.errors import ArgumentError, DataError, OptionsError
from bilm.io import PathLike, atomic, background, json_objects, messages, outputs
from bilm.weights.hdf5_file import opened_hdf5

if TYPE_CHECKING:
    from bilm.embedding.chunk_embedder import ChunkEmbedder

# Replacements of the characters that names in HDF5 cannot contain.
_STAND_INS = str.maketrans({"/": "\N{DIVISION SLASH}", "\0": "\N{SYMBOL FOR NULL}"})
_SETTINGS, _TEXT, _LINES = "bilm_settings", "bilm_text", "bilm_lines"
"""Attributes of a file or part: its settings, and the checksum and number of all lines up to its end."""
_SENTENCES = "sentences"
_PART_NAME = "part-{:012}.hdf5"
_UNFINISHED = "part-unfinished.tmp"
_PART_BYTES = 1 << 26
_PART_SECONDS = 10.0  # work that is lost if the process is killed
_DATASET_BYTES = 1 << 12  # overhead of a compressed dataset
_MOST_KEPT_BYTES = 1 << 25  # size of HDF5's cache
_EXTRA_BYTES = 1 << 16  # size of a file without datasets


@dataclasses.dataclass(frozen=True)
class FileFormat(VectorForm):
    """Format of a file of embeddings.

    Attributes:
        use_sentence_keys: name a dataset by its sentence, see `_Text`, instead of by its line number from 0.
        forget_sentences: leave out ``sentence_to_index``, the map from sentences, except blank lines, to
            line numbers; a repeated sentence has its last line number.
        include_sentence_indices: write the map as ``sentence_indices`` too, like older versions of AllenNLP.
        compression: ``gzip``, ``lzf`` or None.

    Raises:
        OptionsError: there is no such compression; or as `VectorForm`.
    """

    use_sentence_keys: bool = False
    forget_sentences: bool = False
    include_sentence_indices: bool = False
    compression: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compression not in ("gzip", "lzf", None):
            raise OptionsError(f"compression is {self.compression!r:.80}; give gzip, lzf or None")


class EmbeddingReport:
    """Counts of embedded lines and words.

    Attributes:
        n_lines: number of lines of the text so far.
        n_blank: number of these lines without words.
        n_tokens: number of words that this call embedded.
        n_kept: number of lines kept from an earlier call.
        seconds: duration of this call.
        occurrences: number of occurrences of each word, where vectors are those of words.
    """

    def __init__(self) -> None:
        self.occurrences: Counter[str] = Counter()
        self.n_lines = self.n_blank = self.n_tokens = self.n_kept = 0
        self.seconds, self._began = 0.0, time.monotonic()

    def count(self, n_lines: int = 0, n_blank: int = 0, n_tokens: int = 0) -> None:
        """Add to the counts and update `seconds`."""
        self.n_lines += n_lines
        self.n_blank += n_blank
        self.n_tokens += n_tokens
        self.seconds = time.monotonic() - self._began

    def require_some(self, words: Collection[str] | None = None) -> None:
        """Raise a `DataError` if the text has no lines, or none of the words."""
        if not self.n_lines:
            raise DataError("there are no sentences to embed: the text is empty")
        if words is not None and not self.occurrences:
            raise DataError("none of the words is in the text; they are compared as they are written")


def check_embeddings(
    outfile: Path, overwrite: bool, resume: bool, inputs: Collection[PathLike | int | None] = ()
) -> None:
    """Check that a file of embeddings can be written without losing other files.

    Args:
        outfile: the file.
        overwrite: allow replacing the file or its parts.
        resume: allow continuing the file.
        inputs: see `bilm.io.outputs.refuse_inputs`.

    Raises:
        ArgumentError: `overwrite` and `resume` are both set.
        DataError: the file cannot be written; the message says why.
    """
    if overwrite and resume:
        raise ArgumentError("`overwrite` and `resume` exclude each other")
    outputs.check_output(outfile, True, inputs)
    if overwrite or resume:
        return
    if outfile.exists():
        raise DataError(f"{outfile}: exists; overwrite=True replaces it, resume=True continues it")
    if _part_files(outfile):
        raise DataError(
            f"{_parts_directory(outfile)}: holds an unfinished file; resume=True finishes it, overwrite=True "
            "starts again"
        )


def embed_file(
    embedder: "ChunkEmbedder",
    lines: Iterable[str],
    outfile: Path,
    form: FileFormat,
    *,
    overwrite: bool = False,
    resume: bool = False,
    with_sentences: bool = False,
    callback: Callable[[EmbeddingReport], None] = lambda report: None,
) -> EmbeddingReport:
    """Embed lines and write them to a file.

    A blank line gets an empty dataset, so that keys are line numbers, or zeros with pooling; with sentence
    keys it gets no dataset.

    Args:
        embedder: embedder of the lines.
        lines: lines of words separated by whitespace.
        outfile: HDF5; the file gets its name only when it is complete.
        form: format of the file.
        overwrite: replace an existing file or its parts.
        resume: keep the existing lines, which must be from the same text and model, and embed the rest.
        with_sentences: write all lines, in order, as ``sentences`` if the format has ``sentence_to_index``,
            where a repeated sentence has only one number.
        callback: called with the report every few thousand words.

    Returns:
        The counts of the whole call.

    Raises:
        DataError: there are no lines; the output exists, cannot be written or is being written by another
            process; or the file to resume has another text or other settings.
        OptionsError: `resume` is set and the embedder is stateful, since the state is not saved.
    """
    if resume and embedder.stateful:
        raise OptionsError("`resume` does not go with `stateful`, whose LSTM state is not saved; start again")
    report = EmbeddingReport()
    settings = dataclasses.asdict(form) | {"stateful": embedder.stateful, "model": embedder.fingerprint}
    with ExitStack() as stack:
        held = atomic.writing(outfile, finish=partial(_remove_parts, outfile), failure=DataError)
        (temporary,) = stack.enter_context(held)
        check_embeddings(outfile, overwrite, resume)
        parts = find_parts(outfile, settings) if resume else []
        text = _Text(lines, form, with_sentences, report)
        for part in parts:
            text.skip(part)
        report.n_kept = report.n_lines
        embedded = background.prefetch(text.chunks(embedder), depth=1)
        first = next(embedded, None)
        if first is None:
            report.require_some()
            if [part.path for part in parts] == [outfile]:
                temporary.unlink()  # the output stays as it is
                return report
        if not resume:
            _remove_parts(outfile)
        with _failures_named(outfile):
            file = stack.enter_context(h5py.File(temporary, "w", locking=False))
        embedded = chain([first] if first else [], embedded)
        own_names = [*text.index_names, _SENTENCES] if text.index_names else []
        new_parts = _write_parts(embedded, outfile, settings, partial(callback, report))
        for path in chain([part.path for part in parts], new_parts):
            with _failures_named(outfile), path.open("rb") as stream, h5py.File(stream) as source:
                atomic.require_disk_space(temporary.parent, path.stat().st_size + _MOST_KEPT_BYTES)
                for key in source:
                    if key not in own_names:
                        source.copy(key, file, key)
        with _failures_named(outfile):
            index = json.dumps(text.index)
            n_bytes = (len(text.index_names) + bool(text.sentences)) * len(index)
            atomic.require_disk_space(temporary.parent, n_bytes + _EXTRA_BYTES)
            for name in text.index_names:
                file.create_dataset(name, data=[index], dtype=h5py.string_dtype())
            if text.sentences:
                file.create_dataset(_SENTENCES, data=text.sentences, dtype=h5py.string_dtype())
            _write_attributes(file, settings, report.n_lines, text.digest)
            file.close()
    report.count()
    return report


def _failures_named(outfile: Path) -> AbstractContextManager[None]:
    """Turn errors of HDF5 and the system into a `DataError` that names the file."""
    return messages.os_errors_as(DataError, f"{outfile}: cannot be written", RuntimeError)


# --- the text -------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """A line: the key of its dataset, or None, and its words; for `end` and `digest` see `Part`."""

    key: str | None
    words: list[str]
    end: int
    digest: str


_Chunk: TypeAlias = list[tuple[_Line, np.ndarray]]


class _Text:
    """The lines of a text, their keys and their checksum.

    Attributes:
        index_names: names of the datasets that map sentences to line numbers.
        index: line numbers by sentence.
        sentences: all lines so far, if they are kept.

    With sentence keys each sentence is written once, and blank lines are not written. HDF5 does not allow
    every name: in keys a slash becomes U+2215, a NUL U+2400, and a sentence of one full stop U+2024.
    """

    def __init__(
        self, lines: Iterable[str], form: FileFormat, keeps_sentences: bool, report: EmbeddingReport
    ) -> None:
        self._lines, self._form, self._report = iter(lines), form, report
        self._sentences: dict[str, str] = {}
        has_index = not (form.use_sentence_keys or form.forget_sentences)
        names = ["sentence_to_index"] + ["sentence_indices"] * form.include_sentence_indices
        self.index_names = names if has_index else []
        self.index: dict[str, str] = {}
        self.sentences: list[str] = []
        self._keeps_sentences = keeps_sentences and has_index
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """SHA-256 of the lines so far."""
        return self._digest.hexdigest()

    def skip(self, part: "Part") -> None:
        """Skip the lines up to the end of a part.

        Raises:
            DataError: the lines are not those of the part, or there is a gap before it.
        """
        is_next = part.start == self._report.n_lines
        for line in islice(self._lines, max(part.end - self._report.n_lines, 0)):
            self._take(line)
        if not is_next or (self._report.n_lines, self.digest) != (part.end, part.digest):
            raise DataError(
                f"{part.path}: belongs to another text, is damaged, or the part before it is missing; "
                "overwrite=True starts again"
            )

    def _take(self, line: str) -> _Line:
        """Count the next line and return it with its key."""
        sentence = line.strip()
        key = self._key(sentence)
        if sentence and self.index_names:
            self.index[sentence] = str(self._report.n_lines)
        if self._keeps_sentences:
            self.sentences.append(sentence)
        self._digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
        self._report.count(1, not sentence)
        return _Line(key, sentence.split(), self._report.n_lines, self.digest)

    def _key(self, sentence: str) -> str | None:
        """Return the key of the next line; None if it gets no dataset of its own."""
        if not self._form.use_sentence_keys:
            return str(self._report.n_lines)
        if not sentence:
            return None
        key = sentence.translate(_STAND_INS)
        key = "\N{ONE DOT LEADER}" if key == "." else key  # which is the group itself
        while key in self._sentences:
            if self._sentences[key] == sentence:
                return None
            key += "\N{DIVISION SLASH}"  # taken by a sentence that contains the replacement itself
        self._sentences[key] = sentence
        return key

    def chunks(self, embedder: "ChunkEmbedder") -> Iterator[_Chunk]:
        """Embed the remaining lines."""

        def words_of(line: _Line) -> list[str] | None:
            # A repeated sentence is embedded again only for its effect on the state.
            if line.key is None and not embedder.stateful:
                return None
            self._report.count(n_tokens=len(line.words))
            return line.words

        return embedder.in_chunks(map(self._take, self._lines), words_of, self._form)


# --- parts ----------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A complete file with the embeddings of consecutive lines.

    Attributes:
        path: the file.
        start: number, from 0, of the first line in the file.
        end: number of the line after the last one in the file.
        digest: SHA-256 of all lines of the text before `end`.
    """

    path: Path
    start: int
    end: int
    digest: str


def _parts_directory(outfile: Path) -> Path:
    """Return the directory of the parts, beside the output or, if that is a symlink, beside its target."""
    return Path(f"{outfile.resolve()}.parts")


def _part_files(outfile: Path) -> list[Path]:
    """List the existing parts, in the order of their lines."""
    return sorted(_parts_directory(outfile).glob(f"part-{'[0-9]' * 12}.hdf5"))


def _remove_parts(outfile: Path) -> None:
    """Delete the parts of an unfinished file, but no other files in their directory."""
    directory = _parts_directory(outfile)
    for file in (directory / _UNFINISHED, *reversed(_part_files(outfile))):  # the rest can be resumed
        file.unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


def find_parts(outfile: Path, settings: Mapping[str, Any]) -> list[Part]:
    """Find the existing parts of a file, which may be the file itself, in the order of their lines.

    Raises:
        DataError: a part was written with other settings, or cannot be read.
    """
    paths = _part_files(outfile)
    if outfile.exists() and not (paths and paths[0].name == _PART_NAME.format(0)):
        paths.insert(0, outfile)  # otherwise the parts will replace it
    parts: list[Part] = []
    for path in paths:
        with opened_hdf5(path, DataError) as file:
            if _SETTINGS not in file.attrs:
                raise DataError(f"{path}: was not written by bilm embed and cannot be resumed")
            read = partial(_read_attribute, file, str(path))
            own = json_objects.parse_json(read(_SETTINGS, "S"))
            own = own if isinstance(own, dict) else {}
            if own != settings:
                different = ", ".join(json_objects.changes(own, settings))
                remedy = "overwrite=True starts again"
                raise DataError(f"{path}: was written with other settings: {different}; {remedy}")
            end, digest = int(read(_LINES, "iu")), read(_TEXT, "S").decode()
            start = 0 if path == outfile else int(path.stem.removeprefix("part-"))
            if not parts or end > parts[-1].end:  # a part that the output has was about to be removed
                parts.append(Part(path, start, end, digest))
    return parts


def _read_attribute(file: h5py.File, path: str, name: str, kinds: str) -> Any:  # noqa: ANN401
    """Read a number or bytes, but no text of variable length: with it a damaged file can hang HDF5."""
    attribute = file.attrs.get_id(name)
    if attribute.dtype.kind not in kinds or attribute.shape != ():
        raise DataError(f"{path}: its attribute {name} was not written by bilm embed")
    return file.attrs[name]


def _write_parts(
    embedded: Iterable[_Chunk], outfile: Path, settings: Mapping[str, Any], on_chunk: Callable[[], None]
) -> Iterator[Path]:
    """Write chunks in parts and yield their paths; the last part is written even after an error.

    Raises:
        DataError: a part cannot be written; earlier parts are kept.
    """
    waiting: _Chunk = []
    since = time.monotonic()
    try:
        for chunk in embedded:
            waiting += chunk
            on_chunk()
            n_bytes = sum(vectors.nbytes for _, vectors in waiting)
            if n_bytes >= _PART_BYTES or time.monotonic() - since >= _PART_SECONDS:
                yield _write_part(waiting, outfile, settings)
                since = time.monotonic()
    finally:
        last = _write_part(waiting, outfile, settings) if waiting else None
    if last is not None:
        yield last


def _write_part(lines: _Chunk, outfile: Path, settings: Mapping[str, Any]) -> Path:
    """Write lines as a part, and empty the list."""
    directory, last = _parts_directory(outfile), lines[-1][0]
    path = directory / _PART_NAME.format(lines[0][0].end - 1)
    arrays = [(line.key, vectors) for line, vectors in lines if line.key is not None]
    n_bytes = sum(array.nbytes + _DATASET_BYTES for _, array in arrays)
    unfinished = directory / _UNFINISHED
    with _failures_named(outfile), ExitStack() as stack:
        atomic.make_own(directory, outfile)
        atomic.require_disk_space(directory, n_bytes + _EXTRA_BYTES)
        stack.callback(unfinished.unlink, missing_ok=True)
        # In order of their making, so that the file is the same wherever parts end.
        with h5py.File(unfinished, "w", locking=False, track_order=True) as file:
            for key, array in arrays:
                compression = settings["compression"] if array.size else None
                file.create_dataset(key, data=array, compression=compression)
            _write_attributes(file, settings, last.end, last.digest)
        atomic.sync(unfinished)
        unfinished.replace(path)
    lines.clear()
    return path


def _write_attributes(file: h5py.File, settings: Mapping[str, Any], end: int, digest: str) -> None:
    text = json.dumps(dict(settings), default=int)  # the number of a layer may be NumPy's
    file.attrs.update({_SETTINGS: np.bytes_(text), _TEXT: np.bytes_(digest), _LINES: end})
