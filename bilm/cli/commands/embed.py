"""``bilm embed``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.backend.settings import LIBRARIES
from bilm.cli import flags
from bilm.cli.process import import_backend, import_tensorflow
from bilm.cli.terminal import EmbeddingProgress
from bilm.io.lines import read_lines
from bilm.io.shards import can_be_read_once

if TYPE_CHECKING:
    from bilm.embedding.packing import Layers


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
@click.option("--layer", type=click.IntRange(min=0), help="Write this layer only; 0 is the word vectors.")
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
    type=click.IntRange(1, flags.MOST_ROWS),
    show_default="128; 64 with --stateful",
    help="Maximum rows of packed sentences; with --stateful, sentences per batch.",
)
@click.option(
    "--batch-tokens",
    type=click.IntRange(min=1),
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
    help="What computes the vectors, which are the same to about 1e-6. PyTorch and JAX must be installed.",
)
@click.option("--resume", is_flag=True, help="Finish an interrupted command.")
@flags.overwrite
@flags.on_ray
def embed(
    texts: tuple[str, ...],
    out: str,
    model: flags.EmbeddingModel,
    chosen: tuple[str, ...],
    layer: int | None,
    form: str | None,
    dtype: str | None,
    compression: str,
    stateful: bool,
    batch_size: int | None,
    batch_tokens: int | None,
    cuda_devices: tuple[int, ...],
    backend: str,
    resume: bool,
    overwrite: bool,
    ray: flags.Cluster | None,
    **keys: bool,
) -> None:
    """Write a vector for each word of SENTENCES, one whitespace-tokenised sentence per line (- for stdin).

    OUT in HDF5 has one dataset per line, named by the line's number from 0, of shape (layers, words, dim),
    or (words, dim) for one layer or their mean; it is empty for a blank line. `sentence_to_index` maps
    sentences to these numbers, as JSON.

    In Parquet, OUT is a directory of files with a row per line: `file`, `line` from 0, `sentence`, `tokens`
    and `vectors`, lists of that shape. With --ray several processes do the work, on one machine or on many,
    and SENTENCES and OUT may be URLs such as s3://bucket/text.
    """
    form = form or ("hdf5" if ray is None else "parquet")
    _refuse_contradictions(click.get_current_context(), form)
    flags.check_texts(ray, *texts, out)
    from bilm.embedding import hdf5_output

    output = hdf5_output.FileFormat(
        _layers(chosen, layer),
        dtype=dtype or ("float32" if form == "hdf5" else "float16"),
        compression=None if compression == "none" else compression,
        **keys,
    )
    in_parquet: dict[str, Any] = {name: getattr(output, name) for name in ("layers", "dtype", "compression")}
    in_parquet["overwrite"] = overwrite
    limits: dict[str, Any] = {"batch_size": batch_size, "batch_tokens": batch_tokens}
    if ray is not None:
        import_tensorflow()
        from bilm.ray import jobs

        started = time.monotonic()
        n_lines = jobs.embed(
            texts, out, model.arguments, model.vocab_file, cluster=ray, **in_parquet, **limits
        )
        click.echo(f"{n_lines:,} lines -> {out}: {output.dtype}, in {time.monotonic() - started:.1f} s")
        return
    if form == "parquet":
        from bilm.embedding import parquet_output  # needs pyarrow

        parquet_output.check_parquet(out, overwrite)
    else:
        inputs = [*map(flags.input_place, texts), *model.inputs]
        hdf5_output.check_embeddings(Path(out), overwrite, resume, inputs)
    n_tokens = None
    if not any(map(can_be_read_once, texts)):
        n_tokens = sum(len(line.split()) for text in texts for line in read_lines(text))
    import_backend(backend)
    embedder = model.open(stateful=stateful, **limits, cuda_device=cuda_devices or None)
    progress = EmbeddingProgress(n_tokens)
    try:
        if form == "parquet":
            named = ((text, flags.input_lines(text)) for text in texts)
            report = parquet_output.embed_parquet(embedder, named, out, **in_parquet, callback=progress)
        else:
            report = hdf5_output.embed_file(
                embedder,
                flags.input_lines(texts[0]),
                Path(out),
                output,
                overwrite=overwrite,
                resume=resume,
                callback=progress,
            )
    except KeyboardInterrupt:
        if form == "hdf5" and not stateful:
            click.echo("interrupted; the same command with --resume continues", err=True)
        raise
    finally:
        progress.end()
    layers = f"{embedder.n_layers}, " if output.layers == "all" else ""
    blank = f", {report.n_blank:,} of them blank" if report.n_blank else ""
    kept = f", {report.n_kept:,} of them done before" if report.n_kept else ""
    rate = report.n_tokens / max(report.seconds, 1e-9)
    click.echo(
        f"{report.n_lines:,} lines{blank}{kept} -> {out}: ({layers}words, {embedder.dim}) {output.dtype}; "
        f"{report.n_tokens:,} words in {report.seconds:.1f} s, {rate:,.0f} tokens/s"
    )


def _refuse_contradictions(context: click.Context, form: str) -> None:
    """Refuse flags that have no meaning beside others; the embedder refuses more."""
    values = context.params
    given = {
        option.name: option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE
    }
    keys = ("use_sentence_keys", "forget_sentences", "include_sentence_indices")
    apart = [
        ("--ray", "ray" in given, ("stateful", "cuda_devices", "resume")),
        ("--format hdf5", form == "hdf5", ("ray",)),
        ("--format parquet", form == "parquet", (*keys, "resume")),
        ("--overwrite", values["overwrite"], ("resume",)),
        ("--stateful", values["stateful"], ("resume", "batch_tokens")),
        ("--include-sentence-indices", values["include_sentence_indices"], keys[:2]),
        (f"--backend {values['backend']}", values["backend"] != "tensorflow", ("stateful", "no_xla", "ray")),
    ]
    for flag, is_meant, others in apart:
        for other in others:
            if is_meant and other in given:
                raise click.UsageError(f"{given[other]} does not go with {flag}")
    if form == "hdf5" and len(values["texts"]) > 1:
        raise click.UsageError(
            "several texts need --format parquet: in HDF5 a line is known by its number alone"
        )
    if values["compression"] in (("snappy", "zstd") if form == "hdf5" else ("lzf",)):
        raise click.UsageError(f"--compression: {values['compression']} is not for {form}")


def _layers(chosen: tuple[str, ...], layer: int | None) -> Layers:
    wanted: list[Layers] = [*dict.fromkeys(chosen)]  # type: ignore[list-item]
    if layer is not None:
        wanted.append(layer)
    if len(wanted) > 1:
        raise click.UsageError("give one of --all, --top, --average, --layer")
    return wanted[0] if wanted else "all"
