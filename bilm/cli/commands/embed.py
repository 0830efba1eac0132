"""``bilm embed``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.backend import settings
from bilm.backend.settings import LIBRARIES
from bilm.cli import flags
from bilm.cli.flags import MOST_ROWS, Integer, on_ray, open_ray
from bilm.cli.process import import_backend, import_tensorflow
from bilm.cli.terminal import EmbeddingProgress
from bilm.io.lines import read_lines
from bilm.io.spooled import can_be_read_once

if TYPE_CHECKING:
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.hdf5_output import EmbeddingReport, FileFormat
    from bilm.embedding.packing import Layers
    from bilm.ray.cluster import Cluster


@click.command()
@click.argument("texts", type=flags.TEXT_OR_URL, nargs=-1, required=True, metavar="SENTENCES...")
@click.argument("out", type=flags.FILE_OR_URL)
@flags.embedding_model
@flags.no_xla
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
    "--format",
    "form",
    type=click.Choice(["hdf5", "parquet"]),
    show_default="hdf5; parquet with --ray",
    help="One file of HDF5, or a directory of Parquet files, a row a line.",
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
    show_default=True,
    help="Compression, transparent to readers: gzip or lzf in HDF5; gzip, snappy or zstd in Parquet.",
)
@click.option(
    "--cuda-device",
    "cuda_devices",
    type=click.IntRange(min=-1),
    multiple=True,
    show_default="the first GPU if there is one",
    help="Number of the GPU to use, from 0, or -1 for the CPU; repeatable, to use several GPUs.",
)
@click.option(
    "--backend",
    type=click.Choice([*LIBRARIES]),
    default="tensorflow",
    show_default=True,
    help="What computes the vectors, which are the same to about 1e-6. PyTorch and JAX must be installed.",
)
@click.option("--resume", is_flag=True, help="Finish an interrupted command.")
@flags.overwrite
@on_ray
def embed(
    texts: tuple[Path | str, ...],
    out: Path | str,
    model: flags.EmbeddingModel,
    chosen: tuple[str, ...],
    layer: int | None,
    use_sentence_keys: bool,
    forget_sentences: bool,
    include_sentence_indices: bool,
    stateful: bool,
    batch_size: int | None,
    batch_tokens: int | None,
    form: str | None,
    dtype: str | None,
    compression: str,
    cuda_devices: tuple[int, ...],
    backend: str,
    resume: bool,
    overwrite: bool,
    ray: Cluster | None,
) -> None:
    """Write a vector for each word of SENTENCES, one whitespace-tokenised sentence per line (- for stdin).

    OUT in HDF5 has one dataset per line, named by the line's number from 0, of shape (layers, words, dim),
    or (words, dim) for one layer or their mean; it is empty for a blank line. `sentence_to_index` maps
    sentences to these numbers, as JSON.

    In Parquet, OUT is a directory of files with a row per line: `file`, `line` from 0, `sentence`, `tokens`
    and `vectors`, lists of that shape. With --ray several processes do the work, on one machine or on many,
    and SENTENCES and OUT may be URLs such as s3://bucket/text.
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
    form = form or ("hdf5" if ray is None else "parquet")
    _refuse_others(form, ray is not None, click.get_current_context().params)
    from bilm.embedding.hdf5_output import FileFormat

    layers = _layers(chosen, layer)
    codec = None if compression == "none" else compression
    dtype = dtype or ("float32" if form == "hdf5" else "float16")
    settings = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    keys = (use_sentence_keys, forget_sentences, include_sentence_indices)
    output = FileFormat(layers, *keys, dtype, codec)
    if ray is not None:
        _embed_on_ray(ray, list(map(str, texts)), str(out), output, model, settings, overwrite)
        return
    if form == "parquet":
        from bilm.embedding.parquet_output import check_parquet

        check_parquet(out, overwrite)
    else:
        from bilm.embedding.hdf5_output import check_embeddings

        inputs = [*map(flags.input_place, texts), *model.inputs]
        check_embeddings(Path(out), overwrite, resume, inputs)
    n_tokens = None
    if not any(map(can_be_read_once, texts)):
        n_tokens = sum(len(line.split()) for text in texts for line in read_lines(text))
    import_backend(backend)
    embedder = model.open(stateful=stateful, **settings, cuda_device=cuda_devices or None)
    with EmbeddingProgress(n_tokens) as progress:
        if form == "parquet":
            report = _embed_parquet(embedder, texts, out, output, overwrite, progress)
        else:
            report = _embed(embedder, Path(texts[0]), Path(out), output, resume, overwrite, progress)
    _report(embedder, report, Path(out), output)


