"""Commands on a model that is there, such as ``bilm info``, ``test`` and ``score``."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags, process, terminal
from bilm.io.messages import json_line, printable
from bilm.options import Compat
from bilm.options.parameters import Context

if TYPE_CHECKING:
    from bilm.training.evaluation import SentenceScore


@click.command(cls=flags.TextCommand, short_help="Describe a run directory or a weight file.")
@flags.model_path("MODEL")
@click.option("--arrays", "with_arrays", is_flag=True, help="List every array with its shape.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(model: Path, with_arrays: bool, as_json: bool) -> None:
    """Describe MODEL: a run directory, a folder or ZIP of a model, or an HDF5 weight file.

    Prints parameters by part, hyper-parameters, checkpoints and training progress; for a weight file
    without options next to it, what can be inferred from the shapes of its arrays.
    """
    from bilm.analysis.info import describe  # h5py, which completion can do without

    if model.is_dir():
        process.import_tensorflow()
    description = describe(model)
    if as_json:
        click.echo(json.dumps(description.facts))
        return
    lines = [*description.lines]
    if with_arrays:
        lines.append("arrays:")
        arrays = description.facts["arrays"]
        width = max(len(array["name"]) for array in arrays)
        lines += [f"  {one['name']:<{width}}  {' x '.join(f'{n:,}' for n in one['shape'])}" for one in arrays]
    for line in lines:
        click.echo(printable(line))


@click.command(cls=flags.TextCommand, short_help="Print the perplexity of a text under the full softmax.")
@flags.text_files("test")
@flags.vocab_file()
@flags.whole_model
@flags.no_xla
@click.option(
    "--batch-size",
    type=click.IntRange(1, flags.MOST_ROWS),
    show_default="256",
    help="With --compat: rows of a batch.",
)
@click.option(
    "--compat",
    type=click.Choice(Compat.values()),
    help="Compute bilm-tf's number: blank lines are empty sentences, unfinished last windows dropped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end.")
def test(compat: str | None, as_json: bool, **arguments: Any) -> None:  # noqa: ANN401
    """Print the perplexity of a text under the full softmax, every token scored once.

    The LSTM state is carried from sentence to sentence.
    """
    process.import_tensorflow()
    from bilm.runs import test

    result = test.test(**arguments, compat=compat, reporter=terminal.PrintingReporter())
    perplexities = {"forward": result.forward_perplexity, "backward": result.backward_perplexity}
    parts = [f"{name} {value:.4f}" for name, value in perplexities.items() if value is not None]
    click.echo(f"perplexity: {', '.join(parts)}, combined {result.perplexity:.4f} ({result.tokens:,} tokens)")
    if compat is not None:
        click.echo(f"FINISHED!  AVERAGE PERPLEXITY = {result.perplexity}")
    if as_json:
        names = ("perplexity", "forward_perplexity", "backward_perplexity", "tokens", "oov_rate")
        click.echo(json_line({name: getattr(result, name) for name in names}))


@click.command(short_help="Print log-probabilities of sentences.")
@click.argument("sentences", type=flags.TEXT_OR_URL)
@flags.whole_model
@flags.vocab_file()
@flags.no_xla
@click.option("--tokens", is_flag=True, help="Print a line per token, not per sentence.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tsv", "jsonl"]),
    default="tsv",
    help="Output format: tab-separated with a header, or JSON lines.",
)
@flags.on_ray
def score(
    sentences: str,
    vocab_file: Path | None,
    tokens: bool,
    form: str,
    ray: flags.Cluster | None,
    **model: Any,  # noqa: ANN401
) -> None:
    """Print log-probabilities of SENTENCES, one per line (- for stdin), under the full softmax.

    Logarithms are natural, and each sentence is scored by itself; blank lines are skipped. Forward is the
    sum over the words and </S>, backward over <S> and the words. Words outside the vocabulary count as <UNK>.
    With --ray several processes do the work, and SENTENCES may be a URL.
    """
    flags.check_texts(ray, sentences)
    process.import_tensorflow()
    from bilm.run_directory.model_source import ModelArguments

    arguments = ModelArguments(**model)
    if ray is None:
        scores = _scores(sentences, arguments, vocab_file)
    else:
        from bilm.ray.jobs import score

        scores = (row[1:] for row in score([sentences], arguments, vocab_file, cluster=ray))
    header = True
    for number, result in scores:
        for record in _token_records(number, result) if tokens else [_sentence_record(number, result)]:
            if form == "jsonl":
                click.echo(json_line(record))
                continue
            if header:
                click.echo("\t".join(record))
                header = False
            click.echo("\t".join(map(_cell, record.values())))


def _scores(
    sentences: str, arguments: flags.ModelArguments, vocab_file: Path | None
) -> Iterator[tuple[int, SentenceScore]]:
    """The score of each sentence, with the number of its line."""
    from bilm.training.evaluation import open_scorer

    scorer = open_scorer(arguments.open(takes_files=False), vocab_file)
    lines = enumerate(map(str.split, flags.input_lines(sentences)))
    numbered, others = itertools.tee((number, words) for number, words in lines if words)
    return zip((number for number, _ in numbered), scorer(words for _, words in others), strict=True)


def _sentence_record(number: int, score: SentenceScore) -> dict[str, Any]:
    return {
        "line": number,
        "words": len(score.words),
        "unknown": int((~score.is_known).sum()),
        "forward": float(score.forward.sum()),
        "backward": None if score.backward is None else float(score.backward.sum()),
        "sentence": " ".join(score.words),
    }


def _token_records(number: int, score: SentenceScore) -> Iterator[dict[str, Any]]:
    from bilm.vocabulary.file import BOS, EOS

    forward = [None, *map(float, score.forward)]
    backward = [None] * len(forward) if score.backward is None else [*map(float, score.backward), None]
    known = [True, *map(bool, score.is_known), True]
    for i, token in enumerate([BOS, *score.words, EOS]):
        yield {
            "line": number,
            "position": i,
            "token": token,
            "known": known[i],
            "forward": forward[i],
            "backward": backward[i],
        }


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6f}" if isinstance(value, float) else printable(str(value))


@click.command(short_help="Print the most probable words at places of sentences.")
@click.argument("sentences", type=flags.PathName(allow_dash=True))
@flags.whole_model
@flags.vocab_file()
@flags.no_xla
@click.option("--n-best", type=click.IntRange(min=1), default=10, help="Number of words for a place.")
@click.option(
    "--context",
    type=click.Choice(Context.values()),
    default=Context.BOTH.value,
    help="Words that a prediction is made from: on the left of the place, on its right, or both.",
)
@click.option("--gap", metavar="WORD", help="Predict only where this word stands, such as ___.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tsv", "jsonl"]),
    default="tsv",
    help="Output format: tab-separated with a header, or JSON lines.",
)
def predict(
    sentences: str,
    vocab_file: Path | None,
    n_best: int,
    context: str,
    gap: str | None,
    form: str,
    **model: Any,  # noqa: ANN401
) -> None:
    """Print the most probable words at each place of SENTENCES, one per line (- for stdin).

    A word is predicted from the words around it, not from itself: its best predictions are its
    substitutes, and those of a gap at the end of a line are the next words. From both sides the probability
    is the product of the two directions' probabilities, normalised over the vocabulary. <S>, </S> and <UNK>
    are left out.
    """
    process.import_tensorflow()
    from bilm.run_directory.model_source import ModelArguments
    from bilm.runs.prediction import WordPredictor
    from bilm.training.evaluation import open_scorer

    scorer = open_scorer(ModelArguments(**model).open(takes_files=False), vocab_file)
    numbered, lines = itertools.tee(enumerate(map(str.split, flags.input_lines(sentences))))
    predictor = WordPredictor(scorer.model, scorer.vocabulary)
    predictions = predictor.predict((words for _, words in lines), n_best, context, gap)
    if form == "tsv":
        click.echo("line\tposition\tword\tpredictions")
    for (number, _), of_line in zip(numbered, predictions, strict=True):
        for place in of_line:
            if form == "jsonl":
                click.echo(json_line({"line": number, **dataclasses.asdict(place)}))
                continue
            best = ", ".join(f"{word} {probability:.4f}" for word, probability in place.best)
            click.echo(f"{number}\t{place.position}\t{printable(place.word)}\t{printable(best)}")


@click.command(short_help="Write the weights for embedding, as HDF5.")
@flags.whole_model
@click.option("--outfile", type=flags.FILE, help="HDF5 file to write.")
@click.option(
    "--model-dir",
    type=flags.FILE,
    help="Directory to write, instead of --outfile: model.hdf5, options.json, vocab.txt and README.md.",
)
@click.option(
    "--vocab-file",
    type=flags.FILE,
    show_default="the model's own",
    help="With --model-dir: vocabulary of the model.",
)
@click.option("--with-softmax", is_flag=True, help="Write the softmax too.")
@click.option("--language", metavar="CODE", help="For README.md: language of the text, such as fi.")
@click.option("--license", metavar="NAME", help="For README.md: licence of the model, such as cc-by-4.0.")
@click.option("--description", metavar="TEXT", help="For README.md: sentences on the model and its text.")
@flags.overwrite
def dump_weights(**arguments: Any) -> None:  # noqa: ANN401
    """Write the weights for embedding, as HDF5, and the options that go with them.

    With --model-dir these are the files of a model as vectors.nlpl.eu and simple_elmo have it, in a directory
    of their own, which any command takes as --model. Its README.md is a card as model hubs read it: size,
    heldout perplexity, how to use it, and the commands that trained it, with the paths in them.

    With --outfile the options, with the 262 characters of inference, are written to options.json next to the
    weights; in a run directory, which has its own options.json, to NAME.options.json for NAME.hdf5.
    """
    process.import_tensorflow()
    from bilm.runs import dump_weights

    result = dump_weights.dump_weights(**arguments)
    click.echo(
        f"{result.checkpoint} -> {result.weight_file}: {result.n_arrays} arrays, {result.n_values:,} values, "
        "read back and equal"
    )
    click.echo(f"options -> {result.options_file}")
    if result.vocabulary_file is not None:
        click.echo(f"vocabulary -> {result.vocabulary_file}")
        click.echo(f"card -> {result.card_file}")


@click.command(short_help="Write a TensorFlow SavedModel like TF-Hub's ELMo.")
@click.option("--saved-model", "directory", type=flags.DIRECTORY, required=True, help="Directory to write.")
@flags.embedding_model
@flags.overwrite
def export(directory: Path, model: flags.ModelArguments, vocab_file: Path | None, overwrite: bool) -> None:
    """Write a TensorFlow SavedModel with the signatures and output names of TF-Hub's ELMo.

    `default` takes sentences as strings, `tokens` takes padded words and sentence lengths.
    """
    process.import_tensorflow()
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.models.saved_model import check_saved_model, write_saved_model

    check_saved_model(directory, overwrite, [vocab_file, *model.inputs])
    embedder = ElmoEmbedder.of_arguments(model, vocab_file)
    write_saved_model(embedder.model.encoder, directory, embedder.vocabulary, overwrite)
    outputs = [f"lstm_outputs{i}" for i in range(1, embedder.n_layers)]
    click.echo(
        f"{directory}: signatures default, tokens; outputs word_emb, {', '.join(outputs)}, elmo, default"
    )
