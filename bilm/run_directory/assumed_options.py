"""Options missing from a run's ``options.json``: taken from the checkpoint, or assumed with a warning."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from bilm.io.json_reader import shown
from bilm.options import Options
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.state import read_state

_LOG = logging.getLogger(__name__)

# What bilm-tf has no value of its own for, and would not run without; its other keys are optional there too.
_TRAINING = frozenset(
    "unroll_steps batch_size dropout all_clip_norm_val n_negative_samples_batch n_epochs".split()
)


def complete_options(
    run: RunDirectory, which: str, given: Collection[str] = (), needed: Collection[str] | None = None
) -> Options:
    """A run's options with what its ``options.json`` lacks, which is told in a line.

    A checkpoint of ours has the options that it was trained with. One of bilm-tf's has none, and what
    bilm-tf would miss is assumed.

    Args:
        run: The run.
        which: The checkpoint, see `RunDirectory.choose`.
        given: Keys that have a value from elsewhere.
        needed: The keys that matter; None for all.

    Raises:
        BilmError: As `RunDirectory.choose`, if there is a key to look for.
    """
    wanted = [key for key in run.missing if key not in given and (needed is None or key in needed)]
    if not wanted:
        return run.options
    state = read_state(run.choose(which))
    saved: Any = {} if state is None else state.settings.get("options")
    saved = saved if isinstance(saved, dict) else {}
    options = run.options.with_values({key: saved[key] for key in wanted if key in saved})
    values, before = options.to_json(), run.options.to_json()
    found = [key for key in wanted if key in saved and values[key] != before[key]]
    assumed = [key for key in wanted if key not in saved and key in _TRAINING]
    for keys, source in (
        (found, "taken from the checkpoint"),
        (assumed, "assumed"),
    ):
        if keys:
            pairs = ", ".join(f"{key} {shown(values[key])}" for key in keys)
            _LOG.warning("%s lacks some options; %s: %s", run.path / "options.json", source, pairs)
    return options
