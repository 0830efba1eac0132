"""Commands for existing models, such as ``bilm info``, ``test`` and ``score``."""

import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import echo, flags, process
from bilm.errors import DataError
from bilm.io.lines import read_words
from bilm.io.messages import json_line, printable
from bilm.options.parameters import Compat, Context

if TYPE_CHECKING:
    from bilm.embedding.scoring import SentenceScore


@click.command(short_help="Describe a run directory or a weight file.")
@click.argument("model", type=flags.MODEL, metavar="MODEL")
@flags.switch("--arrays", "List every array with its shape.", "with_arrays")
@flags.switch("--json", "Print one JSON object.", "as_json")
def info(model: Path, with_arrays: bool, as_json: bool) -> None:
    """Describe MODEL: a run directory, a folder or archive of a model, or weights with their options beside.

    Prints the number of parameters of each part, hyper-parameters, checkpoints and training progress.
    """
    from bilm.analysis.info import describe  # imports h5py, not needed for completion
    from bilm.run_directory.files import is_run

    if is_run(model):
        process.import_tensorflow()
    facts, lines = describe(model)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for line in lines:
        echo(printable(line))
    if with_arrays:
        click.echo("arrays:")
        arrays = facts["arrays"]
        width = max(len(array["name"]) for array in arrays)
        for array in arrays:
            shape = " x ".join(f"{n:,}" for n in array["shape"])
            click.echo(printable(f"  {array['name']:<{width}}  {shape}"))


@click.command(cls=flags.TextCommand, short_help="Print the perplexity of a text under the full softmax.")
@flags.text_files("--test-prefix")
@flags.vocab_file()
@flags.whole_model
@flags.raw
@flags.no_xla
@flags.precision
@click.option("--batch-size", type=flags.ROWS, show_default="256", help="With --compat: rows per batch.")
@flags.choice(
    "--compat",
    "Compute as bilm-tf does: blank lines are empty sentences, incomplete last windows are dropped.",
    Compat,
)
@flags.switch("--json", "Print one line of JSON at the end.", "as_json")
def test(compat: str | None, as_json: bool, **arguments: Any) -> None:  # noqa: ANN401
    """Print the perplexity of a text under the full softmax.

    Every token is scored once. The LSTM state is carried from sentence to sentence, in stretches of about
    1,000 tokens.
    """
    process.import_tensorflow()
    from bilm.cli.commands.training import PrintingReporter
    from bilm.runs import test

    result = test.test(**arguments, compat=compat, reporter=PrintingReporter())
    perplexities = {"forward": result.forward_perplexity, "backward": result.backward_perplexity}
    parts = [f"{name} {value:.4f}" for name, value in perplexities.items() if value is not None]
    echo(f"perplexity: {', '.join(parts)}, combined {result.perplexity:.4f} ({result.tokens:,} tokens)")
    if result.oov_rate:
        unknown = f"unknown words, {result.oov_rate:.2%} of the text, count as one word <UNK>"
        echo(f"perplexity of the known words: {result.known_perplexity:.4f} ({unknown})")
    if compat is not None:
        click.echo(f"FINISHED!  AVERAGE PERPLEXITY = {result.perplexity}")
    if as_json:
        values = dataclasses.asdict(result)
        click.echo(json_line({name: values[name] for name in values if name not in ("checkpoint", "step")}))


@click.command(short_help="Print log-probabilities of sentences.")
@click.argument("sentences", type=flags.TEXT_OR_URL)
@flags.predicting_text
@flags.precision
@flags.switch("--tokens", "Print one line per token instead of one per sentence.")
@flags.choice(
    "--format",
    "Output format: tab-separated with a header, or JSON lines.",
    ["tsv", "jsonl"],
    "form",
    default="tsv",
)
@flags.on_ray
def score(
    sentences: str,
    model: "flags.ModelArguments",
    vocab_file: Path | None,
    raw: bool,
    precision: str,
    tokens: bool,
    form: str,
    ray: "flags.Cluster | None",
) -> None:
    """Print log-probabilities of SENTENCES, one per line (- for stdin), under the full softmax.

    Logarithms are natural. Each sentence is scored by itself; blank lines are skipped. The forward score is
    the sum over the words and </S>, the backward score over <S> and the words, so that the perplexity of a
    sentence is exp(-score / (words + 1)). Words outside the vocabulary are scored as <UNK>.

    With --ray, several processes do the work, and SENTENCES may be a URL.
    """
    flags.check_texts(ray, sentences)
    if ray is not None and (precision != "float32" or raw):
        raise click.UsageError(f"--ray does not go with {'--raw' if raw else f'--precision {precision}'}")
    lines = flags.input_text(sentences) if ray is None else iter(())
    process.import_tensorflow()
    scores: Iterator[tuple[int, SentenceScore]]
    text = None
    if ray is None:
        from bilm.embedding.model_text import ModelText
        from bilm.embedding.scoring import Scorer

        stored = model.open()
        scorer = Scorer.from_stored(stored, vocab_file, precision)
        text = ModelText(stored, raw, scorer.vocabulary)
        pairs = enumerate(map(str.split, text(lines)))
        numbered, others = itertools.tee((number, words) for number, words in pairs if words)
        scores = zip((number for number, _ in numbered), scorer(words for _, words in others), strict=True)
    else:
        from bilm.ray.jobs import score, text_files

        if len(files := text_files([sentences])) > 1:
            problem = f"is {len(files)} files, whose lines have the same numbers"
            raise DataError(f"{sentences}: {problem}; give one")
        scores = (row[1:] for row in score(files, model, vocab_file, cluster=ray))
    names, records_of = (_OF_TOKEN, _token_records) if tokens else (_OF_SENTENCE, _sentence_records)
    if form == "tsv":
        click.echo("\t".join(names))

    def line_of(record: Sequence[object]) -> str:
        if form == "jsonl":
            return json_line(dict(zip(names, record, strict=True)))
        return "\t".join(map(_cell, record))

    for records in itertools.starmap(records_of, scores):
        click.echo("\n".join(map(line_of, records)))
    if text is not None:
        flags.say_end(text)


