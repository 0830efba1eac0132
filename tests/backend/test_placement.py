"""Where a model can run, and the settings of Keras, which do not matter or are told of in one line."""

import os

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm.backend import keras_backend as placement
from bilm.backend import on_tensorflow, settings
from bilm.cli import process
from bilm.errors import OptionsError, ProcessError
from bilm.io import background
from bilm.layers.scalar_mix import weight_layers
from tests.helpers import CHAR, HELDOUT, ROOT, TRAIN, VOCAB, python, smallest_options, write_json


def test_tensorflow_1_mode_is_refused(tmp_path):
    """Other calls are in the table of docs/migrating.md."""
    run, before = CHAR / "final", bilm.SentenceVectorizer()
    predictor = bilm.WordPredictor.from_model(run, VOCAB)
    layers = np.zeros((2, 3, 4, 5), np.float32)
    calls = {
        "train": lambda: bilm.train(TRAIN, VOCAB, tmp_path / "new", options=smallest_options()),
        "restart": lambda: bilm.restart(TRAIN, run, save_to=tmp_path / "other", vocab_file=VOCAB),
        "test": lambda: bilm.test(HELDOUT, run, vocab_file=VOCAB),
        "predictor": lambda: bilm.WordPredictor.from_model(run, VOCAB),
        "prediction": lambda: next(predictor.predict([["the"]])),
        "vectorizer": lambda: before(["the"]),
        "mix": lambda: weight_layers("input", {"lm_embeddings": layers, "mask": None}),
    }
    with tf.Graph().as_default():
        for name, call in calls.items():
            with pytest.raises(ProcessError, match="needs eager TensorFlow 2: leave out placeholders"):
                pytest.fail(f"{name}: {call()}")
    assert not [*tmp_path.iterdir()]


def test_tf_function_is_taken():
    tf.function(on_tensorflow.require_eager)()
    tf.data.Dataset.range(1).map(lambda number: (on_tensorflow.require_eager(), number)[1])


def test_on_device_refuses_missing_gpu(monkeypatch):
    n_gpus = len(tf.config.list_logical_devices("GPU"))
    for number in (n_gpus, -2):
        with pytest.raises(OptionsError, match=f"`cuda_device` is {number}; TensorFlow finds {n_gpus} GPUs"):
            placement.on_device(number)
    with placement.on_device(-1):
        assert "CPU" in tf.Variable(1.0).device
    with placement.on_device(None):
        tf.constant(1.0)
    monkeypatch.setattr(placement.backend, "n_gpus", lambda: 2)
    monkeypatch.setattr(placement.keras, "device", lambda name: name)
    assert [placement.on_device(number) for number in (-1, 0, 1)] == ["cpu", "gpu:0", "gpu:1"]


@pytest.mark.parametrize(
    ("n", "within", "across"), [(1, "1", "1"), (2, "1", "2"), (3, "2", "3"), (16, "8", "16")]
)
def test_use_threads_sets_environment(n, within, across, monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    settings.use_threads(n)
    assert os.environ == {"TF_NUM_INTRAOP_THREADS": within, "TF_NUM_INTEROP_THREADS": across}


def test_threads_are_those_of_tensorflow(tmp_path, monkeypatch):
    """Which chooses them itself for 0, and knows no limit of a container."""
    monkeypatch.setattr(background, "CPU_LIMIT", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text("100000 100000")
    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 0)
    for given, n in (("0", background.n_visible_cores()), ("7", 7)):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", given)
        assert on_tensorflow.threads_of_an_operation() == n


def test_commands_keep_threads_of_environment(monkeypatch):
    monkeypatch.setattr(os, "environ", {"TF_NUM_INTRAOP_THREADS": "7"})
    process.choose_tensorflow()
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "7"


# --- settings of Keras ----------------------------------------------------------------------------


CODE = """
import os
from bilm.cli.process import import_tensorflow
from bilm.io.background import n_cores
import_tensorflow()
import tensorflow
assert not tensorflow.config.experimental.tensor_float_32_execution_enabled()
assert os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] == 'true'
assert os.environ['TF_NUM_INTRAOP_THREADS'] == str((n_cores() + 1) // 2)
from bilm import LanguageModel
from tests.helpers import small_options
model = LanguageModel(small_options(n_tokens_vocab=30))
assert {weight.dtype for weight in model.weights} == {model.dtype} == {"float32"}, model.weights
"""


def with_settings(code, tmp_path, floatx, backend):
    write_json(tmp_path / "keras.json", {"floatx": floatx, "image_data_format": "channels_first"})
    return python("-c", code, KERAS_HOME=str(tmp_path), KERAS_BACKEND=backend)


@pytest.mark.slow
def test_import_is_quiet_and_ignores_floatx(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    done = with_settings(CODE, tmp_path, "float64", "non\x1bsense")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        r"KERAS_BACKEND='non\x1bsense' is ignored: the command runs on TensorFlow",
        "Keras' floatx float64 is ignored: a biLM's weights are float32",
    ]


@pytest.mark.parametrize(
    ("group", "limit"),
    [
        ("0::/job/step", "job/memory.max"),
        ("4:memory:/a", "memory/memory.limit_in_bytes"),
        ("3:cpu:/a", "none"),
    ],
    ids=["version 2", "version 1", "no limit"],
)
def test_memory_bytes_reads_control_group(tmp_path, group, limit):
    (tmp_path / limit).parent.mkdir(exist_ok=True)
    (tmp_path / limit).write_text("1000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "groups").write_text(f"1:name=systemd:/\n{group}\n")
    found = settings.memory_bytes(str(tmp_path / "groups"), str(tmp_path))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found == (machine if limit == "none" else 1_000_000)
    (tmp_path / "memory.max").write_text("2000000\n")  # of a group around it
    assert settings.memory_bytes(str(tmp_path / "groups"), str(tmp_path)) == found


def test_import_out_of_memory_is_named(tmp_path):
    (tmp_path / "keras.py").write_text("raise ImportError('tf.so: failed to map segment from shared object')")
    done = python("-c", "import bilm; bilm.Elmo", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.stderr.endswith(
        "(tf.so: failed to map segment from shared object); is memory limited (ulimit -v)?\n"
    )


def test_missing_backend_is_named(tmp_path, monkeypatch):
    code = """
import bilm
from bilm.errors import BilmError
try:
    bilm.Elmo
except BilmError as error:
    print(error)
bilm.batch_to_ids([["a"]])
import os
assert not {"TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"} & os.environ.keys(), "left"
"""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    done = with_settings(code, tmp_path, "float32", "nonsense")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "Keras cannot be imported (Unable to import backend : nonsense); set the environment variable "
        "KERAS_BACKEND to tensorflow, torch or jax before Keras is imported\n"
    )


def test_several_models_warn_of_no_retracing(caplog):
    signature = [tf.TensorSpec([], tf.float32)]
    for number in range(7):
        assert on_tensorflow.traced_once(lambda x, number=number: x + number, signature)(1.0) == 1.0 + number
    assert "retracing" not in caplog.text
