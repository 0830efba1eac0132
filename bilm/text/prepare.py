"""The call `prepare`: files of raw text to a corpus with heldout text and vocabulary."""

import dataclasses
import functools
import json
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any

from bilm.errors import ArgumentError, DataError, checked
from bilm.io import PathLike, as_patterns, atomic, background, in_groups, outputs, shards
from bilm.io.run_files import TEXT_FILE, TRAIN_DIRECTORY, own_output
from bilm.text.doubts import doubts_about_lines, first_lines
from bilm.text.extract import ROWS, TOKENISED, Kind, Source, raise_problems, recognise_all
from bilm.text.pipeline import DIVIDED, TextPipeline
from bilm.text.settings import Settings, Split
from bilm.vocabulary.vocabulary_file import choose_words, describe_forms, describe_marks, vocabulary_text

HELDOUT, VOCABULARY, _REPORT = "heldout.txt", "vocab.txt", "report.json"
"""Names of the files of a corpus, besides `TEXT_FILE` and `TRAIN_DIRECTORY`."""

_SHARD_BYTES, _MOST_SHARDS = 8_000_000, 1000
_N_STRETCHES = 2000  # of a text without heldout files, if it is large enough
_LEAST_STRETCH, _MOST_STRETCH = 200, 1 << 15  # characters, which are tokenised at once
_MOST_ABOVE = 1.1  # heldout files have at most this much of the wanted share
_MOST_TYPES = 8_000_000  # distinct words in memory; beyond, the rarer half is forgotten
_MOST_HASHES = 4_000_000  # of sentences in memory, 300 MB; later sentences are not remembered
_N_EXAMPLES, _N_UNKNOWN = 5, 10
_LONG_SENTENCE = 1000  # tokens
_MOST_DIVIDED = 0.005  # of the words; in EWT, in lines of 72 characters, 0.0004 are compounds


@dataclasses.dataclass
class TextCounts:
    """Counts of the train or heldout text.

    Attributes:
        n_sentences: number of sentences.
        n_tokens: number of words.
        n_types: number of distinct words.
        longest: words of the longest sentence.
        place: file and line of the longest sentence.
    """

    n_sentences: int = 0
    n_tokens: int = 0
    n_types: int = 0
    longest: int = 0
    place: str = ""


