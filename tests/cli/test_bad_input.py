"""Bad input: one clear message, exit status 1 or 2, and nothing left behind."""

from __future__ import annotations

import gc
import shutil
import subprocess

import pytest

from tests.helpers import (
    GOLDEN,
    HELDOUT,
    TRAIN,
    VOCAB,
    invoke,
    refuse,
    run,
    snapshot,
    train_command,
)


@pytest.fixture
def refused(tmp_path, smallest_file):
    """Try to train; the message, after a look at what is left."""

    def train(*flags, save_dir=None, status=1, **inputs):
        save_dir = save_dir or tmp_path / "run"
        command = train_command(save_dir, smallest_file(), "--max-steps", 1, *flags, **inputs)
        before = snapshot(tmp_path)
        message = refuse(*command, status=status)
        assert snapshot(tmp_path) == before
        return message

    return train


def test_a_fault_in_a_later_shard_is_found_before_anything_is_written(refused, tmp_path):
    (tmp_path / "shard-0").write_bytes(TRAIN.read_bytes())
    (tmp_path / "shard-1").write_bytes(b"fine\nfine\n\xff\xff\n")
    assert refused(text=tmp_path / "shard-*").startswith(f"{tmp_path / 'shard-1'}: line 3: not UTF-8")


def test_a_vocabulary_that_cannot_be_used(refused, tmp_path):
    (tmp_path / "vocab.txt").write_text("the\ncat\n")
    message = refused(vocab=tmp_path / "vocab.txt")
    assert message.startswith(f"{tmp_path / 'vocab.txt'}: missing special tokens: <S>, </S>, <UNK>")


@pytest.mark.parametrize(
    ("flags", "message", "status"),
    [
        pytest.param(
            ("--set", "lstm.dimm=3"), "lstm.dimm: unrecognised option, did you mean lstm.dim?", 1, id="key"
        ),
        pytest.param(("--preset", "tiny"), "--preset and --options exclude each other", 2, id="preset"),
        pytest.param(("--eval-every", 5), "--eval-every needs --heldout-prefix", 2, id="no-heldout"),
        pytest.param(("--n-gpus", "4"), "--n-gpus 4: TensorFlow finds ", 1, id="gpus"),
        pytest.param(("--jit", "--no-xla"), "--jit needs XLA", 1, id="no-xla"),
        pytest.param(("--set", "n_tokens_vocab=80"), "has 73 words, but the options say ", 1, id="size"),
        pytest.param(
            ("--n-train-tokens", "5"),
            "--n-train-tokens makes an epoch of 5 tokens, less than one batch",
            1,
            id="short-epoch",
        ),
    ],
)
def test_flags_that_make_no_sense(refused, flags, message, status):
    assert message in refused(*flags, status=status)


# --- where it cannot be written -----------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path):
    """Mount a file system of a few kilobytes; only root may."""
    mounted = []

    def mount(n_bytes):
        path = tmp_path / "disk"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "bilm-test", str(path)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("cannot mount a small tmpfs here")
        mounted.append(path)
        return path

    yield mount
    gc.collect()  # readers of its files that are in no use any more
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def test_a_disk_full_later_keeps_the_checkpoint_before(tiny_disk, trained):
    disk = tiny_disk(131072)
    save_dir = shutil.copytree(trained.path, disk / "run")
    free = shutil.disk_usage(disk).free
    (disk / "ballast").write_bytes(bytes(free - 20480))
    before = {
        name: data for name, data in snapshot(save_dir).items() if not name.endswith((".jsonl", "files.txt"))
    }
    message = refuse("restart", "--train-prefix", TRAIN, "--save-dir", save_dir, "--max-steps", 1)
    assert message == f"{save_dir / 'model.ckpt-3'}: cannot be written: No space left on device"
    assert snapshot(save_dir).items() >= before.items() and not list(save_dir.glob("*ckpt-3*"))
    message = refuse("dump-weights", "--save-dir", save_dir, "--outfile", disk / "w.hdf5")
    assert message == f"{disk / 'w.hdf5'}: cannot be written: No space left on device"
    assert not (disk / "w.hdf5").exists()
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


def test_a_truncated_checkpoint(run_copy, tmp_path):
    """The same message from every command that reads one, and the run stays as it was."""
    data = run_copy / "model.ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    before = snapshot(tmp_path)
    of_run = ("--save-dir", run_copy)
    messages = {
        refuse("test", "--test-prefix", HELDOUT, *of_run),
        refuse("restart", "--train-prefix", TRAIN, *of_run, "--max-steps", 1),
        refuse("dump-weights", *of_run, "--outfile", tmp_path / "w.hdf5"),
    }
    assert snapshot(tmp_path) == before and len(messages) == 1
    assert messages.pop().startswith(f"{run_copy / 'model.ckpt-2'}: damaged, or not a checkpoint")


def test_a_restart_cannot_change_the_model():
    flags = ("--set", "lstm.dim=16", "--set", "bidirectional=false", "--set", "char_cnn.filters=[[1,8]]")
    of = ("--save-dir", GOLDEN / "char" / "final", "--vocab-file", VOCAB)
    message = refuse("restart", "--train-prefix", TRAIN, *of, *flags)
    assert message == (
        "a restart cannot change lstm.dim (24 to 16), "
        "char_cnn.filters ([[1, 4], [2, 8], [3, 16], [4, 16]] to [[1, 8]]), "
        "bidirectional (true to false); train a new run instead"
    )


@pytest.mark.slow
def test_a_model_too_large_for_the_memory(refused):
    size = 1 << 20
    message = refused("--set", f"lstm.dim={size}", "--set", f"lstm.projection_dim={size}")
    assert message.startswith("not enough memory; a smaller batch, preset or vocabulary needs less")


def test_addresses_are_no_files(tmp_path):
    address = "https://example.org/elmo/options.json"
    message = refuse("embed", TRAIN, tmp_path / "o.hdf5", "--options-file", address, status=2)
    assert f"{address} is a URL; download it and give the path of the file" in message
