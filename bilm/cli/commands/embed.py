"""``bilm embed``."""

import itertools
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.backend.settings import LIBRARIES
from bilm.cli import echo, flags, process
from bilm.io import is_url, messages, outputs, shards
from bilm.io.lines import read_words
from bilm.io.progress import ProgressLine, clock
from bilm.options.parameters import Pooling

if TYPE_CHECKING:
    from bilm.embedding.hdf5_output import EmbeddingReport


def _choice(layers: str, text: str) -> flags.Decorator:
    """Return the flag for a choice of layers; it collects the choices, of which one is allowed."""
    return click.option(f"--{layers}", "chosen", flag_value=layers, multiple=True, help=text)


@click.command(short_help="Write a vector for each word of a text.")
@click.argument("texts", type=flags.TEXT_OR_URL, nargs=-1, metavar="SENTENCES...")
@click.argument("out", type=flags.PathName(url=True))
@flags.embedding_text
@flags.precision
@_choice("all", "Write all layers (the default, except with --words and in word2vec).")
@_choice("top", "Write the top layer only.")
@_choice("average", "Write the plain mean of the layers (the default with --words and in word2vec).")
@flags.number("--layer", "Write this layer only; 0 has the word vectors.", least=0)
@_choice("characters", "Write the output of the character convolutions only, before highways and projection.")
@_choice("concat", "Write all layers and the output of the character convolutions, end to end.")
@flags.switch("--with-softmax", "With --concat, add the softmax row of each word.")
@flags.path(
    "--words",
    "Write the vectors of the words of this file, one per line, at each of their occurrences.",
    "words_file",
)
@flags.number(
    "--min-count", "With --format word2vec: leave out words with fewer occurrences.", show_default="1"
)
@flags.choice("--pooling", "Write one vector per sentence: the mean or the maximum over its words.", Pooling)
@flags.switch("--use-sentence-keys", "Name datasets by their sentences, not by line numbers.")
@flags.switch("--forget-sentences", "Do not write sentence_to_index, the line numbers of sentences.")
@flags.switch("--include-sentence-indices", "Also write sentence_to_index as sentence_indices.")
@flags.switch("--stateful", "Carry the LSTM state from batch to batch, as AllenNLP does.")
@click.option(
    "--batch-size",
    type=flags.ROWS,
    show_default="128; 64 with --stateful",
    help="Maximum rows of packed sentences; with --stateful, sentences per batch.",
)
@flags.number(
    "--batch-tokens",
    "Tokens computed at once; fewer need less memory. Not with --stateful.",
    show_default="16384",
)
@flags.choice(
    "--format",
    "Format of OUT; npz, NumPy's archive, is for --words; word2vec has one vector for each distinct word.",
    ["hdf5", "parquet", "npz", "word2vec"],
    "form",
    show_default="npz for OUT.npz and with --words, word2vec for OUT.vec, parquet for OUT.parquet and with "
    "--ray; else hdf5",
)
@flags.choice(
    "--dtype", "Data type of the vectors.", ["float32", "float16"], show_default="float32; float16 in Parquet"
)
@flags.choice(
    "--compression",
    "Compression: gzip or lzf in HDF5; gzip, snappy or zstd in Parquet.",
    ["none", "gzip", "lzf", "snappy", "zstd"],
    default="none",
)
@flags.number(
    "--cuda-device",
    "GPU to use, numbered from 0, or -1 for the CPU; repeatable for several GPUs.",
    "cuda_devices",
    least=-1,
    multiple=True,
    show_default="the first GPU if there is one",
)
@flags.choice(
    "--backend",
    "Library that computes the vectors. Install torch or jax separately.",
    LIBRARIES,
    default="tensorflow",
)
@flags.switch("--resume", "Finish an interrupted command.")
@flags.overwrite
@flags.on_ray
def embed(
    texts: tuple[str, ...],
    out: str,
    model: "flags.ModelArguments",
    vocab_file: Path | None,
    raw: bool,
    chosen: tuple[str, ...],
    layer: int | None,
    words_file: Path | None,
    min_count: int | None,
    form: str | None,
    dtype: str | None,
    pooling: str | None,
    compression: str,
    use_sentence_keys: bool,
    forget_sentences: bool,
    include_sentence_indices: bool,
    cuda_devices: tuple[int, ...],
    backend: str,
    resume: bool,
    overwrite: bool,
    ray: "flags.Cluster | None",
    **settings: Any,  # noqa: ANN401
) -> None:
    """Write a vector for each word of SENTENCES, one whitespace-tokenised sentence per line (- for stdin).

    OUT is an HDF5 file with one dataset per line, named by the line number from 0, or a directory of Parquet
    files with one row per line. Vectors have the shape (layers, words, dim), or (words, dim) for one layer,
    the mean or --concat; --pooling leaves out the dimension of the words.

    With --words, OUT has an array for each word (npz) or a row for each occurrence (Parquet), with its line
    and position. In word2vec's text format a word type has one vector, the mean over its occurrences.

    With --ray, several processes do the work, and SENTENCES and OUT may be URLs such as s3://bucket/text.
    """
    if not texts:
        raise click.UsageError(f"Missing argument 'OUT' after {out}.")
    form = form or _form_of(out, ray is not None, words_file is not None)
    _refuse_contradictions(click.get_current_context(), form)
    flags.check_texts(ray, *texts, *filter(is_url, [out]))  # elsewhere it is checked as an output
    layers: set[Any] = {*chosen} if layer is None else {*chosen, layer}
    if len(layers) > 1:
        raise click.UsageError("give one of --all, --top, --average, --layer, --characters, --concat")
    packed = None if compression == "none" else compression
    from bilm.data.packing import VectorForm  # imports NumPy

    dtype = dtype or ("float16" if form == "parquet" else "float32")
    of_words = words_file is not None or form == "word2vec"
    vectors = VectorForm(layers.pop() if layers else "average" if of_words else "all", dtype, pooling)
    if settings["with_softmax"] and vectors.layers != "concat":
        raise click.UsageError("--with-softmax goes with --concat")
    if form == "word2vec" and vectors.layers == "all":
        raise click.UsageError("--format word2vec does not go with --all: a word has one vector")
    if ray is not None:
        process.import_tensorflow()
        from bilm.ray import jobs

        started = time.monotonic()
        settings |= {"cluster": ray, "compression": packed, "overwrite": overwrite}
        n_lines = jobs.embed(texts, out, model, vocab_file, form=vectors, **settings)
        echo(
            f"{messages.number_of(n_lines, 'line')} -> {out}: {dtype}, in {time.monotonic() - started:.1f} s"
        )
        return
    words = None if words_file is None else read_words(words_file)
    inputs = [*texts, vocab_file, words_file, *model.inputs]
    given = [flags.input_text(text) for text in texts]
    content: dict[str, Any] = {"form": vectors, "words": words}
    write: Callable[..., EmbeddingReport]
    if form == "parquet":
        from bilm.embedding import parquet_output  # imports pyarrow

        parquet_output.check_parquet(out, overwrite)
        write = partial(parquet_output.embed_parquet, directory=out, compression=packed, **content)
    elif of_words:
        from bilm.embedding import word_output

        outputs.check_output(out, overwrite, inputs)
        write = partial(word_output.embed_word2vec, min_count=min_count or 1)
        if form == "npz":
            word_output.check_names(words or ())
            write = word_output.embed_npz
        write = partial(write, outfile=out, **content)
    else:
        from bilm.embedding import hdf5_output

        hdf5_output.check_embeddings(Path(out), overwrite, resume, inputs)
        keys = (use_sentence_keys, forget_sentences, include_sentence_indices)
        file_format = hdf5_output.FileFormat(vectors.layers, dtype, pooling, *keys, packed)
        write = partial(hdf5_output.embed_file, outfile=Path(out), form=file_format)
        write = partial(write, resume=resume, with_sentences=raw)
    process.import_backend(backend)
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.model_text import ModelText

    stored = model.open()
    embedder = ElmoEmbedder(model=stored, vocab_file=vocab_file, cuda_device=cuda_devices or None, **settings)
    read = ModelText(stored, raw, embedder.vocabulary)
    if raw and words is not None:
        words = [*dict.fromkeys(map(read.word, words))]
        write = partial(write, words=words)
    named = [(name, read.opened(text)) for name, text in zip(texts, given, strict=True)]
    sentences_of: Callable[[Iterable[str]], Iterable[str]] = read
    n_tokens = None
    if not any(map(shards.can_be_read_once, texts)):  # twice, so that a warning comes before the work
        for _ in itertools.chain.from_iterable(read(lines) for _, lines in named):
            pass
        read.warn()
        sentences_of, n_tokens = read.lines, read.n_words if words is None else None
    sentences = [(text, sentences_of(lines)) for text, lines in named]
    source: Iterable[Any] = sentences[0][1] if form in ("hdf5", "npz") else sentences
    progress = EmbeddingProgress(n_tokens)
    try:
        with closing(progress):
            report = write(embedder, source, overwrite=overwrite, callback=progress)
    except KeyboardInterrupt:
        if form == "hdf5" and not settings["stateful"]:
            instead = " in place of --overwrite" if overwrite else ""
            echo(f"interrupted; to continue, give the same command with --resume{instead}", err=True)
        raise
    if sentences_of is read:  # a pipe, read once
        read.warn()
    lines = messages.number_of(report.n_lines, "sentence" if raw else "line")
    if of_words:
        found = report.occurrences
        if words is not None and (missing := [word for word in words if word not in found]):
            echo(f"{words_file}: no vectors of {messages.printable(', '.join(missing))}", err=True)
        echo(
            f"{lines} -> {out}: {len(found):,} word types, {found.total():,} occurrences; "
            f"{report.n_tokens:,} words computed in {report.seconds:.1f} s"
        )
        return
    shape = ", ".join(str(size) if size else "words" for size in embedder.no_vectors(vectors).shape)
    blank = f", {report.n_blank:,} of them blank" if report.n_blank else ""
    kept = f", {report.n_kept:,} of them done before" if report.n_kept else ""
    rate = report.n_tokens / max(report.seconds, 1e-9)
    unknown = f", {read.share}" if read.share else ""
    echo(
        f"{lines}{blank}{kept} -> {out}: ({shape}) {dtype}; "
        f"{report.n_tokens:,} words in {report.seconds:.1f} s, {rate:,.0f} tokens/s{unknown}"
    )


