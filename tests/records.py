"""Lines of the records of a run."""

import json
from pathlib import Path
from typing import Any

from bilm.options import PRESETS
from bilm.options.plan import Plan


def plan(**changes: Any) -> Plan:
    """The plan of a call."""
    values: dict[str, Any] = {
        **{"command": "train", "options": PRESETS["tiny"], "train_prefix": {}, "seed": 7, "shuffle": True},
        **{"shuffle_buffer": 9, "n_gpus": 1, "jit": False, "log_every": 3, "workers": 1, "xla": True},
        **{"n_steps": 100, "steps_per_epoch": 50},
    }
    return Plan(**values | changes)


def train_line(step: Any, **changes: Any) -> dict[str, Any]:
    """A line of ``metrics.jsonl``; a change to None leaves the key out."""
    line = {
        **{"kind": "train", "step": step, "epoch": 0.5, "tokens": 1280, "loss": 6.0, "perplexity": 403.4},
        **{"forward_perplexity": 410.0, "backward_perplexity": 396.9, "sampled": True, "gradient_norm": 3.1},
        **{"learning_rate": 0.2, "tokens_per_second": 5120.3, "data_wait": 0.4, "time": 1795240000.12},
    }
    return {key: value for key, value in (line | changes).items() if value is not None}


def heldout_line(step: int, **changes: Any) -> dict[str, Any]:
    """A line of ``metrics.jsonl``; a change to None leaves the key out."""
    line = {
        **{"kind": "heldout", "step": step, "epoch": 0.5, "tokens": 1280, "perplexity": 260.9},
        **{"forward_perplexity": 264.9, "backward_perplexity": 257.0, "train_perplexity": 240.1},
        **{"best": False, "seconds": 20.1, "time": 1795240020.5},
    }
    return {key: value for key, value in (line | changes).items() if value is not None}


def call_line(**changes: Any) -> dict[str, Any]:
    """A line of ``calls.jsonl``."""
    line = {
        **{"command": "bilm train --save-dir run", "step": 0, "seed": 7, "time": 1795240000.0},
        **{"versions": {"bilm": "0.1.0", "tensorflow": "2.21.0"}, "options": {"dropout": 0.1}},
    }
    return line | changes


def write_lines(path: Path, *lines: dict[str, Any] | str) -> Path:
    """Write objects as JSON, one a line; a string is written as it is."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    path.write_text(text)
    return path
