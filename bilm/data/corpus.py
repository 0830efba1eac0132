"""A corpus: reading its sentences, counting and checking them.

A corpus is one or more files with one tokenised sentence per line, the tokens separated by whitespace. Files
are streamed: memory use depends on the longest line, not on the size of a file.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Annotated, Any

import numpy as np

from bilm.data.stream import Order, Sentences, every_nth, sentence_stream
from bilm.errors import CheckpointError, DataError
from bilm.io import PathLike, background
from bilm.io.json_objects import Bounds, Count, JsonObject
from bilm.io.lines import read_lines, text_blocks
from bilm.io.messages import number_of
from bilm.io.shards import Shard, input_files, name_files, same_shards
from bilm.options.parameters import normaliser
from bilm.text.doubts import doubts_about_lines, first_lines
from bilm.vocabulary import vocabulary_file
from bilm.vocabulary.vocabulary import Vocabulary

_SENTENCE, _BLANK = "\n", ""  # counted with the words; no word equals them


def count_words(sentences: Iterable[Sequence[str]]) -> Counter[str]:
    """Count words, sentences and blank lines, which `take_lines` takes from the counts.

    Args:
        sentences: words of each sentence; none for a blank line.
    """
    return Counter(chain.from_iterable([*words, _SENTENCE] if words else [_BLANK] for words in sentences))


def take_lines(counts: Counter[str]) -> tuple[int, int]:
    """Remove the numbers of sentences and of blank lines from counts of `count_words`, and return them."""
    return counts.pop(_SENTENCE, 0), counts.pop(_BLANK, 0)


_NOT_RECORDED: dict[str, Any] = {"word_counts": np.zeros(0, np.int64)}


@dataclass(frozen=True)
class CorpusCounts:
    """Counts of a corpus from one pass.

    Attributes:
        n_sentences: lines with at least one word.
        n_blank_lines: lines without words, which are not sentences.
        n_words: words, without sentence marks.
        n_oov: words outside the vocabulary; a literal ``<UNK>`` in the text is not one.
        shards: the files as they were read.
        word_counts: int64 (vocabulary size,), occurrences per word id. Each sentence counts one ``<S>`` and
            one ``</S>``, each out-of-vocabulary word one ``<UNK>``; literal marks in the text are added. The
            sum is ``n_words + 2 * n_sentences``. Empty if the other counts are from a record.
        n_characters: characters of the words, and one for the space or line end after each.
        n_shared: words of the heldout text that are in sentences of this text too.
    """

    n_sentences: Count
    n_blank_lines: Count
    n_words: Annotated[int, Bounds(least=1)]
    n_oov: Count
    shards: Sequence[Shard]
    word_counts: np.ndarray
    n_characters: Count = 0
    n_shared: Count = 0

    @property
    def n_tokens(self) -> int:
        """Targets of one pass in one direction: every word, and one mark per sentence."""
        return self.n_words + self.n_sentences

    @property
    def oov_rate(self) -> float:
        """Fraction of the words that are outside the vocabulary."""
        return self.n_oov / self.n_words


def count_corpus(
    files: Sequence[PathLike], vocabulary: Vocabulary, heldout: Iterable[PathLike] = ()
) -> CorpusCounts:
    """Count sentences, words and word ids in one pass.

    Args:
        files: files of the corpus.
        vocabulary: a vocabulary with both sentence marks.
        heldout: files of the heldout text, for ``n_shared``.

    Raises:
        DataError: as `read_lines`; or the files contain no words.
        VocabularyError: a word is unknown and the vocabulary has no ``<UNK>``.
    """
    in_form = normaliser(vocabulary.unicode_form)
    word_counts = np.zeros(vocabulary.size + 1, np.int64)  # index id + 1; unknown words have id -1
    n_blank = n_sentences = n_characters = n_shared = 0
    heldout_words: Counter[int] = Counter()  # words of each distinct sentence, by its hash
    for line in map(in_form, chain.from_iterable(map(read_lines, heldout))):
        heldout_words[hash(line.strip())] += len(line.split())
    shards: list[Shard] = []
    for path in files:
        for block in text_blocks(path, shards.append):
            text = in_form(block)
            lines, words = text.removesuffix("\n").split("\n"), text.split()
            sentences = [*map(str.strip, lines)]
            n_full = sum(map(bool, sentences))
            n_characters += sum(map(len, words)) + len(words)
            for shared in heldout_words.keys() & map(hash, sentences):
                n_shared += heldout_words.pop(shared)  # a sentence counts once
            n_sentences, n_blank = n_sentences + n_full, n_blank + len(lines) - n_full
            ids = vocabulary.lookup(words)
            if (ids < 0).any():
                vocabulary.unk_for(words[int(np.argmax(ids < 0))])
            word_counts += np.bincount(ids + 1, minlength=vocabulary.size + 1)
    n_words, n_oov = int(word_counts.sum()), int(word_counts[0])
    if not n_words:
        raise DataError(f"no words in {name_files(files)}: the corpus is empty")
    by_id = word_counts[1:].copy()
    if n_oov:
        by_id[vocabulary.unk] += n_oov
    by_id[[vocabulary.bos, vocabulary.eos]] += n_sentences
    return CorpusCounts(*(n_sentences, n_blank, n_words, n_oov, tuple(shards), by_id, n_characters, n_shared))


def doubts_about_corpus(
    counts: CorpusCounts, vocabulary: Vocabulary, lines: Sequence[str], *, trains: bool = True
) -> Iterator[str]:
    """Yield a message, with a remedy, for each way in which a text or its vocabulary seems unsuitable.

    Args:
        counts: counts of the text.
        vocabulary: the vocabulary used for counting.
        lines: some lines of the text.
        trains: the text trains a model, for which the vocabulary could still be another.
    """
    if counts.oov_rate > vocabulary_file.MOST_UNKNOWN:
        yield vocabulary_file.describe_unknown(counts.oov_rate)
    marks = counts.word_counts[[vocabulary.bos, vocabulary.eos]]
    if n_marks := int(marks.sum()) - 2 * counts.n_sentences:
        yield vocabulary_file.describe_marks(n_marks)
    if trains:
        if vocabulary.unicode_form is None and (forms := vocabulary_file.describe_forms(vocabulary.words)):
            yield forms
        special = {vocabulary.bos, vocabulary.eos, vocabulary.unk}
        by_rank = np.delete(counts.word_counts, [number for number in special if number >= 0])
        if disorder := vocabulary_file.describe_disorder(by_rank):
            yield disorder
    yield from doubts_about_lines(lines)


@dataclass(frozen=True)
class Text:
    """A counted corpus and its vocabulary.

    Attributes:
        vocabulary: the vocabulary.
        counts: counts of the corpus.
        doubts: messages of `doubts_about_corpus`; empty if the counts are from a record.
    """

    vocabulary: Vocabulary
    counts: CorpusCounts
    doubts: Sequence[str] = ()

    def sentences(self, *, compat: bool = False, every: int = 1) -> Iterator[Sentences]:
        """Read the sentences in order, in blocks, in a background thread.

        Args:
            compat: read as bilm-tf's ``LMDataset(test=True)``: the files from the last to the first, and
                blank lines as empty sentences.
            every: read every n-th sentence only; not with `compat`.

        Raises:
            DataError: during the iteration: a file cannot be read, or has changed since it was counted.
        """
        files = self.counts.shards[:: -1 if compat else 1]
        if every > 1:
            return background.prefetch(every_nth(files, self.vocabulary, every))
        blocks = sentence_stream(files, self.vocabulary, Order(), endless=False, keep_blank=compat)
        return (block.sentences for block in background.prefetch(blocks))


def read_text(
    patterns: Sequence[str],
    argument: str,
    vocabulary: Vocabulary,
    resources: ExitStack,
    record: object = None,
    heldout: Text | None = None,
) -> Text:
    """Find and count a text.

    Args:
        patterns: files, directories or globs; ``-`` for standard input.
        argument: name of the argument, for errors.
        vocabulary: vocabulary of the model.
        resources: owns the temporary copies of inputs that can be read only once.
        record: `corpus_record` of the call that is resumed, if any; an unchanged text is not counted again.
        heldout: heldout text, whose sentences are looked for in this text; None without one.

    Raises:
        CheckpointError: the record is damaged.
        DataError: the text cannot be read, is empty, or differs from the record.
    """
    files = resources.enter_context(input_files(patterns))
    if record is None:
        counts = count_corpus(files, vocabulary, heldout.counts.shards if heldout else ())
        lines = first_lines(counts.shards)
        found = doubts_about_corpus(counts, vocabulary, lines, trains=argument == "train_prefix")
        return Text(vocabulary, counts, tuple(found))
    counts = recorded_counts(record)
    try:
        return Text(vocabulary, replace(counts, shards=same_shards(counts.shards, files)))
    except DataError as error:
        remedy = "give the original text, in its order, or continue with `bilm restart`"
        raise DataError(f"`{argument}`: cannot be resumed with another text: {error}; {remedy}") from error


def corpus_record(counts: CorpusCounts) -> dict[str, Any]:
    """Return the counts of a text as plain values for JSON, which `recorded_counts` reads."""
    record = {name: value for name, value in vars(counts).items() if name not in _NOT_RECORDED}
    return record | {"shards": [*map(asdict, counts.shards)]}


def recorded_counts(record: object) -> CorpusCounts:
    """Read counts recorded by `corpus_record`, which lack `word_counts`.

    Raises:
        CheckpointError: the record is damaged.
    """
    text = JsonObject("text", record)
    counts = text.read_as(CorpusCounts, **_NOT_RECORDED)
    if text.problems:
        raise CheckpointError(
            f"the checkpoint's record of the text is damaged: {'; '.join(text.problems[:3])}"
        )
    return counts


def describe_corpus(counts: CorpusCounts, name: str = "corpus", n_files: int | None = None) -> str:
    """Return a line with the counts of a text, which was made of `n_files` if they are not its own."""
    files = number_of(n_files or len(counts.shards), "file")
    return (
        f"{name}: {files}, {number_of(counts.n_sentences, 'sentence')}"
        f"{describe_blank_lines(counts.n_blank_lines)}, {counts.n_tokens:,} tokens with sentence ends, "
        f"{counts.oov_rate:.2%} unknown words"
    )


def describe_blank_lines(n_blank_lines: int) -> str:
    """Return the words on blank lines that follow a count of sentences; empty without blank lines."""
    return f" ({number_of(n_blank_lines, 'blank line')} skipped)" if n_blank_lines else ""
