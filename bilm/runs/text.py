"""A text that a call reads, and its vocabulary."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from bilm.data import corpus
from bilm.data.stream import Order, Sentences, sentence_stream
from bilm.errors import DataError
from bilm.io import PathLike, background, shards
from bilm.runs.reporter import Reporter
from bilm.runs.settings import as_patterns
from bilm.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True)
class Text:
    """A corpus that was read once, and its vocabulary."""

    vocabulary: Vocabulary
    counts: corpus.CorpusCounts

    def sentences(self, *, compat: bool = False, every: int = 1) -> Iterator[Sentences]:
        """The sentences in order, or every so many of them, in blocks, read in the background.

        With `compat` they come as in bilm-tf's ``LMDataset(test=True)``: the files from the last to the
        first, and blank lines as empty sentences. The text must be as it was counted, as in every pass.
        """
        files = self.counts.shards[:: -1 if compat else 1]
        blocks = sentence_stream(
            files, self.vocabulary, Order(n_parts=every), endless=False, keep_blank=compat
        )
        return (block.sentences for block in background.prefetch(blocks))


def read_text(
    patterns: PathLike | Iterable[PathLike],
    argument: str,
    vocabulary: Vocabulary,
    reporter: Reporter,
    resources: ExitStack,
    record: object = None,
) -> Text:
    """Find and count a text, and say what is in it.

    Args:
        patterns: files, directories or globs; ``-`` for standard input.
        argument: that gave them.
        vocabulary: of the model.
        reporter: told of it.
        resources: keeps what can be read only once until its end.
        record: `bilm.data.corpus.corpus_record` of the call that is resumed, if there is one; what is the
            same is not counted again.

    Raises:
        OptionsError: the patterns are something else.
        DataError: the text cannot be read, is empty, or is not that of the record.
    """
    standard_input = getattr(sys.stdin, "buffer", None) or io.BytesIO()  # a process may have none
    files = corpus.find_files(
        resources.enter_context(shards.spooled(as_patterns(patterns, argument), standard_input))
    )
    try:
        if record is None:
            counts = corpus.count_corpus(files, vocabulary)
        else:
            counts = corpus.recorded_counts(record, files)
    except DataError as error:
        if record is None:
            raise
        raise DataError(
            f"`{argument}`: cannot be resumed with another text: {error}; give the original text, or "
            "continue with `bilm restart`"
        ) from error
    name = "heldout" if argument == "heldout_prefix" else "corpus"
    reporter.say(corpus.describe_corpus(counts, name))
    if record is None:
        for doubt in corpus.doubts(counts, vocabulary):
            reporter.warn(f"{name}: {doubt}")
    return Text(vocabulary, counts)
