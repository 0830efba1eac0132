"""``bilm embed --ray``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags
from bilm.cli.flags import RayFlags, refuse_urls
from bilm.cli.process import import_tensorflow
from bilm.io import is_url

if TYPE_CHECKING:
    from bilm.embedding.embed_file import FileFormat


def embed_on_ray(
    flags: RayFlags,
    texts: Sequence[str],
    out: Path | str,
    form: str,
    output: FileFormat,
    model: flags.EmbeddingModel,
    settings: dict[str, Any],
    overwrite: bool,
) -> None:
    """Embed texts on Ray, and say what was done."""
    from bilm.ray.cluster import require_ray

    cluster = flags.cluster()
    require_ray()
    import_tensorflow()
    from bilm.ray.embed import check_outputs, embed

    started = time.monotonic()
    if form == "hdf5":
        from bilm.ray.join import embed_hdf5

        refuse_urls(out)
        inputs = [text for text in texts if not is_url(text)]
        from bilm.embedding.hdf5_output import check_embeddings

        check_embeddings(Path(out), overwrite, False, [*inputs, *model.inputs])
        n_lines = embed_hdf5(
            texts[0],
            out,
            model.arguments,
            model.vocab_file,
            output,
            cluster=cluster,
            overwrite=overwrite,
            **settings,
        ).n_lines
    else:
        check_outputs(str(out), overwrite, [*texts, *model.inputs])
        n_lines = embed(
            texts,
            str(out),
            model.arguments,
            model.vocab_file,
            cluster=cluster,
            layers=output.layers,
            dtype=output.dtype,
            compression=output.compression,
            overwrite=overwrite,
            **settings,
        )
    seconds = time.monotonic() - started
    click.echo(f"{n_lines:,} lines -> {out}: {output.dtype}, in {seconds:.1f} s")
