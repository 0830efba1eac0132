"""`Elmo` as a module of PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import pages


def test_elmo_is_a_module_as_users_of_pytorch_know_them():
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/backend/torch_module.py"]
    environment = os.environ | {"KERAS_BACKEND": "torch"}
    done = subprocess.run(
        command, cwd=pages.ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
