"""The flags of the commands that can run on Ray."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import shared
from bilm.cli.numbers import Integer
from bilm.io.shown import quoted

if TYPE_CHECKING:
    from bilm.ray.cluster import Cluster

_AUTO = "auto"


@dataclass(frozen=True)
class RayFlags:
    """What the flags say."""

    address: str
    n_workers: int | None
    cpus_per_worker: int | None
    gpus_per_worker: float | None

    def cluster(self) -> Cluster:
        """As the library takes them."""
        from bilm.ray.cluster import Cluster

        return Cluster(self.address, self.n_workers, self.cpus_per_worker, self.gpus_per_worker)


class _Address(click.ParamType):
    """The address of a cluster: click takes whatever follows ``--ray`` for it."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        """Check its form."""
        from bilm.ray.cluster import is_address

        if not is_address(str(value)):
            self.fail(
                f"{quoted(str(value))} is no address; give local or HOST:PORT, or --ray at the end",
                param,
                ctx,
            )
        return str(value)


def refuse_stdin(*paths: Path | str) -> None:
    """Refuse standard input.

    Raises:
        click.UsageError: one of the paths is ``-``.
    """
    if any(map(shared.is_stdin, paths)):
        raise click.UsageError("-: Ray's workers cannot read standard input; give a file")


def open_ray(flags: RayFlags, *paths: Path | str, part: str = "data") -> Cluster:
    """The cluster that the flags name, for a job that reads these paths.

    Args:
        flags: of the command.
        paths: of its texts.
        part: of Ray that it needs.

    Raises:
        BilmError: Ray is not installed, or a flag is out of range.
        click.UsageError: one of the paths is ``-``.
    """
    from bilm.ray.cluster import require_ray

    refuse_stdin(*paths)
    require_ray(part)
    return flags.cluster()


def on_ray(
    command: Callable[..., None], n_workers: str = "as many as there is room for"
) -> Callable[..., None]:
    """The flags, which a command takes as `ray`, `RayFlags`, or None without ``--ray``.

    Args:
        command: that takes it.
        n_workers: the default of ``--ray-workers``, in words.
    """

    @functools.wraps(command)
    def call(
        ray: str | None,
        ray_workers: int | None,
        cpus_per_worker: int | None,
        gpus_per_worker: float | None,
        **flags: Any,  # noqa: ANN401
    ) -> None:
        if ray is None:
            others = {
                "--ray-workers": ray_workers,
                "--cpus-per-worker": cpus_per_worker,
                "--gpus-per-worker": gpus_per_worker,
            }
            if given := [name for name, value in others.items() if value is not None]:
                raise click.UsageError(f"{given[0]} goes with --ray")
            return command(ray=None, **flags)
        return command(ray=RayFlags(ray, ray_workers, cpus_per_worker, gpus_per_worker), **flags)

    options = [
        click.option(
            "--ray",
            type=_Address(),
            is_flag=False,
            flag_value=_AUTO,
            metavar="[ADDRESS|local]",
            help="Run on Ray: the cluster at HOST:PORT or of RAY_ADDRESS, else or with local this machine. "
            "Give it last if no address follows.",
        ),
        click.option(
            "--ray-workers",
            type=Integer(min=1),
            show_default=n_workers,
            help="Processes with a model each.",
        ),
        click.option(
            "--cpus-per-worker",
            type=Integer(min=1),
            show_default="2; 1 beside a GPU",
            help="CPUs of a worker, which are its threads.",
        ),
        click.option(
            "--gpus-per-worker",
            type=click.FloatRange(min=0),
            show_default="1 if there are any",
            help="GPUs of a worker; a fraction if several share one.",
        ),
    ]
    wrapped: Callable[..., None] = call
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped
