"""The examples in docstrings give what they say."""

import doctest
import importlib
import inspect
import shutil

import pytest

import bilm
from docs.generate import modules
from tests.helpers import GOLDEN

# What the examples find where they run, and what of `tests/golden/char` it is.
FILES = {name: name for name in ("options.json", "weights.hdf5", "vocab.txt", "heldout.txt")}
FILES |= {"corpus.txt": "train.txt", "run/vocab.txt": "vocab.txt"}
MODULES = modules()
# These compile a training step or several models.
LONG = ("runs.", "ray.", "sklearn", "embedding.embedder", "embedding.prediction")
LONG += ("layers.scalar_mix", "models.bidirectional_lm")
WITH_EXAMPLES = [
    pytest.param(name, marks=[pytest.mark.slow] if name.startswith(LONG) else [])
    for name, path in MODULES.items()
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.fixture
def _files(tmp_path, monkeypatch):
    shutil.copytree(GOLDEN / "char" / "final", tmp_path / "run")  # a run of bilm-tf
    for name, golden in FILES.items():
        shutil.copyfile(GOLDEN / "char" / golden, tmp_path / name)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    if name in ("sklearn", "flair"):
        pytest.importorskip(name)
    module = importlib.import_module(f"bilm.{name}")
    report = []
    runner = doctest.DocTestRunner()
    examples = [test for test in doctest.DocTestFinder(exclude_empty=True).find(module) if test.examples]
    assert examples
    for test in examples:
        runner.run(test, out=report.append)
    assert not report, "".join(report)


@pytest.mark.parametrize("name", [name for name in bilm.__all__ if name != "__version__"])
def test_exported_names_have_examples(name):
    text = inspect.getdoc(getattr(bilm, name))
    _, heading, example = text.partition("\nExample:\n")
    assert heading and example.startswith("    >>> ")
