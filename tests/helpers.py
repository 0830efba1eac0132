"""What several test files share: the golden files, the command line in this process, small models."""

import copy
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

from bilm.cli import main
from bilm.errors import BilmError
from bilm.runs.reporter import Reporter

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
VARIANTS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.json"))
CHAR = GOLDEN / "char"
TRAIN, HELDOUT, VOCAB = (CHAR / name for name in ("train.txt", "heldout.txt", "vocab.txt"))
FILES = (CHAR / "options.json", CHAR / "weights.hdf5")
MODEL = ("--options-file", FILES[0], "--weight-file", FILES[1])

# A small model with every part in it; its short window compiles fast.
SMALL: dict[str, Any] = {
    "bidirectional": True,
    "batch_size": 2,
    "unroll_steps": 3,
    "n_epochs": 1,
    "n_negative_samples_batch": 16,
    "dropout": 0.1,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 4]],
        "max_characters_per_token": 20,
        "n_characters": 261,
        "n_highway": 1,
    },
    "lstm": {
        "dim": 8,
        "projection_dim": 4,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
}


def small_options(**changes: Any) -> dict[str, Any]:
    """`SMALL` with values replaced: ``lstm={"dim": 4}`` changes one key of a section, None removes a key."""
    return _changed(SMALL, changes)


def smallest_options(**changes: Any) -> dict[str, Any]:
    """`SMALLEST` with values replaced, as in `small_options`."""
    return _changed(SMALLEST, changes)


def _changed(options: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    options = copy.deepcopy(options)
    for key, value in changes.items():
        if value is None:
            del options[key]
        elif isinstance(value, dict):
            options[key].update(value)
        else:
            options[key] = value
    return options


# One layer over words in one direction, for what is no matter of the model: its step compiles in a second.
SMALLEST = small_options(char_cnn=None, bidirectional=False, lstm={"n_layers": 1})


def train_command(
    save_dir: object, options: object, *flags: object, text: object = TRAIN, vocab: object = VOCAB
) -> list[object]:
    """The words of a ``bilm train``."""
    return [
        *("train", "--train-prefix", text, "--vocab-file", vocab, "--save-dir", save_dir),
        *("--options", options, *flags),
    ]


def write_json(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


def invoke(*arguments: object) -> Result:
    """Run ``bilm`` in this process; a traceback is a failure whatever the exit status."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="bilm")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run(*arguments: object) -> str:
    """Run a command that must succeed; what it prints."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def printed(*arguments: object) -> str:
    """Run a command that must succeed; what it prints to standard output alone."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(*arguments: object, status: int = 1) -> str:
    """Run a command that must fail with one message; the message."""
    result = invoke(*arguments)
    assert result.exit_code == status, result.output
    _, error, message = result.output.partition("Error: ")
    assert error, result.output
    assert "Error: " not in message and "Traceback" not in result.output
    return message.strip()


def python(*arguments: object, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, which finds this package wherever it runs."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        **{"cwd": cwd, "env": os.environ | {"PYTHONPATH": str(ROOT)} | variables},
        **{"capture_output": True, "text": True, "check": False},
    )


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """Limit the size of the files that this process writes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def standard_input(path: Path) -> Iterator[None]:
    """Make a file the standard input of this process."""
    before = os.dup(0)
    with path.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


def checkpoint_arrays(prefix: str | Path, extras: bool = False) -> dict[str, np.ndarray]:
    """What bilm-tf has in a checkpoint, or all of it, by name, read by TensorFlow's own reader."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names if extras or not name.startswith("bilm/")}


def save_arrays(prefix: str | Path, arrays: dict[str, Any]) -> None:
    """Write a checkpoint, by TensorFlow's own writer."""
    import tensorflow as tf

    tensors, slices = [tf.convert_to_tensor(array) for array in arrays.values()], [""] * len(arrays)
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=[*arrays], shape_and_slices=slices, tensors=tensors)


def newest(directory: Path) -> str:
    """The prefix of a directory's newest checkpoint, found by TensorFlow's own rules."""
    import tensorflow as tf

    prefix = tf.train.latest_checkpoint(str(directory))
    assert prefix is not None
    return prefix


def newest_arrays(directory: Path) -> dict[str, np.ndarray]:
    """What bilm-tf has in a directory's newest checkpoint."""
    return checkpoint_arrays(newest(directory))


def restore(run: Any, model: Any, optimizer: Any = None) -> int:
    """Load the newest checkpoint of a `RunDirectory`; its number of training steps."""
    from bilm.run_directory.state import restore_optimizer
    from bilm.weights.transfer import set_weights

    checkpoint, variables = run.latest(), model.named_weights()
    set_weights(variables, checkpoint.read(run.names), checkpoint.prefix)
    if optimizer is not None:
        restore_optimizer(optimizer, variables, checkpoint, run.names)
    return int(checkpoint.step())


def hdf5_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a file of HDF5, those of its groups too."""
    arrays: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, one: arrays.update({name: one[()]} if hasattr(one, "shape") else {}))
    return arrays


def assert_same_arrays(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


def snapshot(directory: Path) -> dict[str, bytes]:
    """The content of every file below a directory, and every directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"(directory)"
        for path in directory.rglob("*")
    }


def raising(error: BaseException) -> Callable[..., Any]:
    """What fails with an error however it is called."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def reporting(**told: Callable[..., Any]) -> Reporter:
    """A reporter that passes on what it is told: ``reporting(step=steps.append)``."""
    reporter = Reporter()
    vars(reporter).update(told)
    return reporter


def refused(call: Callable[..., Any], path: str | Path, *arguments: object) -> str:
    """Call something with a path, which must fail with one line on it; what the line says of the path."""
    with pytest.raises(BilmError) as caught:
        call(path, *arguments)
    text = str(caught.value)
    assert text.startswith(str(path)) and "\n" not in text
    return text.removeprefix(str(path))


def combined_perplexity(output: str) -> float:
    """The number `bilm test` prints for both directions."""
    match = re.search(r"combined ([0-9.]+)", output)
    assert match, output
    return float(match[1])


def figure_of(page: Path) -> dict[str, Any]:
    """The figure of a page that plotly draws."""
    _, start, rest = page.read_text("utf-8").rpartition("Plotly.newPlot(")
    assert start, "the page draws nothing"
    data, end = json.JSONDecoder().raw_decode(rest, rest.index("["))
    layout, _ = json.JSONDecoder().raw_decode(rest, rest.index("{", end))
    return {"data": data, "layout": layout}


def markup_of(page: Path) -> str:
    """A page without its scripts."""
    return re.sub(r"<script[^>]*>.*?</script>", "", page.read_text("utf-8"), flags=re.DOTALL)