@dataclasses.dataclass
class Preparation:
    """Result of `prepare`.

    Attributes:
        directory: the corpus: ``train/``, ``heldout.txt``, ``vocab.txt`` and ``text.json``.
        settings: settings of the call.
        pipeline: the steps from text to sentences.
        texts: the texts as they were given.
        kinds: numbers of files by their kind.
        skipped: why files of folders are skipped, since they hold no text, by their names.
        left_out: elements of markup that were left out, by name.
        removed: invisible characters that were removed, by name.
        n_repeated: sentences that occurred before, among the first 4 million; dropped if `unique`.
        heldout_files: files that are held out as a whole.
        n_in_stretches: files of which stretches are held out, since none of their kind has the size.
        train: counts of the text to train on: `n_sentences`, `n_tokens`, `n_types`.
        heldout: counts of the heldout text.
        are_types_exact: false if rare words were forgotten on the way, to save memory.
        n_words: words of the vocabulary, with the three special ones.
        coverage: share of the training words in the vocabulary.
        unknown_share: share of the heldout words outside the vocabulary.
        unknown: the commonest of these, with their counts.
        examples: sentences of the training text.
        warnings: messages about the text.
    """

    directory: Path
    settings: Settings
    pipeline: TextPipeline
    texts: list[str]
    kinds: dict[str, int] = dataclasses.field(default_factory=dict)
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out: dict[str, int] = dataclasses.field(default_factory=dict)
    removed: dict[str, int] = dataclasses.field(default_factory=dict)
    n_repeated: int = 0
    heldout_files: list[str] = dataclasses.field(default_factory=list)
    n_in_stretches: int = 0
    train: TextCounts = dataclasses.field(default_factory=TextCounts)
    heldout: TextCounts = dataclasses.field(default_factory=TextCounts)
    are_types_exact: bool = True
    n_words: int = 0
    coverage: float = 0.0
    unknown_share: float = 0.0
    unknown: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    examples: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``report.json``: the steps, then the counts."""
        facts = dataclasses.asdict(self)
        del facts["directory"]
        return {**facts.pop("pipeline"), **facts}


@checked
def prepare(
    texts: PathLike | Iterable[PathLike],
    out: PathLike,
    *,
    overwrite: bool = False,
    callback: Callable[[int, int, int], None] | None = None,
    **settings: Any,
) -> Preparation:
    """Make a corpus of raw text: sentences to train on, heldout sentences and a vocabulary.

    Files are recognised by their content: plain text, TEI, ALTO, PAGE and other XML, HTML, JSON lines,
    tables, CoNLL-U, subtitles and the output of wikiextractor. Memory does not grow with the text, except
    for the vocabulary.

    Args:
        texts: files, directories with all below them, or globs; ``-`` for standard input.
        out: directory to write.
        overwrite: replace a corpus that this function wrote.
        callback: called again and again with the bytes read, those of all files, and the sentences.
        **settings: fields of `bilm.text.settings.Settings`, such as ``language="en"``.

    Raises:
        DataError: a text cannot be read or is not text, or the output is refused; names file and line.
        ArgumentError: an argument is unknown, has the wrong type, or is out of range.

    Example:
        >>> import bilm
        >>> report = bilm.prepare("corpus.txt", "corpus", tokens=True, heldout=0.1)
        >>> report.train.n_sentences + report.heldout.n_sentences, report.n_repeated
        (240, 0)
    """
    chosen = Settings.of(settings)
    patterns = [*as_patterns(texts, "texts")]
    shards.refuse_within(out, patterns)
    writing = functools.partial(atomic.writing, out, overwrite=overwrite, kind=CORPUS, failure=DataError)
    with shards.input_files(patterns) as files, writing(inputs=[*files, *patterns]) as (directory,):
        pipeline = TextPipeline(
            chosen.language, chosen.form, chosen.split, chosen.dehyphenate, chosen.encoding, chosen.field
        )
        report = Preparation(Path(out), chosen, pipeline, patterns)
        sources, report.skipped = recognise_all(files, patterns, chosen.encoding, chosen.field)
        for what, remedy in _REMEDIES.items():
            names = [source.name for source in sources if source.seems == what]
            hint = remedy.format(field=chosen.field)
            if names and not (what == TOKENISED and chosen.tokens):
                report.warnings.append(f"{shards.name_files(names)}: most lines seem to be {what}; {hint}")
        reading, corpus = _Reading(sources, chosen), _Corpus(directory, report)
        report.heldout_files = [source.name for source in sources if source in reading.heldout_sources]
        report.n_in_stretches = sum(source.kind in reading.divided_kinds for source in sources)
        removed, left_out = Counter[str](), Counter[str]()
        work = functools.partial(_tokenise, pipeline)
        for shard, sentences, removed_here in background.map_in_processes(work, reading, _n_processes()):
            removed.update(removed_here)
            corpus.add(shard, sentences)
            if callback is not None:
                n_sentences = report.train.n_sentences + report.heldout.n_sentences
                callback(reading.n_read, reading.n_bytes, n_sentences)
        report.kinds = dict(Counter(source.kind.value for source in sources))
        for source in sources:
            left_out.update(source.left_out)
        n_divided = 0 if chosen.dehyphenate else removed.pop(DIVIDED, 0)
        if n_divided > _MOST_DIVIDED * (report.train.n_tokens + report.heldout.n_tokens):
            problem = f"words divided at the ends of lines: {n_divided:,}"
            report.warnings.append(f"{problem}; `dehyphenate` joins their parts")
        report.removed, report.left_out = dict(removed.most_common()), dict((+left_out).most_common())
        corpus.finish()
    return report


# --- inputs -------------------------------------------------------------------------------------------


_REMEDIES = {
    ROWS: "no column is named {field!r}; give that of the text as `field`",
    TOKENISED: "give `tokens` to keep lines and words as they are",
}
_HELDOUT_SHARD = -1
_Task = tuple[int, Split, list[str]]  # shard, what the pieces are, pieces


class _Reading:
    """The text of all files in stretches of consecutive pieces, each for one shard; iterated once.

    Stretches are distributed over the shards at random, so that each shard has some of every file. Heldout
    files come first. Of a kind without any, the stretches at even distances are held out.

    Args:
        sources: the files.
        settings: settings of the call.

    Attributes:
        heldout_sources: the heldout files.
        divided_kinds: the kinds of file without any.
        n_bytes: bytes of all files.
        n_read: bytes that have been read.
    """

    def __init__(self, sources: Sequence[Source], settings: Settings) -> None:
        self._random = random.Random(settings.seed)
        self._share, self._split, self._field = settings.heldout, settings.split, settings.field
        self.n_bytes = sum(source.n_bytes for source in sources)
        # Each kind by itself, for the bytes of ALTO and of plain text hold different amounts of text.
        by_kind = {kind: [source for source in sources if source.kind is kind] for kind in Kind}
        chosen = {kind: self._chosen(those) for kind, those in by_kind.items() if those and self._share}
        self.divided_kinds = {kind for kind, those in chosen.items() if not those}
        self.heldout_sources = frozenset(chain.from_iterable(chosen.values()))
        # Heldout files first: of two equal sentences, the later one may be dropped.
        self._sources = sorted(sources, key=lambda source: source not in self.heldout_sources)
        self._n_shards = min(max(self.n_bytes // _SHARD_BYTES, 1), _MOST_SHARDS)
        self.n_read = 0

    def _chosen(self, sources: Sequence[Source]) -> list[Source]:
        """Choose heldout files at random; none if most of the text is in files larger than the share."""
        n_all = sum(source.n_bytes for source in sources)
        wanted = self._share * n_all
        fitting = [source for source in sources if source.n_bytes <= wanted]
        if sum(source.n_bytes for source in fitting) < n_all / 2:  # they may be texts of another sort
            return []
        chosen, n_bytes = [], 0
        for source in self._random.sample(fitting, len(fitting)):
            if n_bytes < wanted and n_bytes + source.n_bytes <= wanted * _MOST_ABOVE:
                chosen.append(source)
                n_bytes += source.n_bytes
        return chosen if n_bytes >= wanted / _MOST_ABOVE else []

    def __iter__(self) -> Iterator[_Task]:
        """Yield stretches with their shards; the last one is held out if none was before."""
        credit = self._random.random()  # grows by the share; a whole one holds out a stretch
        has_heldout = not self._share
        last: _Task | None = None
        for source, pieces in self._pieces():
            if last is not None:
                yield last
            credit += self._share if source.kind in self.divided_kinds else 0
            is_heldout = credit >= 1 or source in self.heldout_sources
            credit %= 1
            has_heldout = has_heldout or is_heldout
            shard = _HELDOUT_SHARD if is_heldout else self._random.randrange(self._n_shards)
            last = shard, Split.TOKENS if source.kind is Kind.CONLLU else self._split, pieces
        if last is not None:
            yield last if has_heldout else (_HELDOUT_SHARD, *last[1:])

    def _pieces(self) -> Iterator[tuple[Source, list[str]]]:
        """Yield consecutive pieces of each file, together as long as a stretch.

        Raises:
            DataError: files cannot be read; names them all.
        """
        problems: list[DataError] = []
        longest = min(max(self.n_bytes // _N_STRETCHES, _LEAST_STRETCH), _MOST_STRETCH)
        for source in self._sources:
            n_before = self.n_read
            try:
                for pieces in in_groups(source.pieces(self._split, self._field), len, longest):
                    self.n_read = n_before + source.n_read
                    if not problems:
                        yield source, pieces
            except DataError as error:
                problems.append(error)
            self.n_read = n_before + source.n_bytes
        raise_problems(problems)


def _tokenise(pipeline: TextPipeline, task: _Task) -> tuple[int, list[str], Counter[str]]:
    shard, split, pieces = task
    removed: Counter[str] = Counter()
    return shard, pipeline.tokenise(pieces, split, removed), removed


def _n_processes() -> int:
    """Return the number of processes beside this one: none with TensorFlow, whose threads do not fork."""
    is_daemon = multiprocessing.current_process().daemon  # such as a worker of a pool
    if sys.platform != "linux" or "tensorflow" in sys.modules or is_daemon:
        return 0
    n_cores = background.n_cores()
    return n_cores if n_cores > 1 else 0


# --- outputs ------------------------------------------------------------------------------------------


class _Corpus:
    """Writes sentences to the shards of a corpus, and counts them.

    Args:
        directory: empty directory.
        report: gets the counts.
    """

    def __init__(self, directory: Path, report: Preparation) -> None:
        self._directory, self._report = directory, report
        self._words: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}  # of train, of heldout
        self._n_lines: Counter[int] = Counter()  # of each shard
        self._seen: set[int] = set()  # hashes of sentences
        (directory / TRAIN_DIRECTORY).mkdir()
        (directory / HELDOUT).touch()

    def add(self, shard: int, sentences: list[str]) -> None:
        """Append sentences to a shard or to the heldout text."""
        report, is_heldout = self._report, shard == _HELDOUT_SHARD
        is_new = [self._is_new(sentence) for sentence in sentences]
        report.n_repeated += len(sentences) - sum(is_new)
        if report.settings.unique:
            sentences = [*compress(sentences, is_new)]
        if not sentences:
            return
        name = HELDOUT if is_heldout else f"{TRAIN_DIRECTORY}/part-{shard:05}.txt"
        text = "\n".join(sentences) + "\n"
        with (self._directory / name).open("ab") as file:
            file.write(text.encode())
        words = self._words[is_heldout]
        words.update(text.split())
        if len(words) > _MOST_TYPES:
            self._words[is_heldout] = Counter(dict(words.most_common(_MOST_TYPES // 2)))
            report.are_types_exact = False
        counts = report.heldout if is_heldout else report.train
        lengths = [sentence.count(" ") + 1 for sentence in sentences]
        if (longest := max(lengths)) > counts.longest:
            line = self._n_lines[shard] + lengths.index(longest) + 1
            counts.longest, counts.place = longest, f"{name}:{line}"
        counts.n_sentences += len(sentences)
        counts.n_tokens += sum(lengths)
        self._n_lines[shard] += len(sentences)

    def _is_new(self, sentence: str) -> bool:
        number = hash(sentence)
        if number in self._seen:
            return False
        if len(self._seen) < _MOST_HASHES:
            self._seen.add(number)
        return True

    def finish(self) -> None:
        """Write the vocabulary, compare the heldout words with it, and write ``text.json``."""
        report, words, heldout = self._report, self._words[False], self._words[True]
        if not report.train.n_sentences:
            problem = "no sentence is left to train on"
            if n_held := report.heldout.n_sentences:
                problem += f": all that there are ({n_held:,}) are held out; `heldout` 0 holds out none"
            raise DataError("; ".join([problem, *report.warnings]))
        report.train.n_types, report.heldout.n_types = len(words), len(heldout)
        settings = report.settings
        counts = choose_words(words, report.train.n_sentences, settings.min_count, settings.max_size)
        (self._directory / VOCABULARY).write_bytes(vocabulary_text(counts.words, VOCABULARY))
        report.n_words = len(counts.words)
        report.coverage = counts.coverage * (counts.n_tokens / report.train.n_tokens)  # some are forgotten
        if n_marks := int(counts.counts[:2].sum()) - 2 * report.train.n_sentences:
            report.warnings.append(describe_marks(n_marks))
        if settings.form is None and (forms := describe_forms(counts.words)):
            report.warnings.append(forms)
        if report.train.longest > _LONG_SENTENCE and settings.split is Split.SENTENCES:
            report.warnings.append(
                f"a sentence has {report.train.longest:,} tokens, as in a text without full stops; "
                "`keep_lines` takes each line as a sentence"
            )
        lines = first_lines(sorted((self._directory / TRAIN_DIRECTORY).iterdir()))
        report.examples = lines[:: max(len(lines) // _N_EXAMPLES, 1)][:_N_EXAMPLES]
        report.warnings += doubts_about_lines(lines)
        for word in counts.words:
            del heldout[word]
        report.unknown = heldout.most_common(_N_UNKNOWN)
        report.unknown_share = heldout.total() / max(report.heldout.n_tokens, 1)
        # Apart, since a model keeps the steps, and should keep no sentences and names of files.
        steps = {**dataclasses.asdict(report.pipeline), "made_by": _MADE_BY}
        for name, values in ((TEXT_FILE, steps), (_REPORT, report.to_json())):
            content = json.dumps(values, ensure_ascii=False, indent=1) + "\n"
            (self._directory / name).write_bytes(content.encode(errors="backslashreplace"))  # names of files


def corpus_arguments(directory: PathLike) -> dict[str, Any]:
    """Return the arguments of `bilm.train` that a corpus stands for, and its ``text.json`` as ``steps``.

    An empty heldout text is left out.

    Raises:
        ArgumentError: the directory is not a corpus that `prepare` wrote.
    """
    train, heldout, vocabulary, steps = (
        Path(directory, name) for name in (TRAIN_DIRECTORY, HELDOUT, VOCABULARY, TEXT_FILE)
    )
    if not train.exists() and (run := own_output(directory)):
        raise ArgumentError(f"{directory} is not a corpus of bilm prepare, but {run}")
    for path in (steps, train, heldout, vocabulary):
        if not path.exists():
            problem = f"it has no {path.name}" if Path(directory).exists() else "no such directory"
            remedy = "`bilm prepare TEXTS --out CORPUS` makes one"
            raise ArgumentError(f"{directory} is not a corpus: {problem}; {remedy}")
    texts = {"train_prefix": (str(train),)}
    if heldout.stat().st_size:
        texts["heldout_prefix"] = (str(heldout),)
    return {**texts, "vocab_file": str(vocabulary), "steps": steps}


_MADE_BY = "bilm prepare"
_FILES = rf"{TRAIN_DIRECTORY}(/part-\d{{5}}\.txt)?|{HELDOUT}|{VOCABULARY}|{TEXT_FILE}|{_REPORT}"
CORPUS = outputs.Kind("a corpus", outputs.only_files(_FILES, TEXT_FILE, f'"made_by": "{_MADE_BY}"'.encode()))
"""A corpus as an output."""