class EmbeddingProgress(ProgressLine):
    """Progress line of embedding.

    Args:
        n_tokens: words of the whole text, or None if unknown.
    """

    def __init__(self, n_tokens: int | None) -> None:
        super().__init__()
        self.n_tokens = n_tokens

    def __call__(self, report: "EmbeddingReport") -> None:
        """Show the progress if it is due; the time left is shown unless the command resumed."""
        if not self.is_due():
            return
        report.count()
        rate = report.n_tokens / max(report.seconds, 1e-9)
        lines = messages.number_of(report.n_lines, "line")
        fields = [lines, f"{report.n_tokens:,} words", f"{rate:,.0f} tokens/s"]
        if self.n_tokens is not None and rate and not report.n_kept:
            left = clock((self.n_tokens - report.n_tokens) / rate)
            fields = [f"{report.n_tokens / self.n_tokens:.1%}", f"{left} left", *fields]
        self.show(fields, partial(click.echo, err=True))


def _form_of(out: str, is_on_ray: bool, has_words: bool) -> str:
    """Return the form of an output without ``--format``, by its ending."""
    ending = Path(out).suffix.lower()
    if ending in (".csv", ".gz", ".json", ".jsonl", ".npy", ".pt", ".tsv", ".txt"):
        raise click.UsageError(f"{out}: unknown ending; give .hdf5, .npz, .parquet or .vec, or --format")
    by_default = "npz" if has_words else "hdf5"
    return _OF_ENDING.get(ending, "parquet" if is_on_ray else by_default)


