"""Commands where XLA does not work, and with --no-xla."""

import numpy as np
import pytest

from tests.checks import fail_to_compile
from tests.helpers import GOLDEN, checkpoint_arrays, newest, refuse, run, train_command

CHAR = GOLDEN / "char"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("trained", "smallest_file"),
        pytest.param("trained_whole", "small_file", marks=pytest.mark.slow),
    ],
)
def test_training_gives_the_same_and_is_resumed_only_as_it_began(
    kind, options, tmp_path, request, monkeypatch, caplog
):
    trained, options = request.getfixturevalue(kind), request.getfixturevalue(options)()
    directory = tmp_path / "run"
    train = train_command(directory, options, "--seed", 7, "--resume", "--max-steps")
    fail_to_compile(monkeypatch, "no libdevice")
    run(*train, 2)
    ours = [record.message for record in caplog.records if record.name.startswith("bilm")]
    assert [message[:18] for message in ours] == ["XLA cannot compile"]
    compiled, plain = (checkpoint_arrays(newest(path)) for path in (trained.path, directory))
    for name, array in compiled.items():
        np.testing.assert_allclose(plain[name], array, atol=1e-5, err_msg=name)
    monkeypatch.undo()
    assert "cannot be resumed with XLA (false to true)" in refuse(*train, 3)
    assert "2 of 3 done" in run(*train, 3, "--no-xla")
