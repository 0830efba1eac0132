"""Vectors of words at their occurrences in a text, and their means, as NumPy's and word2vec's files."""

import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bilm.data.packing import VectorForm
from bilm.embedding.hdf5_output import EmbeddingReport
from bilm.errors import DataError, OptionsError
from bilm.io import PathLike, atomic
from bilm.options.parameters import normaliser

if TYPE_CHECKING:
    from bilm.embedding.chunk_embedder import ChunkEmbedder

_MOST_NAME_BYTES = 1 << 15  # a member's name in a ZIP archive has less than twice as many


class WordOccurrence(NamedTuple):
    """A word at a place of a text, and its vector there.

    Attributes:
        line: line number of the sentence, from 0.
        position: position of the word in its sentence, from 0.
        word: the word, as given in `words`; without `words`, in the model's normal form.
        vector: (dim,), or for all layers (layers, dim).
    """

    line: int
    position: int
    word: str
    vector: np.ndarray


def occurrences(
    embedder: "ChunkEmbedder",
    sentences: Iterable[Sequence[str]],
    words: Collection[str] | None,
    form: VectorForm,
    report: EmbeddingReport,
    callback: Callable[[EmbeddingReport], None] = lambda report: None,
) -> Iterator[list[WordOccurrence]]:
    """Yield the occurrences of words in order, some sentences at a time.

    Only sentences that have one of the words are computed.

    Args:
        embedder: embedder of the sentences.
        sentences: the words of each sentence.
        words: words to find; None for every word.
        form: form of the vectors, without pooling.
        report: is updated.
        callback: called with the report every few thousand words.

    Raises:
        OptionsError: there are words to find, and the embedder is stateful, so that it needs all sentences.
    """
    if words is not None and embedder.stateful:
        raise OptionsError("`stateful` needs all sentences, and `words` skips some; leave out one of them")
    in_form = normaliser(embedder.model.options.unicode_form)
    spellings: dict[str, list[str]] = defaultdict(list)
    for word in dict.fromkeys(words or ()):
        spellings[in_form(word)].append(word)

    def with_places() -> Iterator[tuple[int, Sequence[str], list[tuple[int, str]]]]:
        for line, sentence in enumerate(sentences):
            report.count(1, not sentence)
            places = [*enumerate(map(in_form, sentence))]
            if words is not None:
                places = [(place, name) for place, word in places for name in spellings.get(word, ())]
            if places or words is None:  # a blank line counts for `stateful`
                yield line, sentence, places

    for chunk in embedder.in_chunks(with_places(), lambda item: item[1], form):
        found = [
            WordOccurrence(line, place, word, vectors[..., place, :].copy())  # without the sentence
            for (line, _, places), vectors in chunk
            for place, word in places
        ]
        report.count(n_tokens=sum(len(sentence) for (_, sentence, _), _ in chunk))
        report.occurrences.update(occurrence.word for occurrence in found)
        callback(report)
        yield found


def mean_vectors(found: Iterable[WordOccurrence], min_count: int = 1) -> dict[str, np.ndarray]:
    """Return the mean vector of each word over its occurrences, float32, by descending number of these.

    Args:
        found: occurrences.
        min_count: leave out words with fewer occurrences.
    """
    sums: dict[str, Any] = defaultdict(float)
    counts: Counter[str] = Counter()
    for occurrence in found:
        sums[occurrence.word] += occurrence.vector.astype(np.float64)
        counts[occurrence.word] += 1
    return {word: (sums[word] / n).astype(np.float32) for word, n in counts.most_common() if n >= min_count}


def check_names(words: Iterable[str]) -> None:
    """Check that words can name the arrays of a NumPy archive, in which ``a.npy`` is another name of ``a``.

    Raises:
        DataError: names the first word that cannot.
    """
    for word in words:
        if word.endswith(".npy") or "\0" in word or len(word.encode()) > _MOST_NAME_BYTES:
            raise DataError(
                f"{word!r:.80} cannot name an array of an .npz file; leave it out, or write Parquet"
            )


