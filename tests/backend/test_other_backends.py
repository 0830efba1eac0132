"""On PyTorch and JAX the same vectors, gradients and models as on TensorFlow; each in its own process."""

import importlib.util
import re

import h5py
import keras
import numpy as np
import pytest

from tests import pages
from tests.backend import on_each_backend
from tests.distributed import model_files, write_folder
from tests.helpers import CHAR, MODEL, ROOT, python, run

pytestmark = pytest.mark.slow

PAGE = "docs/pytorch-and-jax.md"


def installed(name):
    is_there = importlib.util.find_spec(name) is not None
    return pytest.param(name, marks=pytest.mark.skipif(not is_there, reason=f"{name} is not installed"))


OTHERS = [installed("torch"), installed("jax")]


def run_on(backend, *arguments, cwd=ROOT):
    # XLA compiles each operation of JAX, and that takes most of the time.
    done = python(*arguments, cwd=cwd, KERAS_BACKEND=backend, XLA_FLAGS="--xla_backend_optimization_level=0")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With what TensorFlow computes, in this process."""
    folder = tmp_path_factory.mktemp("backends")
    on_each_backend.write(folder)
    return folder


@pytest.mark.parametrize("backend", OTHERS)
def test_backends_equal_tensorflow(backend, folder):
    run_on(backend, "-m", "tests.backend.on_each_backend", folder)
    expected, found = (np.load(folder / f"{name}.npz") for name in ("tensorflow", backend))
    assert set(found) == set(expected) and len(found) > 40
    for name in expected:
        scale = max(1.0, np.abs(expected[name]).max())
        np.testing.assert_allclose(found[name] / scale, expected[name] / scale, atol=1e-5, err_msg=name)
    ours = keras.saving.load_model(folder / f"{backend}.keras")  # and the one of this backend, read there
    np.testing.assert_allclose(ours.predict(on_each_backend.IDS, verbose=0), expected["model"], atol=1e-5)


@pytest.mark.parametrize("backend", OTHERS[:1])
def test_embed_command_runs_on_backend(backend, tmp_path):
    outputs = [tmp_path / "tensorflow.hdf5", tmp_path / f"{backend}.hdf5"]
    run("embed", CHAR / "heldout.txt", outputs[0], *MODEL)
    command = ("embed", CHAR / "heldout.txt", outputs[1], *MODEL, "--backend", backend)
    run_on("nonsense", "-m", "bilm", *command)
    with h5py.File(outputs[0]) as expected, h5py.File(outputs[1]) as found:
        assert set(expected) == set(found)
        for key in expected.keys() - {"sentence_to_index"}:
            np.testing.assert_allclose(found[key][...], expected[key][...], atol=1e-5)


@pytest.mark.parametrize("backend", OTHERS)
def test_page_and_example_run_without_tensorflow(backend, tmp_path):
    write_folder(tmp_path, model_files("weights.hdf5"))
    text = pages.text(PAGE)
    other = {"torch": "JAX", "jax": "PyTorch"}[backend]
    part = re.sub(rf"^## {other}\n.*?(?=^## )", "", text, flags=re.M | re.S)
    code = "".join(re.findall(r"^```python\n(.*?)^```", part, re.M | re.S))
    code += f"import runpy\nrunpy.run_path('{ROOT}/examples/usage_cached.py', run_name='__main__')\n"
    printed = run_on(backend, "-c", code, cwd=tmp_path)
    expected = re.findall(r"^ *print\(.*\)  # (.+)$", code, re.M)
    assert expected and [line for line in expected if line not in printed.splitlines()] == []
    assert "shares of the layers" in printed


@pytest.mark.slow
def test_elmo_is_pytorch_module():
    pytest.importorskip("torch")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "tests/backend/torch_module.py")
    done = python(*words, KERAS_BACKEND="torch")
    assert done.returncode == 0, done.stdout