_OF_ENDING = {".hdf5": "hdf5", ".h5": "hdf5", ".npz": "npz", ".parquet": "parquet", ".vec": "word2vec"}
_HDF5_ALONE = ("--use-sentence-keys", "--forget-sentences", "--include-sentence-indices")
_COMPRESSIONS = tuple(f"--compression {name}" for name in ("gzip", "lzf", "snappy", "zstd"))
_TENSORFLOW_ALONE = ("--stateful", "--no-xla", "--precision", "--ray")
_APART = {
    "--ray": ("--stateful", "--cuda-device", "--resume", "--raw"),
    "--format hdf5": ("--ray", "--compression snappy", "--compression zstd"),
    "--format parquet": _HDF5_ALONE,
    "--format npz": ("--ray", *_HDF5_ALONE, *_COMPRESSIONS),
    "--format word2vec": ("--ray", "--dtype", "--pooling", *_HDF5_ALONE, *_COMPRESSIONS),
    "--words": ("--ray", "--stateful", "--pooling", "--format hdf5"),
    "--min-count": ("--format hdf5", "--format parquet", "--format npz"),
    "--resume": ("--format parquet", "--format npz", "--format word2vec", "--overwrite", "--stateful"),
    "--stateful": ("--batch-tokens",),
    "--include-sentence-indices": ("--use-sentence-keys", "--forget-sentences"),
    "--compression lzf": ("--format parquet",),
    "--backend torch": _TENSORFLOW_ALONE,
    "--backend jax": _TENSORFLOW_ALONE,
}
"""Flags with the flags that they exclude; the embedder checks further combinations."""


def _refuse_contradictions(context: click.Context, form: str) -> None:
    """Reject flags that exclude each other."""
    typed = flags.typed_names(context)
    chosen = {option.opts[0] for option in context.command.params if option.name in typed}
    values = {"format": form, **{name: context.params[name] for name in ("backend", "compression")}}
    chosen |= {f"--{name} {value}" for name, value in values.items()}
    for flag, others in _APART.items():
        for other in sorted(chosen.intersection(others)) if flag in chosen else ():
            is_of_out = f"--format {form}" in (flag, other) and "--format" not in chosen
            reason = f", the form of {context.params['out']}" if is_of_out else ""
            raise click.UsageError(f"{flag} does not go with {other}{reason}")
    if form == "npz" and context.params["words_file"] is None:
        raise click.UsageError(f"{context.params['out']}: npz has the vectors of chosen words; give --words")
    if form in ("hdf5", "npz") and len(context.params["texts"]) > 1:
        name = {"hdf5": "HDF5", "npz": "an .npz file"}[form]
        raise click.UsageError(
            f"several texts need --format parquet: {name} identifies a line by its number alone"
        )