def _refuse_others(form: str, on_ray: bool, given: Mapping[str, Any]) -> None:
    """Refuse flags that have no meaning for this output, or on Ray."""
    texts, compression = given["texts"], given["compression"]
    if form == "hdf5" and len(texts) > 1:
        raise click.UsageError(
            "several texts need --format parquet: in HDF5 a line is known by its number alone"
        )
    wrong = ("snappy", "zstd") if form == "hdf5" else ("lzf",)
    if compression in wrong:
        raise click.UsageError(f"--compression: {compression} is not for {form}")
    of_hdf5 = ("use_sentence_keys", "forget_sentences", "include_sentence_indices", "resume")
    for name in of_hdf5 if form == "parquet" else ():
        if given[name]:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --format hdf5")
    if given["backend"] != "tensorflow" and given["stateful"]:
        raise click.UsageError("--stateful needs --backend tensorflow")
    if given["backend"] != "tensorflow" and not settings.xla_is_on:
        raise click.UsageError("--no-xla is for --backend tensorflow")
    if on_ray:
        if form == "hdf5":
            raise click.UsageError(
                "--format hdf5 is not for --ray, which writes a directory of Parquet files"
            )
        if given["stateful"]:
            raise click.UsageError("--stateful: on Ray each sentence is embedded by itself")
        if given["cuda_devices"]:
            raise click.UsageError("--cuda-device: Ray chooses the GPUs; see --gpus-per-worker")
        if given["resume"]:
            raise click.UsageError("--resume is not for --ray, which restarts lost workers itself")
        if given["backend"] != "tensorflow":
            raise click.UsageError("--backend is not for --ray, whose workers run TensorFlow")
        return
    flags.refuse_urls(*texts, given["out"])


def _embed(
    embedder: ElmoEmbedder,
    sentences: Path,
    outfile: Path,
    form: FileFormat,
    resume: bool,
    overwrite: bool,
    progress: EmbeddingProgress,
) -> EmbeddingReport:
    from bilm.embedding.hdf5_output import embed_file

    lines = flags.input_lines(sentences)
    try:
        return embed_file(
            embedder, lines, outfile, form, overwrite=overwrite, resume=resume, callback=progress
        )
    except KeyboardInterrupt:
        if not embedder.stateful:
            click.echo("interrupted; the same command with --resume continues", err=True)
        raise


def _embed_parquet(
    embedder: ElmoEmbedder,
    texts: tuple[Path | str, ...],
    out: Path | str,
    form: FileFormat,
    overwrite: bool,
    progress: EmbeddingProgress,
) -> EmbeddingReport:
    from bilm.embedding.parquet_output import embed_parquet

    named = ((str(text), flags.input_lines(Path(text))) for text in texts)
    return embed_parquet(
        embedder, named, out, form.layers, form.dtype, form.compression, overwrite, callback=progress
    )


def _embed_on_ray(
    ray: Cluster,
    texts: list[str],
    out: str,
    form: FileFormat,
    model: flags.EmbeddingModel,
    settings: dict[str, Any],
    overwrite: bool,
) -> None:
    cluster = open_ray(ray, *texts)
    import_tensorflow()
    from bilm.ray.jobs import embed

    started = time.monotonic()
    n_lines = embed(
        texts,
        out,
        model.arguments,
        model.vocab_file,
        cluster=cluster,
        layers=form.layers,
        dtype=form.dtype,
        compression=form.compression,
        overwrite=overwrite,
        **settings,
    )
    click.echo(f"{n_lines:,} lines -> {out}: {form.dtype}, in {time.monotonic() - started:.1f} s")


def _report(embedder: ElmoEmbedder, report: EmbeddingReport, outfile: Path, form: FileFormat) -> None:
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
