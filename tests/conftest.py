"""Fixtures of the whole suite."""

import gc
import os
import random
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bilm.options import PRESETS
from tests import helpers

# What a shell or a CI may have set.
_SET = "BILM_TRACEBACK COLUMNS TF_CONFIG TF_ENABLE_ONEDNN_OPTS TF_NUM_INTRAOP_THREADS"
for _name in _SET.split():
    os.environ.pop(_name, None)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before anything imports TensorFlow
# Tracing makes many objects that are no garbage: looking for some less often spares a tenth of the time.
gc.set_threshold(100_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def _products_are_float32() -> None:
    """On a GPU too, as in the commands."""
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(False)


def _seed() -> None:
    """Keras takes seeds that nobody gave from Python's generator; dropout on PyTorch draws from its own."""
    random.seed(1)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(1)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any) -> None:
    """What tests share draws the same whatever ran before it."""
    if fixturedef.scope != "function":
        _seed()


@pytest.fixture(autouse=True)
def _draws_are_the_same_in_each_run() -> None:
    _seed()


@pytest.fixture(scope="session", autouse=True)
def _golden_files_stay_as_they_are() -> Iterator[None]:
    before = helpers.snapshot(helpers.GOLDEN)
    yield
    assert helpers.snapshot(helpers.GOLDEN) == before


def _train(directory: Path, options: dict[str, Any]) -> Path:
    file = helpers.write_json(directory / "options.json", options)
    path = directory / "run"
    helpers.run(*helpers.train_command(path, file, "--max-steps", 2, "--seed", 7))
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of the smallest model; not to be changed, see `run_copy`."""
    return _train(tmp_path_factory.mktemp("trained"), helpers.smallest_options())


@pytest.fixture(scope="session")
def trained_whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short steps of the small model with every part; not to be changed."""
    return _train(tmp_path_factory.mktemp("trained_whole"), helpers.small_options(unroll_steps=1))


@pytest.fixture
def run_copy(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run that a test may damage."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def default_handlers() -> Iterator[None]:
    """Handlers of signals as in a process of its own, whatever the tests were started by."""
    default = dict.fromkeys((signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP), signal.SIG_DFL)
    default[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in default.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def tiny() -> Iterator[None]:
    """The preset of that name has a short window, which compiles fast."""
    with pytest.MonkeyPatch.context() as patched:
        short = {"unroll_steps": 3, "char_cnn.filters": [[1, 16], [2, 16]]}
        patched.setitem(PRESETS, "tiny", PRESETS["tiny"].with_values(short))
        yield


@pytest.fixture
def smallest_file(tmp_path: Path) -> Callable[..., Path]:
    """Write the options of the smallest model, with changes, to a file."""

    def write(**changes: object) -> Path:
        return helpers.write_json(tmp_path / "smallest.json", helpers.smallest_options(**changes))

    return write


def pytest_configure(config: pytest.Config) -> None:
    """Properties have no time limit and the same examples in each run.

    Quick tests have fewer examples, and XLA optimises less.
    """
    is_quick = config.getoption("markexpr") == "not slow"
    n_examples = 25 if is_quick else 100
    settings.register_profile(
        "bilm",
        max_examples=n_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize="NEW_EXAMPLES" not in os.environ,
    )
    settings.load_profile("bilm")
    if is_quick:
        os.environ.setdefault("XLA_FLAGS", "--xla_llvm_disable_expensive_passes=true")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name a case by words: a text's own, or its argument for bytes and lambdas."""
    if isinstance(val, str):
        return "-".join(re.findall(r"[\w.]+", val, re.ASCII))[:60] or argname
    is_nameless = isinstance(val, bytes) or getattr(val, "__name__", "") == "<lambda>"
    return argname if is_nameless else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What makes the quick tests quick, and the order of the files."""
    if config.getoption("markexpr") == "not slow" and "tensorflow" in sys.modules:
        # TensorFlow would rewrite every graph to make it faster, which takes longer than these graphs run.
        sys.modules["tensorflow"].config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    # Through layers, models and commands they take one golden variant.
    for item in items:
        variant = item.callspec.params.get("variant", "char") if hasattr(item, "callspec") else "char"
        if variant != "char" and {"cli", "layers", "models"} & {*item.path.parts}:
            item.add_marker(pytest.mark.slow)
    # The files with the most slow tests first, or one process would have such a file when all else is done.
    n_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -n_slow[item.path])
