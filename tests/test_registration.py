"""What Keras finds in its files of our classes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import keras
import pytest

from bilm import Elmo, SentenceVectorizer, registration
from docs.generate import modules
from tests.helpers import GOLDEN

FILES = (GOLDEN / "char" / "options.json", GOLDEN / "char" / "weights.hdf5")
SOURCES = {name: path.read_text(encoding="utf-8") for name, path in modules().items()}


def test_every_registered_class_is_in_the_table():
    mark = '@keras.saving.register_keras_serializable("bilm")\nclass '
    found = {
        part.partition("(")[0]: f"bilm.{module}"
        for module, source in SOURCES.items()
        for part in source.split(mark)[1:]
    }
    assert found == registration.HOMES


@pytest.mark.slow
def test_a_model_is_loaded_in_a_new_process(tmp_path):
    """Importing the package is enough, before Keras or after it, and does not import Keras."""
    sentences = keras.Input((), dtype="string")
    keras.Model(sentences, Elmo(*FILES)(SentenceVectorizer()(sentences))).save(tmp_path / "model.keras")
    code = """
import sys, bilm
assert "keras" not in sys.modules
import keras
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("bilm")]
print([layer.name for layer in keras.models.load_model(sys.argv[1]).layers])
"""
    command = [sys.executable, "-c", code, str(tmp_path / "model.keras")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "'sentence_vectorizer" in done.stdout and "'elmo" in done.stdout, done.stderr


def test_keras_that_is_there_already_is_given_the_names(monkeypatch):
    known = keras.saving.get_custom_objects()
    monkeypatch.delitem(known, "bilm>ScalarMix")
    finders = list(sys.meta_path)
    registration.register_with_keras()
    assert sys.meta_path == finders
    layer = keras.layers.deserialize(
        {"class_name": "ScalarMix", "registered_name": "bilm>ScalarMix", "config": {"l2_coef": 0.5}}
    )
    assert layer.l2_coef == 0.5


def test_looking_for_keras_without_importing_it_changes_nothing(monkeypatch):
    finder = registration._AfterKeras()
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    assert finder.find_spec("numpy", None) is None
    assert finder.find_spec("keras", None).origin == importlib.util.find_spec("keras").origin
    assert finder in sys.meta_path