_OF_SENTENCE = ("line", "words", "unknown", "forward", "backward", "sentence")
_OF_TOKEN = ("line", "position", "token", "known", "forward", "backward")


def _sentence_records(number: int, score: "SentenceScore") -> Iterator[tuple[Any, ...]]:
    backward = None if score.backward is None else float(score.backward.sum(dtype="float64"))
    n_unknown, forward = int((~score.is_known).sum()), float(score.forward.sum(dtype="float64"))
    yield number, len(score.words), n_unknown, forward, backward, " ".join(score.words)


def _token_records(number: int, score: "SentenceScore") -> Iterator[tuple[Any, ...]]:
    from bilm.vocabulary.vocabulary_file import BOS, EOS

    forward = [None, *map(float, score.forward)]
    backward = [None] * len(forward) if score.backward is None else [*map(float, score.backward), None]
    known = [True, *map(bool, score.is_known), True]
    for i, token in enumerate([BOS, *score.words, EOS]):
        yield number, i, token, known[i], forward[i], backward[i]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6f}" if isinstance(value, float) else printable(str(value))


@click.command(short_help="Print the most probable words for each position in sentences.")
@click.argument("sentences", type=flags.TEXT)
@flags.predicting_text
@flags.number("--n-best", "Number of predictions per position.", default=10)
@flags.choice(
    "--context",
    "Context of a prediction: the words to the left, to the right, or both.",
    Context,
    default=Context.BOTH.value,
)
@click.option("--gap", metavar="WORD", help="Fill the gaps that this word marks, such as ___.")
@flags.switch(
    "--patterns",
    "Fill words such as q?e? or *ibus with words that match: ? is one character, * any number. "
    "A single ? or * is an ordinary word.",
)
@flags.path("--words", "Predict only at the words of this file, one per line.")
@flags.path("--candidates", "Choose from the words of this file, one per line, that are in the vocabulary.")
@flags.choice(
    "--format",
    "Output format: tab-separated with a header, JSON lines, or the sentences with their gaps filled.",
    ["tsv", "jsonl", "text"],
    "form",
    default="tsv",
)
def predict(
    sentences: str,
    model: "flags.ModelArguments",
    vocab_file: Path | None,
    raw: bool,
    n_best: int,
    context: str,
    gap: str | None,
    patterns: bool,
    words: Path | None,
    candidates: Path | None,
    form: str,
) -> None:
    """Print the most probable words for each position in SENTENCES, one per line (- for stdin).

    A word is predicted from its context, without the word itself. For the next word of an unfinished line,
    end it with a gap and give --context left. Only words of the vocabulary are predicted, without <S>, </S>
    and <UNK>.

    Of several gaps in a line (--gap, --patterns) the surest is filled first; the rest are predicted anew.
    """
    if words is not None and (gap is not None or patterns):
        raise click.UsageError("--words predicts at words of the text; leave out --gap and --patterns")
    if raw and patterns:
        raise click.UsageError("--patterns are words of tokenised text; leave out --raw")
    if form == "text" and gap is None and not patterns:
        raise click.UsageError("--format text fills gaps; give --gap or --patterns")
    lines = flags.input_text(sentences)
    chosen = None if words is None else read_words(words)
    choices = None if candidates is None else read_words(candidates)
    process.import_tensorflow()
    from bilm.embedding.model_text import ModelText
    from bilm.embedding.prediction import WordPredictor, filled, is_pattern

    stored = model.open()
    predictor = WordPredictor.from_stored(stored, vocab_file)
    if choices and (n_unknown := int((predictor.vocabulary.lookup(choices) < 0).sum())):
        problem = "are not in the vocabulary and cannot be predicted"
        click.echo(f"{candidates}: {n_unknown:,} of {len(choices):,} words {problem}", err=True)
    text = ModelText(stored, raw, predictor.vocabulary)
    wanted = None if gap is None else text.word(gap)
    absent = {text.word(word): word for word in chosen or ()}
    counted = text(lines, wanted, lambda word: patterns and is_pattern(word))
    read, again = itertools.tee(map(str.split, counted))
    predictions = predictor.predict(
        read, n_best, context, wanted, patterns=patterns, words=chosen and [*absent], candidates=choices
    )
    n_predicted = 0
    n_attached, attached = 0, ""  # gaps inside other words, and where the first is
    if form == "tsv":
        click.echo("line\tposition\tword\tpredictions")
    for number, (sentence, places) in enumerate(zip(again, predictions, strict=True)):
        n_predicted += len(places)
        if wanted is not None:
            within = [word for word in sentence if wanted in word and word != wanted]
            if within and not n_attached:
                attached = f"line {number + 1}: {gap!r:.80} is not a word by itself in {within[0]!r:.80}"
            n_attached += len(within)
        for place in places:
            absent.pop(place.word, None)
            if not place.best:
                problem = f"no candidate matches {place.word!r:.80}"
                click.echo(f"{sentences}: line {number + 1}: {problem}", err=True)
            if form == "jsonl":
                values = {"line": number, "sentence": " ".join(sentence), **dataclasses.asdict(place)}
                click.echo(json_line(values))
            elif form == "tsv":
                best = ", ".join(f"{word} {probability:.4f}" for word, probability in place.best)
                click.echo(f"{number}\t{place.position}\t{printable(place.word)}\t{printable(best)}")
        if form == "text":
            line = " ".join(filled(sentence, places))
            click.echo(printable(line) if sys.stdout.isatty() else line)
    flags.say_end(text)
    if words is not None and not n_predicted:
        raise DataError(f"{words}: none of the words is in the text")
    if absent:
        echo(f"{words}: not in the text: {printable(', '.join(absent.values()))}", err=True)
    if attached:
        times = f"; there are {n_attached:,} such words" if n_attached > 1 else ""
        echo(f"{sentences}: {attached}, and was not filled{times}", err=True)
    if gap is not None and not n_predicted:
        raise DataError(f"`gap`: {gap!r:.80} is not a word of the text")


