"""`Elmo` as a module of PyTorch."""

import pytest

from tests.helpers import python


@pytest.mark.slow
def test_elmo_is_a_module_as_users_of_pytorch_know_them():
    pytest.importorskip("torch")
    words = ("-m", "pytest", "-p", "no:cacheprovider", "tests/backend/torch_module.py")
    done = python(*words, KERAS_BACKEND="torch")
    assert done.returncode == 0, done.stdout
