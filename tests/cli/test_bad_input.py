"""Bad input: one clear message, exit status 1 or 2, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess

import h5py
import pytest

from tests.helpers import (
    GOLDEN,
    HELDOUT,
    TRAIN,
    VOCAB,
    checkpoint_arrays,
    invoke,
    newest,
    refuse,
    run,
    snapshot,
    train_command,
    write_json,
)


@pytest.fixture
def refused(tmp_path, smallest_file):
    """Try to train; the message, after a look at what is left."""

    def train(*flags, text=TRAIN, vocab=VOCAB, options=None, save_dir=None, status=1):
        save_dir = save_dir or tmp_path / "run"
        options = options or smallest_file()
        before = snapshot(tmp_path)
        command = train_command(save_dir, options, "--max-steps", 1, *flags, text=text, vocab=vocab)
        message = refuse(*command, status=status)
        assert snapshot(tmp_path) == before
        assert not (tmp_path / "run").is_dir()
        return message

    return train


@pytest.fixture
def write(tmp_path):
    def write_bytes(content, name="text.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_bytes


# --- text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"\n \n\n", "no words in {path}: the corpus is empty", id="blank"),
        pytest.param(b"fine\nna\xefve\n", "{path}: line 2: not UTF-8 (byte 0xef: ", id="not-utf8"),
        pytest.param(
            b"a b\n",
            "the text has 3 tokens, less than one batch of 2 rows x 3 steps (6); give more text or",
            id="short",
        ),
    ],
)
def test_text_that_cannot_be_used(refused, write, content, message):
    path = write(content)
    assert refused(text=path).startswith(message.format(path=path))


def test_text_that_is_not_there(refused, tmp_path):
    pattern = tmp_path / "no-*.txt"
    assert refused(text=pattern).startswith(f"no file matches '{pattern}'")
    (tmp_path / "empty").mkdir()
    assert refused(text=tmp_path / "empty").startswith(f"no file matches '{tmp_path / 'empty'}'")


def test_a_fault_in_a_later_shard_is_found_before_anything_is_written(refused, write, tmp_path):
    write(TRAIN.read_bytes(), "shard-0")
    bad = write(b"fine\nfine\n\xff\xff\n", "shard-1")
    assert refused(text=tmp_path / "shard-*").startswith(f"{bad}: line 3: not UTF-8")


def test_line_ends_byte_order_mark_and_blank_lines_change_nothing(trained, write):
    """Train, test and vocabulary count the same sentences."""
    lines = HELDOUT.read_text().splitlines()
    plain = write("\n".join(lines), "plain")
    odd = write("\ufeff" + "\r\n\r\n".join([*lines[:30], "  ", *lines[30:]]) + "\r\n", "odd")
    outputs = []
    for path in (plain, odd):
        tested = run("test", "--test-prefix", path, "--save-dir", trained.path, "--json")
        built = run("vocab", "build", "--train-prefix", path, "--outfile", path.with_suffix(".vocab"))
        for output in (tested, built):
            assert ("(61 blank lines skipped)" in output) == (path == odd)
        built = built.replace(str(path), "").replace(" (61 blank lines skipped)", "")
        outputs.append((tested.splitlines()[-1], built))
    assert outputs[0] == outputs[1]
    assert plain.with_suffix(".vocab").read_bytes() == odd.with_suffix(".vocab").read_bytes()


def test_nul_bytes_are_told_of(trained, write):
    path = write("a fine line\nand a\0 byte\n")
    output = run("test", "--test-prefix", path, "--save-dir", trained.path)
    assert f"warning: 1 NUL byte in the text, first at {path} line 2" in output


@pytest.mark.slow
def test_a_token_of_100_000_characters(tmp_path, write, small_file):
    text = write("short " + "x" * 100_000 + " \u20ac" * 8 + "\n")
    run("vocab", "build", "--train-prefix", text, "--outfile", tmp_path / "vocab")
    options = small_file(bidirectional=False, lstm={"n_layers": 1})
    run(*train_command(tmp_path / "run", options, "--max-steps", 1, text=text, vocab=tmp_path / "vocab"))
    result = run("test", "--test-prefix", text, "--save-dir", tmp_path / "run", "--json")
    assert json.loads(result.splitlines()[-1])["tokens"] == 11


# --- vocabulary -------------------------------------------------------------------------------------


def test_a_vocabulary_that_cannot_be_used(refused, write):
    path = write("the\ncat\n", "vocab.txt")
    assert refused(vocab=path).startswith(f"{path}: missing special tokens: <S>, </S>, <UNK>")


def test_a_vocabulary_that_is_not_there(refused, tmp_path):
    path = tmp_path / "none"
    assert refused(vocab=path) == f"{path}: No such file or directory"


def test_a_vocabulary_of_another_size_than_the_options_say(refused, smallest_file):
    message = refused(options=smallest_file(n_tokens_vocab=80))
    assert message == f"{VOCAB}: has 73 words, but the options say n_tokens_vocab 80"


def test_a_vocabulary_with_line_ends_of_windows_is_the_same(trained, write):
    odd = write("\ufeff" + VOCAB.read_text().replace("\n", "\r\n"), "vocab")
    run("test", "--test-prefix", HELDOUT, "--save-dir", trained.path, "--vocab-file", odd)


# --- options ----------------------------------------------------------------------------------------


def test_options_that_cannot_be_read(refused, write, tmp_path):
    path = write("{lstm: 3}", "options.json")
    assert refused(options=path).startswith(f"{path}: not JSON: ")
    path = tmp_path / "none.json"
    assert refused(options=path) == f"{path}: No such file or directory"


def test_every_problem_of_the_options_is_in_one_message(refused, smallest_file):
    found = refused(options=smallest_file(dropout=2, lstm={"dim": 2}, unrol_steps=3))
    assert found.splitlines()[1:] == [
        "  dropout: must be below 1, got 2",
        "  lstm.projection_dim (4) must not exceed lstm.dim (2); make them equal for no projection",
        "  unrol_steps: unrecognised option, did you mean unroll_steps?",
    ]


@pytest.mark.parametrize(
    ("flags", "message", "status"),
    [
        pytest.param(
            ("--set", "lstm.dimm=3"),
            "lstm.dimm: unrecognised option, did you mean lstm.dim?",
            1,
            id="unknown-key",
        ),
        pytest.param(
            ("--set", "lstm.dim=big"), 'lstm.dim: expected an integer, got "big"', 1, id="wrong-type"
        ),
        pytest.param(("--set", "lstm=" + "[" * 5000), "lstm: expected an object, got", 1, id="deep"),
        pytest.param(("--set", "lstm.dim"), "'lstm.dim' is not KEY=VALUE", 2, id="no-value"),
        pytest.param(("--set", "=3"), "'=3' is not KEY=VALUE", 2, id="no-key"),
        pytest.param(("--learning-rate", "nan"), "learning_rate: expected a number, got NaN", 1, id="nan"),
        pytest.param(("--preset", "tiny"), "--preset and --options exclude each other", 2, id="preset"),
        pytest.param(("--n-gpus", "4"), "--n-gpus 4: TensorFlow finds ", 1, id="gpus"),
        pytest.param(
            ("--batch-size", "1000", "--n-train-tokens", "9000"),
            "the text has 2,890 tokens, less than one batch of 1000 rows",
            1,
            id="large-batch",
        ),
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


def test_a_preset_that_does_not_exist(tmp_path):
    message = refuse("train", "--preset", "huge", "--save-dir", tmp_path / "run", status=2)
    assert "'huge' is not one of 'original', 'medium', 'small', 'tiny'" in message


# --- run directory ----------------------------------------------------------------------------------


def test_a_directory_that_holds_a_run(refused, trained):
    before = snapshot(trained.path)
    message = refused(save_dir=trained.path)
    assert message.startswith(f"{trained.path}: already holds a run; continue it with `bilm restart`")
    assert snapshot(trained.path) == before


def test_a_directory_that_cannot_be(refused, write):
    path = write("", "file")
    assert refused(save_dir=path) == f"{path}: cannot be written: File exists"
    assert refused(save_dir=path / "run") == f"{path / 'run'}: cannot be written: Not a directory"


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs a directory that even root cannot write")
def test_a_directory_without_permission(refused, trained, tmp_path):
    message = refused(save_dir="/proc/none/run")
    assert message.startswith("/proc/none/run: cannot be written: ")
    outfile = "/proc/none.hdf5"
    message = refuse("dump-weights", "--save-dir", trained.path, "--outfile", outfile)
    assert message.startswith("/proc/none.hdf5: cannot be written: ")


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


def test_a_disk_full_at_the_first_checkpoint(tiny_disk, smallest_file):
    disk = tiny_disk(28672)
    message = refuse(*train_command(disk / "run", smallest_file(), "--max-steps", 1))
    assert message.startswith(f"{disk / 'run'}: its records cannot be written: ")
    assert "No space left on device" in message
    assert list(disk.iterdir()) == []


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


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--compression", "gzip")])
def test_a_disk_full_of_embeddings_keeps_what_was_written(tiny_disk, tmp_path, monkeypatch, flags):
    disk = tiny_disk(3 << 19)
    monkeypatch.setattr("bilm.embedding.hdf5_output._PART_BYTES", 1 << 18)
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{HELDOUT.read_text()}{i}\n" for i in range(15)))
    options_file, weight_file = (HELDOUT.with_name(name) for name in ("options.json", "weights.hdf5"))
    model = ("--options-file", options_file, "--weight-file", weight_file, "--batch-tokens", 256, *flags)
    outfile = disk / "out.hdf5"
    full = f"{outfile}: cannot be written: No space left on device"
    assert refuse("embed", text, outfile, *model) == full
    parts = disk / "out.hdf5.parts"
    assert len(list(parts.glob("part-*.hdf5"))) > 1 and not list(parts.glob("*.tmp"))
    assert refuse("embed", text, outfile, *model, "--resume") == full
    shutil.move(parts, tmp_path)  # where there is room
    run("embed", text, tmp_path / "out.hdf5", *model, "--resume")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert len(file) == 15 * 61 + 1


def test_an_interrupt_before_the_first_checkpoint_leaves_nothing(tmp_path, smallest_file, monkeypatch):
    save_dir = tmp_path / "deep" / "run"

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("bilm.runs.loop.training_steps", interrupted)
    result = invoke(*train_command(save_dir, smallest_file()))
    assert result.exit_code == 1 and "Aborted!" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["smallest.json"]


# --- checkpoints ------------------------------------------------------------------------------------


def commands(save_dir, tmp_path):
    """Every command that reads a checkpoint."""
    return [
        ("test", "--test-prefix", HELDOUT, "--save-dir", save_dir),
        ("restart", "--train-prefix", TRAIN, "--save-dir", save_dir, "--max-steps", 1),
        ("dump-weights", "--save-dir", save_dir, "--outfile", tmp_path / "w.hdf5"),
    ]


def refuse_everywhere(save_dir, tmp_path):
    """The message of each command, which must all be the same and leave the run as it was."""
    before = snapshot(tmp_path)
    messages = {refuse(*command) for command in commands(save_dir, tmp_path)}
    assert snapshot(tmp_path) == before
    assert len(messages) == 1, messages
    return messages.pop()


def test_a_truncated_checkpoint(run_copy, tmp_path):
    data = run_copy / "model.ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    message = refuse_everywhere(run_copy, tmp_path)
    assert message.startswith(f"{run_copy / 'model.ckpt-2'}: damaged, or not a checkpoint")


def test_a_missing_index(run_copy, tmp_path):
    (run_copy / "model.ckpt-2.index").unlink()
    assert refuse_everywhere(run_copy, tmp_path) == f"{run_copy / 'model.ckpt-2.index'}: no such checkpoint"


def test_a_state_file_of_garbage(run_copy, caplog):
    (run_copy / "checkpoint").write_bytes(b"\x00\xff garbage")
    run("test", "--test-prefix", HELDOUT, "--save-dir", run_copy)
    assert f"{run_copy / 'checkpoint'}: damaged; it must have a line model_checkpoint_path" in caplog.text
    assert f"using {run_copy / 'model.ckpt-2'} instead" in caplog.text


@pytest.mark.parametrize("dim", [16, 1 << 20])
def test_options_of_another_model(run_copy, tmp_path, dim):
    """Names and shapes, before a model of any size is made."""
    options = json.loads((run_copy / "options.json").read_text())
    options["lstm"]["dim"] = dim
    write_json(run_copy / "options.json", options)
    message = refuse_everywhere(run_copy, tmp_path)
    assert message.startswith(f"{run_copy / 'model.ckpt-2'} does not fit the options:\n")
    wanted = f"bias has (32,), the options need ({4 * dim},)\n"
    assert f"  misshapen: lm/rnn/lstm_cell/{wanted}" in message


def test_truncated_options_of_a_run(run_copy, tmp_path):
    (run_copy / "options.json").write_text('{"lstm": {')
    assert refuse_everywhere(run_copy, tmp_path).startswith(f"{run_copy / 'options.json'}: not JSON: ")


def test_options_of_inference_in_a_run(run_copy, tmp_path):
    run("dump-weights", "--save-dir", run_copy, "--outfile", tmp_path / "dumped.hdf5")
    shutil.copy(tmp_path / "options.json", run_copy / "options.json")
    message = refuse_everywhere(run_copy, tmp_path)
    assert message.startswith(f"{run_copy}: not a run directory: its options.json goes with dumped weights")


def test_a_directory_that_is_no_run(tmp_path):
    assert refuse_everywhere(tmp_path / "none", tmp_path) == (
        f"{tmp_path / 'none'}: not a run directory: no such directory"
    )
    (tmp_path / "mine").mkdir()
    assert refuse_everywhere(tmp_path / "mine", tmp_path).endswith(
        "no options.json in it; weights are given as --model"
    )


def test_a_vocabulary_other_than_the_runs(trained, write):
    words = VOCAB.read_text().split()
    other = write("\n".join([*words[:5], "new", *words[6:]]) + "\n", "other")
    for command in ("restart", "--train-prefix"), ("test", "--test-prefix"):
        message = refuse(*command, HELDOUT, "--save-dir", trained.path, "--vocab-file", other)
        assert message.startswith(
            f"the vocabulary is not the one of the run in {trained.path}: 73 words instead of 73; "
            f"first difference at line 6: 'new' instead of {words[5]!r}"
        )
        assert message.endswith("; --remap-vocab carries the model over to another") == (
            command[0] == "restart"
        )


def test_a_copy_of_the_vocabulary_that_was_edited(run_copy, tmp_path):
    with (run_copy / "vocab.txt").open("a") as file:
        file.write("more\n")
    message = refuse_everywhere(run_copy, tmp_path)
    assert message == f"{run_copy / 'vocab.txt'}: changed since the run began; restore it"


def test_a_restart_cannot_change_the_model():
    flags = ("--set", "lstm.dim=16", "--set", "bidirectional=false", "--set", "char_cnn.filters=[[1,8]]")
    of = ("--save-dir", GOLDEN / "char" / "final", "--vocab-file", VOCAB)
    message = refuse("restart", "--train-prefix", TRAIN, *of, *flags)
    assert message == (
        "a restart cannot change lstm.dim (24 to 16), "
        "char_cnn.filters ([[1, 4], [2, 8], [3, 16], [4, 16]] to [[1, 8]]), "
        "bidirectional (true to false); train a new run instead"
    )


def test_a_restart_on_bad_text_changes_nothing(run_copy, write, tmp_path):
    bad = write(b"fine\n\xff\n")
    before = snapshot(tmp_path)
    message = refuse("restart", "--train-prefix", bad, "--save-dir", run_copy)
    assert message.startswith(f"{bad}: line 2: not UTF-8")
    assert snapshot(tmp_path) == before
    assert checkpoint_arrays(newest(run_copy))["global_step"] == 2


def test_missing_accumulators_are_mentioned_and_start_anew(run_copy, caplog):
    from bilm.run_directory.directory import RunDirectory
    from bilm.weights.checkpoint_file import write_checkpoint

    opened = RunDirectory.open(run_copy)
    write_checkpoint(run_copy / "model.ckpt-2", opened.names, opened.weights(), {}, 2, 1.0)
    run("restart", "--train-prefix", TRAIN, "--save-dir", run_copy, "--max-steps", 1)
    assert "model.ckpt-2: no state of the optimizer adagrad; it starts from scratch" in caplog.text
    assert checkpoint_arrays(newest(run_copy))["global_step"] == 3


@pytest.mark.slow
def test_a_model_too_large_for_the_memory(refused):
    size = 1 << 20
    message = refused("--set", f"lstm.dim={size}", "--set", f"lstm.projection_dim={size}")
    assert message.startswith("not enough memory; a smaller batch, preset or vocabulary needs less")


def test_addresses_are_no_files(tmp_path):
    address = "https://example.org/elmo/options.json"
    message = refuse("embed", TRAIN, tmp_path / "o.hdf5", "--options-file", address, status=2)
    assert f"{address} is a URL; download it and give the path of the file" in message
