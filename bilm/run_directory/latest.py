"""The options and the newest checkpoint of a run, as bilm-tf's ``training`` gives them."""

from __future__ import annotations

from typing import Any

from bilm.io import PathLike
from bilm.run_directory.directory import RunDirectory


def load_options_latest_checkpoint(save_dir: PathLike) -> tuple[dict[str, Any], str]:
    """The content of ``options.json``, and the prefix of the newest checkpoint.

    Raises:
        BilmError: it is no run directory, or holds no checkpoint.

    Example:
        >>> from bilm.training import load_options_latest_checkpoint
        >>> options, checkpoint = load_options_latest_checkpoint("run")
        >>> options["lstm"]["dim"], checkpoint
        (24, 'run/model.ckpt-12')
    """
    run = RunDirectory.open(str(save_dir))
    return run.options.to_json(), str(run.latest().prefix)
