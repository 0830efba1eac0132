"""``bilm embed``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli import shared
from bilm.cli.numbers import MOST_ROWS, Integer
from bilm.cli.progress import EmbeddingProgress
from bilm.cli.quiet import import_tensorflow
from bilm.embedding_files.parts_directory import check_embeddings
from bilm.text.lines import read_lines
from bilm.text.spooled import can_be_read_once

if TYPE_CHECKING:
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding_files.chunks import Layers
    from bilm.embedding_files.embedded_text import FileFormat


@click.command()
@click.argument("sentences", type=shared.TEXT)
@click.argument("outfile", type=shared.FILE, metavar="OUT.HDF5")
@shared.embedding_model
@shared.no_xla
@click.option("--all", "chosen", flag_value="all", multiple=True, help="Write all layers (the default).")
@click.option("--top", "chosen", flag_value="top", multiple=True, help="Write the top layer only.")
@click.option(
    "--average", "chosen", flag_value="average", multiple=True, help="Write the plain mean of the layers."
)
@click.option("--layer", type=Integer(min=0), help="Write this layer only; 0 is the word vectors.")
@click.option(
    "--use-sentence-keys", is_flag=True, help="Name datasets by their sentences, not by line numbers."
)
@click.option("--forget-sentences", is_flag=True, help="Do not write sentence_to_index.")
@click.option(
    "--include-sentence-indices", is_flag=True, help="Also write sentence_to_index as sentence_indices."
)
@click.option("--stateful", is_flag=True, help="Carry the LSTM state from batch to batch, as AllenNLP did.")
@click.option(
    "--batch-size",
    type=Integer(1, MOST_ROWS),
    show_default="128; 64 with --stateful",
    help="Maximum rows of packed sentences; with --stateful, sentences per batch.",
)
@click.option(
    "--batch-tokens",
    type=Integer(min=1),
    show_default="16384",
    help="Tokens computed at a time; fewer need less memory. Not with --stateful.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Data type of the vectors.",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "lzf"]),
    default="none",
    show_default=True,
    help="Compression of the datasets, transparent to readers.",
)
@click.option(
    "--cuda-device",
    "cuda_devices",
    type=click.IntRange(min=-1),
    multiple=True,
    show_default="the first GPU if there is one",
    help="Number of the GPU to use, from 0, or -1 for the CPU; repeatable, to use several GPUs.",
)
@click.option("--resume", is_flag=True, help="Finish an interrupted command.")
@shared.overwrite
def embed(
    sentences: Path,
    outfile: Path,
    model: shared.EmbeddingModel,
    chosen: tuple[str, ...],
    layer: int | None,
    use_sentence_keys: bool,
    forget_sentences: bool,
    include_sentence_indices: bool,
    stateful: bool,
    batch_size: int | None,
    batch_tokens: int | None,
    dtype: str,
    compression: str,
    cuda_devices: tuple[int, ...],
    resume: bool,
    overwrite: bool,
) -> None:
    """Write a vector for each word of SENTENCES, one whitespace-tokenised sentence per line (- for stdin).

    OUT.HDF5 has one dataset per line, named by the line's number from 0, of shape (layers, words, dim),
    or (words, dim) for one layer or their mean; it is empty for a blank line. `sentence_to_index` maps
    sentences to these numbers, as JSON.
    """
    if include_sentence_indices and (forget_sentences or use_sentence_keys):
        raise click.UsageError(
            "--include-sentence-indices contradicts --forget-sentences and --use-sentence-keys"
        )
    if resume and overwrite:
        raise click.UsageError("--resume and --overwrite contradict each other")
    if stateful and resume:
        raise click.UsageError(
            "--resume: --stateful cannot be resumed, as its state is not saved; use --overwrite"
        )
    if stateful and len(cuda_devices) > 1:
        raise click.UsageError("--stateful carries its state on one device: give --cuda-device once")
    if stateful and batch_tokens is not None:
        raise click.UsageError("--batch-tokens: with --stateful, give --batch-size instead")
    check_embeddings(outfile, overwrite, resume, [shared.input_place(sentences), *model.inputs])
    from bilm.embedding_files.embedded_text import FileFormat

    layers = _layers(chosen, layer)
    form = FileFormat(
        layers,
        use_sentence_keys,
        forget_sentences,
        include_sentence_indices,
        dtype,
        None if compression == "none" else compression,
    )
    n_tokens = None
    if not can_be_read_once(sentences):
        n_tokens = sum(len(line.split()) for line in read_lines(sentences))
    import_tensorflow()
    embedder = model.open(
        stateful=stateful, batch_size=batch_size, batch_tokens=batch_tokens, cuda_device=cuda_devices or None
    )
    _embed(embedder, sentences, outfile, form, n_tokens, resume, overwrite)


def _embed(
    embedder: ElmoEmbedder,
    sentences: Path,
    outfile: Path,
    form: FileFormat,
    n_tokens: int | None,
    resume: bool,
    overwrite: bool,
) -> None:
    from bilm.embedding_files.embed_file import embed_file

    with EmbeddingProgress(n_tokens) as progress:
        try:
            report = embed_file(
                embedder,
                shared.input_lines(sentences),
                outfile,
                form,
                overwrite=overwrite,
                resume=resume,
                callback=progress,
            )
        except KeyboardInterrupt:
            if not embedder.stateful:
                click.echo("interrupted; the same command with --resume continues", err=True)
            raise
    shape = (
        f"({embedder.n_layers}, words, {embedder.dim})"
        if form.layers == "all"
        else f"(words, {embedder.dim})"
    )
    blank = f", {report.n_blank:,} of them blank" if report.n_blank else ""
    kept = f", {report.n_kept:,} of them done before" if report.n_kept else ""
    rate = report.n_tokens / max(report.seconds, 1e-9)
    click.echo(
        f"{report.n_lines:,} lines{blank}{kept} -> {outfile}: {shape} {form.dtype}; "
        f"{report.n_tokens:,} words in {report.seconds:.1f} s, {rate:,.0f} tokens/s"
    )


def _layers(chosen: tuple[str, ...], layer: int | None) -> Layers:
    wanted: list[Layers] = [*dict.fromkeys(chosen)]  # type: ignore[list-item]
    if layer is not None:
        wanted.append(layer)
    if len(wanted) > 1:
        raise click.UsageError("give one of --all, --top, --average, --layer")
    return wanted[0] if wanted else "all"
