"""What importing TensorFlow prints."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow  # each imports it in a process of its own
@pytest.mark.parametrize(
    ("level", "is_quiet"),
    [(None, True), ("3", True), ("0", False)],
)
def test_tensorflow_is_imported_quietly_unless_asked(level, is_quiet):
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    code = (
        "from bilm.cli.process import import_tensorflow; import_tensorflow(); import tensorflow, os; "
        "assert not tensorflow.config.experimental.tensor_float_32_execution_enabled(); "
        "assert os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] == 'true'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stderr == "") == is_quiet
