"""``bilm vocab``."""

from pathlib import Path

import click

from bilm.cli import echo, flags
from bilm.errors import DataError, VocabularyError
from bilm.io import atomic, is_url, outputs, shards
from bilm.options.parameters import UnicodeForm


@click.group()
def vocab() -> None:
    """Build and check vocabularies."""


@vocab.command(cls=flags.TextCommand)
@flags.text_files("--train-prefix", url=True)
@flags.path("--outfile", "Vocabulary to write.", required=True)
@flags.number("--min-count", "Leave out words with fewer occurrences.", default=1)
@flags.number(
    "--max-size", "Maximum number of words, including the special ones.", least=4, show_default="no limit"
)
@click.option(
    "--form",
    type=flags.UNICODE_FORM,
    metavar=flags.UNICODE_FORM.name,
    default="NFC",
    help="Unicode's normal form of the words; none leaves them as they are. To train on words in NFKC, or "
    "left as they are, also give --set unicode_form=NFKC or unicode_form=null.",
)
@flags.overwrite
@flags.on_ray
def build(
    train_prefix: tuple[str, ...],
    outfile: Path,
    min_count: int,
    max_size: int | None,
    form: UnicodeForm | None,
    overwrite: bool,
    ray: "flags.Cluster | None",
) -> None:
    """Count the words of a text and write them by descending frequency.

    The special words <S>, </S> and <UNK> come first. Words of equal frequency are sorted by code point.
    With --ray, several processes count, and the text may be a URL.
    """
    flags.check_texts(ray, *train_prefix)
    from bilm.data.corpus import count_words, describe_blank_lines, take_lines
    from bilm.io.lines import read_lines
    from bilm.text.doubts import doubts_about_lines, first_lines
    from bilm.vocabulary.vocabulary_file import choose_words, describe_forms, describe_marks, vocabulary_text

    doubts: list[str] = []
    shards.refuse_within(outfile, train_prefix)
    with atomic.writing(outfile, overwrite=overwrite, inputs=train_prefix, failure=DataError) as (temporary,):
        if ray is None:
            files = flags.input_files(train_prefix)
            outputs.refuse_inputs(outfile, files)
            counted = count_words(line.split() for file in files for line in read_lines(file))
            n_sentences, n_blank = take_lines(counted)
            doubts += doubts_about_lines(first_lines(files))
        else:
            from bilm.ray import jobs

            urls = jobs.text_files(train_prefix)
            outputs.refuse_inputs(outfile, [url for url in urls if not is_url(url)])
            counted, n_sentences, n_blank = jobs.count_words(urls, ray)
        counts = choose_words(counted, n_sentences, min_count, max_size, form)
        temporary.write_bytes(vocabulary_text(counts.words, outfile))
    if n_marks := int(counts.counts[:2].sum()) - 2 * n_sentences:
        doubts.append(describe_marks(n_marks))
    if form is None and (forms := describe_forms(counts.words)):
        doubts.append(forms)
    for doubt in doubts:
        echo(f"warning: {doubt}", err=True)
    if counts.n_merged:
        echo(f"{form}: {counts.n_merged:,} words also occurred in another normal form", err=True)
    echo(
        f"{counts.n_tokens:,} tokens, {counts.n_types:,} types{describe_blank_lines(n_blank)}; "
        f"{len(counts.words):,} words written to {outfile}, covering {counts.coverage:.2%} of the tokens"
    )


@vocab.command(cls=flags.TextCommand, short_help="Report problems in a vocabulary file.")
@click.argument("vocabulary", type=flags.FILE)
@flags.text_files("--text", "--train-prefix", "text", required=False)
@click.pass_context
def check(context: click.Context, vocabulary: Path, text: tuple[str, ...]) -> None:
    """Report problems in the file VOCABULARY.

    Lists missing, misplaced and repeated words; with a text, also the share of unknown words and what
    `bilm train` would warn of. The exit status is 1 if the file cannot be used; anything that only makes the
    model worse is a warning.
    """
    from bilm.data.corpus import count_corpus, describe_corpus, doubts_about_corpus
    from bilm.text.doubts import first_lines
    from bilm.vocabulary.vocabulary import Vocabulary
    from bilm.vocabulary.vocabulary_file import Finding, check_vocabulary, form_of_words, vocabulary_words

    data = outputs.read_file(vocabulary, VocabularyError, or_pipe=True)
    findings = check_vocabulary(data, str(vocabulary))
    if text and all(finding.severity != "error" for finding in findings):
        files, words = flags.input_files(text), Vocabulary(vocabulary_words(data, str(vocabulary), False))
        words.unicode_form = form_of_words(words.words)  # as a new model reads them
        try:
            counts = count_corpus(files, words)
            doubts = doubts_about_corpus(counts, words, first_lines(files))
            findings.append(Finding("info", None, describe_corpus(counts)))
            findings = [*dict.fromkeys([*findings, *(Finding("warning", None, doubt) for doubt in doubts)])]
        except (DataError, VocabularyError) as error:  # no text, or an unknown word and no <UNK>
            findings.append(Finding("error", None, str(error)))
    for finding in findings:
        place = f"{vocabulary}:{finding.line}" if finding.line else f"{vocabulary}"
        echo(f"{finding.severity}: {place}: {finding.message}")
    if not findings:
        echo(f"{vocabulary}: no problems found")
    context.exit(int(any(finding.severity == "error" for finding in findings)))