@click.command(short_help="Write the weights for embedding to HDF5.")
@flags.whole_model
@flags.path("--outfile", "HDF5 file to write.")
@flags.path(
    "--model-dir",
    "Directory to write, instead of --outfile: model.hdf5, options.json, vocab.txt, README.md, and the "
    "text.json and run.toml of the run.",
)
@flags.path("--vocab-file", "With --model-dir: vocabulary of the model.", show_default="the model's own")
@flags.switch("--with-softmax", "Also write the softmax.")
@click.option(
    "--language",
    metavar="CODE",
    help="For the card: language of the text, such as fi.",
    show_default="that of the model's text.json",
)
@click.option("--license", metavar="NAME", help="For the card: licence of the model, such as cc-by-4.0.")
@click.option(
    "--description", metavar="TEXT", help="For the card: a few sentences about the model and its text."
)
@flags.overwrite
def dump_weights(**arguments: Any) -> None:  # noqa: ANN401
    """Write the weights for embedding to HDF5, with the options that belong to them.

    --model-dir writes a directory that every command accepts as --model, with a model card for model hubs.
    The card and run.toml contain the commands that trained the model, with their paths.

    --outfile writes only the weights, and options.json next to them; if an options.json of a run or of other
    weights is there, the options of NAME.hdf5 go to NAME.options.json.
    """
    process.import_tensorflow()
    from bilm.runs import dump_weights

    result = dump_weights.dump_weights(**arguments)
    echo(
        f"{result.checkpoint} -> {result.weight_file}: {result.n_arrays} arrays, {result.n_values:,} values, "
        "read back and equal"
    )
    echo(f"options -> {result.options_file}")
    if result.vocabulary_file is not None:
        echo(f"vocabulary -> {result.vocabulary_file}")
        echo(f"card -> {result.card_file}")
        if arguments["description"] is None:
            echo("the card has no description of the model and its text; --description writes one", err=True)


@click.command(short_help="Write a TensorFlow SavedModel like TF-Hub's ELMo.")
@flags.path("--saved-model", "Directory to write.", "directory", required=True)
@flags.embedding_model
@flags.overwrite
def export(directory: Path, model: "flags.ModelArguments", vocab_file: Path | None, overwrite: bool) -> None:
    """Write a TensorFlow SavedModel with the signatures and output names of TF-Hub's ELMo.

    The signature `default` takes sentences as strings, `tokens` takes padded words and sentence lengths.
    """
    process.import_tensorflow()
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.models.saved_model import check_saved_model, write_saved_model

    check_saved_model(directory, overwrite, [vocab_file, *model.inputs])
    embedder = ElmoEmbedder(model=model, vocab_file=vocab_file)
    write_saved_model(embedder.model.encoder, directory, embedder.vocabulary, overwrite)
    outputs = [f"lstm_outputs{i}" for i in range(1, embedder.n_layers)]
    echo(f"{directory}: signatures default, tokens; outputs word_emb, {', '.join(outputs)}, elmo, default")
    if form := embedder.model.options.unicode_form:
        echo(f"give it text in the normal form {form}, like the model's; the SavedModel cannot convert it")
