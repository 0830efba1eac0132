"""What the user has set for Keras elsewhere does not matter here, or is told of in one line."""

import pytest

from tests.helpers import python, write_json

CODE = """
import os
from bilm.cli.process import import_tensorflow
import_tensorflow()
import tensorflow
assert not tensorflow.config.experimental.tensor_float_32_execution_enabled()
assert os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] == 'true'
from bilm import LanguageModel
model = LanguageModel(small_options(n_tokens_vocab=30))
assert {weight.dtype for weight in model.weights} == {model.dtype} == {"float32"}, model.weights
"""


def with_settings(code, tmp_path, floatx, backend):
    write_json(tmp_path / "keras.json", {"floatx": floatx, "image_data_format": "channels_first"})
    return python("-c", code, KERAS_HOME=str(tmp_path), KERAS_BACKEND=backend)


@pytest.mark.slow
def test_tensorflow_is_imported_quietly_and_the_settings_of_keras_are_not_heeded(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    done = with_settings(CODE, tmp_path, "float64", "non\x1bsense")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        r"KERAS_BACKEND='non\x1bsense' is ignored: the command runs on TensorFlow",
        "Keras' floatx float64 is ignored: a biLM's weights are float32",
    ]


def test_the_library_says_which_backend_it_needs(tmp_path):
    code = """
import bilm
from bilm.errors import BilmError
try:
    bilm.Elmo
except BilmError as error:
    print(error)
bilm.batch_to_ids([["a"]])
"""
    done = with_settings(code, tmp_path, "float32", "nonsense")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Keras cannot be imported (Unable to import backend : nonsense); set the environment variable "
        "KERAS_BACKEND to tensorflow, torch or jax before Keras is imported\n"
    )
