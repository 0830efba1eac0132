"""Texts as a model reads them: tokenised lines, or raw text that goes through the model's own steps."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from bilm.errors import BilmError
from bilm.io.lines import Lines, read_lines
from bilm.options.parameters import normaliser
from bilm.text.extract import raw_lines
from bilm.vocabulary import vocabulary_file
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.distribution import StoredModel

_LOG = logging.getLogger(__name__)


class ModelText:
    """Reads the lines of texts for a model, and counts words outside its vocabulary.

    Args:
        stored: the model.
        raw: the lines are raw text, of which the model's steps make sentences; otherwise they are sentences.
        vocabulary: vocabulary of the model, if it has been loaded; None for the one stored with it.

    Attributes:
        n_words: number of words read so far.
        n_unknown: number of these outside the vocabulary; 0 without one.

    Raises:
        ArgumentError: `raw` is set, but the steps are unknown.
    """

    def __init__(self, stored: StoredModel, raw: bool = False, vocabulary: Vocabulary | None = None) -> None:
        self.pipeline = stored.steps.require() if raw else None
        self._vocabulary = vocabulary
        if vocabulary is None:
            with suppress(BilmError):  # one that cannot be read is not needed
                if (known := stored.vocabulary(validate=False)) is not None:
                    known.unicode_form = stored.options.unicode_form
                self._vocabulary = known
        self._in_form = normaliser(stored.options.unicode_form)
        self._has_steps = stored.steps.content is not None
        self.n_words = self.n_unknown = self._n_marks = 0

    def word(self, text: str) -> str:
        """Return a word as it is in the sentences."""
        return self._in_form(text) if self.pipeline is None else self.pipeline.word(text)

    def sentences(self, text: str) -> list[list[str]]:
        """Return the words of the sentences of a short text, which are not counted."""
        text = self._in_form(text)
        return [text.split()] if self.pipeline is None else [*self.pipeline.sentences(text)]

    def opened(self, text: Iterable[str] | Path) -> Iterable[str]:
        """Return the lines of a text, which may be a file; they can be read again, except those of a pipe."""
        if not isinstance(text, Path):
            return text
        return Lines(lambda: read_lines(text)) if self.pipeline is None else raw_lines(text, self.pipeline)

    def lines(self, lines: Iterable[str] | Path, gap: str | None = None) -> Iterator[str]:
        """Yield sentences as a call does, without counting their words."""
        lines = self.opened(lines)
        return iter(lines) if self.pipeline is None else self.pipeline.read(lines, gap)

    def __call__(
        self,
        lines: Iterable[str] | Path,
        gap: str | None = None,
        is_gap: Callable[[str], bool] = lambda _: False,
    ) -> Iterator[str]:
        """Yield sentences, one a line, their words separated by whitespace.

        Args:
            lines: lines of the text, or its file.
            gap: word that is not counted, and stays whole in raw text, see `TextPipeline.read`.
            is_gap: tells which other words are not counted.
        """
        for line in self.lines(lines, gap):
            words = [word for word in line.split() if word != gap and not is_gap(word)]
            self.n_words += len(words)
            self._n_marks += words.count(vocabulary_file.BOS) + words.count(vocabulary_file.EOS)
            if self._vocabulary is not None:
                self.n_unknown += int((self._vocabulary.lookup(words) < 0).sum())
            yield line

    @property
    def share(self) -> str | None:
        """Share of the words outside the vocabulary, in words; None without words or without a vocabulary."""
        if self._vocabulary is None or not self.n_words:
            return None
        return f"{self.n_unknown / self.n_words:.2%} not in the vocabulary"

    def warn(self) -> None:
        """Warn, at the end of the text, of sentence marks in it, and of a text that seems of another kind."""
        if self.n_unknown > vocabulary_file.MOST_UNKNOWN * self.n_words:
            hint = "" if self.pipeline or not self._has_steps else "; a raw text needs --raw"
            _LOG.warning("text: %s%s", vocabulary_file.describe_unknown(self.n_unknown / self.n_words), hint)
        if self._n_marks:
            _LOG.warning("text: %s", vocabulary_file.describe_marks(self._n_marks))
