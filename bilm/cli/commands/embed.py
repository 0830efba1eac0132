"""``bilm embed``."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.backend.settings import LIBRARIES
from bilm.cli import flags, process
from bilm.cli.group import echo
from bilm.io.lines import read_lines
from bilm.io.progress import ProgressLine, clock
from bilm.io.shards import can_be_read_once
from bilm.options.parameters import Pooling

if TYPE_CHECKING:
    from bilm.embedding.hdf5_output import EmbeddingReport


def _choice(layers: str, text: str) -> flags.Decorator:
    """Return the flag for a choice of layers; it collects the choices, of which one is allowed."""
    return click.option(f"--{layers}", "chosen", flag_value=layers, multiple=True, help=text)


@click.command(short_help="Write a vector for each word of a text.")
@click.argument("texts", type=flags.TEXT_OR_URL, nargs=-1, required=True, metavar="SENTENCES...")
@click.argument("out", type=flags.PathName(url=True))
@flags.embedding_model
@flags.raw
@flags.no_xla
@flags.precision
@_choice("all", "Write all layers (the default).")
@_choice("top", "Write the top layer only.")
@_choice("average", "Write the plain mean of the layers.")
@click.option("--layer", type=flags.Integer(min=0), help="Write this layer only; 0 has the word vectors.")
@_choice("characters", "Write the output of the character convolutions only, before highways and projection.")
@click.option(
    "--pooling",
    type=click.Choice(Pooling.values()),
    help="Write one vector per sentence: the mean or the maximum over its words.",
)
@click.option(
    "--use-sentence-keys", is_flag=True, help="Name datasets by their sentences, not by line numbers."
)
@click.option("--forget-sentences", is_flag=True, help="Do not write sentence_to_index.")
@click.option(
    "--include-sentence-indices", is_flag=True, help="Also write sentence_to_index as sentence_indices."
)
@click.option("--stateful", is_flag=True, help="Carry the LSTM state from batch to batch, as AllenNLP does.")
@click.option(
    "--batch-size",
    type=flags.ROWS,
    show_default="128; 64 with --stateful",
    help="Maximum rows of packed sentences; with --stateful, sentences per batch.",
)
@click.option(
    "--batch-tokens",
    type=flags.POSITIVE,
    show_default="16384",
    help="Tokens computed at once; fewer need less memory. Not with --stateful.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["hdf5", "parquet"]),
    show_default="hdf5; parquet with --ray",
    help="Form of OUT.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    show_default="float32; float16 in Parquet",
    help="Data type of the vectors.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "lzf", "snappy", "zstd"]),
    default="none",
    help="Compression: gzip or lzf in HDF5; gzip, snappy or zstd in Parquet.",
)
@click.option(
    "--cuda-device",
    "cuda_devices",
    type=flags.Integer(min=-1),
    multiple=True,
    show_default="the first GPU if there is one",
    help="GPU to use, numbered from 0, or -1 for the CPU; repeatable for several GPUs.",
)
@click.option(
    "--backend",
    type=click.Choice([*LIBRARIES]),
    default="tensorflow",
    help="Library that computes the vectors. Install torch or jax separately.",
)
@click.option("--resume", is_flag=True, help="Finish an interrupted command.")
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
    files with one row per line. Vectors have the shape (layers, words, dim), or (words, dim) for one layer or
    the mean, without words with --pooling.

    With --raw, SENTENCES is raw text, and lines are the sentences that are found in it.

    With --ray, several processes do the work, and SENTENCES and OUT may be URLs such as s3://bucket/text.
    """
    form = form or ("hdf5" if ray is None else "parquet")
    _refuse_contradictions(click.get_current_context(), form)
    flags.check_texts(ray, *texts, out)
    layers: set[Any] = {*chosen} if layer is None else {*chosen, layer}
    if len(layers) > 1:
        raise click.UsageError("give one of --all, --top, --average, --layer, --characters")
    packed = None if compression == "none" else compression
    from bilm.data.packing import VectorForm  # imports NumPy

    dtype = dtype or ("float32" if form == "hdf5" else "float16")
    vectors = VectorForm(layers.pop() if layers else "all", dtype, pooling)
    if ray is not None:
        process.import_tensorflow()
        from bilm.ray import jobs

        started = time.monotonic()
        settings |= {"cluster": ray, "compression": packed, "overwrite": overwrite}
        n_lines = jobs.embed(texts, out, model, vocab_file, form=vectors, **settings)
        echo(f"{n_lines:,} lines -> {out}: {dtype}, in {time.monotonic() - started:.1f} s")
        return
    named = [(text, flags.input_lines(text)) for text in texts]
    if form == "parquet":
        from bilm.embedding import parquet_output  # imports pyarrow

        parquet_output.check_parquet(out, overwrite)
    else:
        from bilm.embedding import hdf5_output

        hdf5_output.check_embeddings(Path(out), overwrite, resume, [*texts, vocab_file, *model.inputs])
    process.import_backend(backend)
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.model_text import ModelText

    stored = model.open()
    embedder = ElmoEmbedder(model=stored, vocab_file=vocab_file, cuda_device=cuda_devices or None, **settings)
    read = ModelText(stored, raw, embedder.vocabulary)
    sentences_of: Callable[[Iterable[str]], Iterable[str]] = read
    n_tokens = None
    if not any(map(can_be_read_once, texts)):  # twice, so that a warning comes before the work
        for text in texts:
            for _ in read(read_lines(text)):
                pass
        read.warn()
        sentences_of, n_tokens = read.lines, read.n_words
    write: Callable[..., EmbeddingReport]
    if form == "parquet":
        pairs = ((text, sentences_of(lines)) for text, lines in named)
        write = partial(
            parquet_output.embed_parquet, texts=pairs, directory=out, form=vectors, compression=packed
        )
    else:
        keys = (use_sentence_keys, forget_sentences, include_sentence_indices)
        file_format = hdf5_output.FileFormat(vectors.layers, dtype, pooling, *keys, packed)
        ((_, lines),) = named
        write = partial(
            hdf5_output.embed_file,
            lines=sentences_of(lines),
            outfile=Path(out),
            form=file_format,
            resume=resume,
            with_sentences=raw,
        )
    progress = EmbeddingProgress(n_tokens)
    try:
        report = write(embedder, overwrite=overwrite, callback=progress)
    except KeyboardInterrupt:
        if form == "hdf5" and not settings["stateful"]:
            click.echo("interrupted; the same command with --resume continues", err=True)
        raise
    finally:
        progress.end()
    shape = ", ".join(str(size) if size else "words" for size in embedder.no_vectors(vectors).shape)
    blank = f", {report.n_blank:,} of them blank" if report.n_blank else ""
    kept = f", {report.n_kept:,} of them done before" if report.n_kept else ""
    rate = report.n_tokens / max(report.seconds, 1e-9)
    if n_tokens is None:
        read.warn()
    unknown = f", {read.share}" if read.share else ""
    echo(
        f"{report.n_lines:,} {'sentences' if raw else 'lines'}{blank}{kept} -> {out}: ({shape}) {dtype}; "
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
        rate = report.n_tokens / max(report.seconds, 1e-9)
        fields = [f"{report.n_lines:,} lines", f"{report.n_tokens:,} words", f"{rate:,.0f} tokens/s"]
        if self.n_tokens is not None and rate and not report.n_kept:
            left = clock((self.n_tokens - report.n_tokens) / rate)
            fields = [f"{report.n_tokens / self.n_tokens:.1%}", f"{left} left", *fields]
        self.show(fields, partial(click.echo, err=True))


_TENSORFLOW_ALONE = ("--stateful", "--no-xla", "--precision", "--ray")
_APART = {
    "--ray": ("--stateful", "--cuda-device", "--resume", "--raw"),
    "--format hdf5": ("--ray", "--compression snappy", "--compression zstd"),
    "--format parquet": ("--use-sentence-keys", "--forget-sentences", "--include-sentence-indices"),
    "--resume": ("--format parquet", "--overwrite", "--stateful"),
    "--stateful": ("--batch-tokens",),
    "--include-sentence-indices": ("--use-sentence-keys", "--forget-sentences"),
    "--compression lzf": ("--format parquet",),
    "--backend torch": _TENSORFLOW_ALONE,
    "--backend jax": _TENSORFLOW_ALONE,
}
"""Flags with the flags that they exclude; the embedder checks further combinations."""


def _refuse_contradictions(context: click.Context, form: str) -> None:
    """Reject flags that exclude each other."""
    chosen = {
        option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
    }
    chosen |= {
        f"--format {form}",
        *(f"--{name} {context.params[name]}" for name in ("backend", "compression")),
    }
    for flag, others in _APART.items():
        for other in sorted(chosen.intersection(others)) if flag in chosen else ():
            raise click.UsageError(f"{flag} does not go with {other}")
    if form == "hdf5" and len(context.params["texts"]) > 1:
        raise click.UsageError(
            "several texts need --format parquet: HDF5 identifies a line by its number alone"
        )