def embed_npz(
    embedder: "ChunkEmbedder",
    lines: Iterable[str],
    outfile: PathLike,
    words: Sequence[str],
    form: VectorForm,
    *,
    overwrite: bool = False,
    callback: Callable[[EmbeddingReport], None] = lambda report: None,
) -> EmbeddingReport:
    """Write the vectors of words at all their occurrences to a NumPy archive.

    The archive has three arrays for each word, also for one that does not occur: the vectors, (occurrences,
    dim) or for all layers (occurrences, layers, dim), under the name of the word; and int64 (occurrences,)
    each, ``WORD line`` and ``WORD position``, both from 0. No word contains a space.

    Args:
        embedder: embedder of the sentences.
        lines: text, words separated by whitespace.
        outfile: the archive; it gets its name only when it is complete.
        words: the words, without repetitions, see `check_names`.
        form: form of the vectors, without pooling.
        overwrite: the archive may exist.
        callback: called with the report every few thousand words.

    Raises:
        DataError: the archive cannot be written, or none of the words is in the text.
    """
    report = EmbeddingReport()
    by_word: dict[str, list[WordOccurrence]] = defaultdict(list)
    empty = np.moveaxis(embedder.no_vectors(form), -2, 0)
    with atomic.writing(outfile, overwrite=overwrite, failure=DataError) as (temporary,):
        chunks = occurrences(embedder, map(str.split, lines), words, form, report, callback)
        for occurrence in chain.from_iterable(chunks):
            by_word[occurrence.word].append(occurrence)
        report.require_some(words)
        with zipfile.ZipFile(temporary, "w") as archive:
            for word in words:
                own = by_word.pop(word, [])
                arrays = {
                    word: np.stack([occurrence.vector for occurrence in own]) if own else empty,
                    f"{word} line": np.array([occurrence.line for occurrence in own], np.int64),
                    f"{word} position": np.array([occurrence.position for occurrence in own], np.int64),
                }
                for name, array in arrays.items():
                    # Without the time of writing, so that equal vectors are equal files.
                    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                        np.lib.format.write_array(member, array, allow_pickle=False)
    report.count()
    return report


def embed_word2vec(
    embedder: "ChunkEmbedder",
    texts: Iterable[tuple[str, Iterable[str]]],
    outfile: PathLike,
    words: Sequence[str] | None,
    form: VectorForm,
    min_count: int = 1,
    *,
    overwrite: bool = False,
    callback: Callable[[EmbeddingReport], None] = lambda report: None,
) -> EmbeddingReport:
    """Write one vector for each word type of texts, the mean over its occurrences, in word2vec's text format.

    The first line has the number of words and the dimension, the others a word and its numbers, the most
    frequent word first.

    Args:
        embedder: embedder of the sentences.
        texts: pairs of a name and the text's lines, words separated by whitespace.
        outfile: the file; it gets its name only when it is complete.
        words: words to write; None for every word.
        form: form of the vectors: a single layer or the mean of all, without pooling.
        min_count: leave out words with fewer occurrences.
        overwrite: the file may exist.
        callback: called with the report every few thousand words.

    Raises:
        DataError: the file cannot be written, or there are no words for it.
    """
    report = EmbeddingReport()
    sentences = (map(str.split, lines) for _, lines in texts)
    by_text = (occurrences(embedder, text, words, form, report, callback) for text in sentences)
    with atomic.writing(outfile, overwrite=overwrite, failure=DataError) as (temporary,):
        vectors = mean_vectors(chain.from_iterable(chain.from_iterable(by_text)), min_count)
        report.require_some(words)
        if not vectors:
            raise DataError(
                f"there are no vectors to write: no word occurs often enough (`min_count` {min_count})"
            )
        report.occurrences = Counter({word: report.occurrences[word] for word in vectors})
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(f"{len(vectors)} {embedder.no_vectors(form).shape[-1]}\n")
            for word, vector in vectors.items():
                file.write(" ".join([word, *(f"{number:.7g}" for number in vector.tolist())]) + "\n")
    report.count()
    return report
