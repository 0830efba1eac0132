"""Bad input: one clear message, exit status 1 or 2, and nothing left behind."""

import gc
import shutil
import subprocess

import pytest

from tests.helpers import GOLDEN, HELDOUT, TRAIN, VOCAB, invoke, refuse, run, snapshot, train_command


@pytest.fixture
def refused(tmp_path, smallest_file):
    """Try to train; the message, after a look at what is left."""

    def train(*flags, status=1):
        command = train_command(tmp_path / "run", smallest_file(), "--max-steps", 1, *flags)
        before = snapshot(tmp_path)
        message = refuse(*command, status=status)
        assert snapshot(tmp_path) == before
        return message

    return train


@pytest.mark.parametrize(
    ("flags", "message", "status"),
    [
        pytest.param(("--set", "lstm.dimm=3"), "lstm.dimm: unrecognised option, did you mean", 1, id="key"),
        pytest.param(("--preset", "tiny"), "--preset and --options exclude each other", 2, id="preset"),
        pytest.param(("--eval-every", 5), "--eval-every needs --heldout-prefix", 2, id="no-heldout"),
        pytest.param(("--jit", "--no-xla"), "--jit needs XLA", 1, id="no-xla"),
        pytest.param(("--set", "n_tokens_vocab=80"), "has 73 words, but the options say ", 1, id="size"),
        pytest.param(("--n-train-tokens", "5"), "an epoch of 5 tokens is less than one batch", 1, id="epoch"),
    ],
)
def test_flags_that_make_no_sense(refused, flags, message, status):
    assert message in refused(*flags, status=status)


# --- where it cannot be written -----------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path):
    """A mounted file system of a few kilobytes; only root may."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=131072", "bilm-test", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs here")
    yield path
    gc.collect()  # readers of its files that are in no use any more
    subprocess.run(["umount", str(path)], check=True)


def test_a_disk_full_later_keeps_the_checkpoint_before(tiny_disk, trained):
    save_dir = shutil.copytree(trained.path, tiny_disk / "run")
    (tiny_disk / "ballast").write_bytes(bytes(shutil.disk_usage(tiny_disk).free - 20480))
    before = {name: data for name, data in snapshot(save_dir).items() if not name.endswith(".jsonl")}
    message = refuse("restart", "--train-prefix", TRAIN, "--save-dir", save_dir, "--max-steps", 1)
    assert message == f"{save_dir / 'model.ckpt-3'}: cannot be written: No space left on device"
    assert snapshot(save_dir).items() >= before.items() and not list(save_dir.glob("*ckpt-3*"))
    message = refuse("dump-weights", "--save-dir", save_dir, "--outfile", tiny_disk / "w.hdf5")
    assert message == f"{tiny_disk / 'w.hdf5'}: cannot be written: No space left on device"
    assert not (tiny_disk / "w.hdf5").exists()
    run("test", "--test-prefix", HELDOUT, "--save-dir", save_dir)


def test_an_interrupt_before_the_first_checkpoint_leaves_nothing(tmp_path, smallest_file, monkeypatch):
    save_dir = tmp_path / "deep" / "run"

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("bilm.runs.loop.training_steps", interrupted)
    result = invoke(*train_command(save_dir, smallest_file()))
    assert result.exit_code == 1 and "Aborted!" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["smallest.json"]


# --- runs ---------------------------------------------------------------------------------------------


def test_a_restart_cannot_change_the_model():
    flags = ("--set", "lstm.dim=16", "--set", "bidirectional=false")
    of = ("--save-dir", GOLDEN / "char" / "final", "--vocab-file", VOCAB)
    message = refuse("restart", "--train-prefix", TRAIN, *of, *flags)
    assert message.startswith("a restart cannot change lstm.dim (24 to 16), bidirectional (true to false);")


def test_addresses_are_no_files(tmp_path):
    address = "https://example.org/elmo/options.json"
    message = refuse("embed", TRAIN, tmp_path / "o.hdf5", "--options-file", address, status=2)
    assert f"{address} is a URL; download it and give the path of the file" in message
