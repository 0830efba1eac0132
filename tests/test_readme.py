"""The commands and the code of the README do what it says."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bilm.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHAR = ROOT / "tests" / "golden" / "char"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
# What the code prints, among other things.
PRINTED = ["302 sentences", "(Elmo)", "(3, 2, 128)", "(2, 3, 3, 128) (2, 3, 128)", "(2, 3, 128) (2, 3)"]
# Smaller numbers, for the sake of the time a test takes.
REDUCED = {
    "--max-steps 500": "--max-steps 4",
    "--max-steps 100": "--max-steps 2",
    "--preset small": "--preset tiny",
}


def blocks(language):
    return [content for kind, content in BLOCKS if kind == language]


def invoke(command):
    result = CliRunner().invoke(main, shlex.split(command)[1:])
    assert result.exit_code == 0, (command, result.output, result.exception)


def run_line(line, directory):
    """Run a line of a console block; the directory after it."""
    if match := re.fullmatch(r"mkdir (\w+) && cd \1", line):
        (directory / match[1]).mkdir()
        return directory / match[1]
    if line.startswith("python ../examples/"):
        _, script, *arguments = shlex.split(line)
        small = ["--source", f"{ROOT / 'bilm'}/", "--heldout-fraction", "0.1"]
        subprocess.run(
            [sys.executable, ROOT / script.removeprefix("../"), *arguments, *small], cwd=directory, check=True
        )
        return directory
    for number, reduced in REDUCED.items():
        line = line.replace(number, reduced)
    assert line.startswith("bilm "), f"no way to run {line}"
    invoke(line)
    return directory


@pytest.mark.slow
def test_everything_from_top_to_bottom(tmp_path, monkeypatch, capsys):
    """All console and Python blocks, each after those above it, with a raw text to begin with."""
    monkeypatch.chdir(tmp_path)
    directory, n_python = tmp_path, 0
    for language, content in BLOCKS:
        if language == "python":
            if not n_python:
                (directory / "raw").mkdir()
                for name in ("train.txt", "heldout.txt"):
                    text = (CHAR / name).read_text(encoding="utf-8").replace("\n", " ")
                    (directory / "raw" / name).write_text(f"{text}\n\nFinis\n", encoding="utf-8")
            capsys.readouterr()
            exec(compile(content, "README.md", "exec"), {})
            assert PRINTED[n_python] in capsys.readouterr().out
            n_python += 1
        elif language == "console":
            for line in content.splitlines():
                if line.startswith("make "):
                    continue  # see below
                directory = run_line(line, directory)
                monkeypatch.chdir(directory)
    assert n_python == len(PRINTED)
    assert json.loads((directory / "options.json").read_text())["char_cnn"]["n_characters"] == 262
    for name in ("weights.hdf5", "embeddings.hdf5", "vectors.hdf5", "curves.svg", "served", "tuned"):
        assert (directory / name).exists(), name


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)$", "\n".join(blocks("console")), re.MULTILINE)
    assert targets == ["demo", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.fixture
def cluster(tmp_path):
    """Run a script where `srun` only runs its command and `scontrol` tells what it was asked."""

    def run(script, bilm, **variables):
        binaries = tmp_path / "bin"
        binaries.mkdir(exist_ok=True)
        programs = {
            "srun": 'exec "$@"',
            "scontrol": '[ "$1" = show ] && printf "node0\\nnode1\\n" || echo scontrol "$@"',
            "bilm": bilm,
        }
        for name, text in programs.items():
            (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
            (binaries / name).chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SLURM_JOB_ID": "17",
            **variables,
        }
        return subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


@pytest.mark.slow
def test_the_job_of_a_cluster(cluster, tmp_path):
    script = blocks("bash")[0]
    (tmp_path / "mine" / "train").mkdir(parents=True)
    for source, target in [("train", "train/text"), ("heldout", "heldout"), ("vocab", "vocab")]:
        (tmp_path / "mine" / f"{target}.txt").write_bytes((CHAR / f"{source}.txt").read_bytes())
    assert "--preset small" in script
    command = f'exec "{sys.executable}" -m bilm "$@"'
    done = cluster(script.replace("--preset small", "--preset tiny --max-time 3s"), command)
    assert (tmp_path / "job" / "checkpoint").exists(), done.stderr
    assert done.stdout.endswith("scontrol requeue 17\n"), done.stdout
    done = cluster(script, 'echo "$@"')
    assert done.stdout.startswith("train --preset small --resume ") and "scontrol" not in done.stdout


def test_the_workers_of_a_cluster(cluster):
    script = blocks("bash")[1] + 'echo "$TF_CONFIG"'
    done = cluster(script, "", SLURM_JOB_NODELIST="node[0-1]", SLURM_PROCID="1")
    assert json.loads(done.stdout) == {
        "cluster": {"worker": ["node0:9000", "node1:9000"]},
        "task": {"type": "worker", "index": 1},
    }
    assert len(blocks("bash")) == 2


def flags_of(command):
    return {
        flag
        for parameter in command.params
        for flag in [*parameter.opts, *parameter.secondary_opts]
        if flag.startswith("--")
    } | {"--help"}


def test_flags_that_are_mentioned_exist():
    commands = [*main.commands.values(), *main.commands["vocab"].commands.values()]
    known = set().union(*map(flags_of, commands))
    for benchmark in (ROOT / "tests" / "benchmarks").glob("*.py"):
        known |= set(re.findall(r"--[a-z-]+", benchmark.read_text()))
    theirs = r"(?<=^\|)[^|]*(?=\|)"  # the first column of tables
    text = re.sub(theirs, "", PROSE[PROSE.index("## Coming from AllenNLP") :], flags=re.MULTILINE)
    text += PROSE[: PROSE.index("## Coming from AllenNLP")]
    for flag in set(re.findall(r"(?<!\w)--[a-z][a-z_-]+", text)):
        assert flag.replace("_", "-") in known, flag


def test_commands_within_a_sentence_have_the_flags_they_are_given():
    inline = re.findall(r"`bilm ([a-z][^`]*)`", PROSE)
    assert len(inline) > 10
    for text in inline:
        name, *words = shlex.split(text)
        command = main.commands[name]
        if name == "vocab" and words:
            command = command.commands[words[0]]
        for word in words:
            assert not word.startswith("--") or word in flags_of(command), text


@pytest.mark.parametrize("script", ["train_elmo", "restart", "run_test", "dump_weights"])
def test_flags_of_the_old_scripts(script):
    row = re.search(rf"^\| `bin/{script}.py ([^`]*)`", README, re.MULTILINE)
    verb = {"train_elmo": "train", "run_test": "test", "dump_weights": "dump-weights"}.get(script, script)
    source = (ROOT / "bin" / f"{script}.py").read_text()
    assert f'"{verb}"' in source
    for flag in row[1].split():
        assert flag.replace("_", "-") in flags_of(main.commands[verb]), flag


def test_what_is_said_of_allennlp(tmp_path):
    from bilm import Elmo, ElmoEmbedder, batch_to_ids

    files = (CHAR / "options.json", CHAR / "weights.hdf5")
    words = ["First", "sentence", "."]
    elmo = Elmo(*files)
    elmo.build(None)
    elmo.mixes[0].layer_weights.assign([-9e10, 1, -9e10])
    elmo.mixes[0].trainable = False
    assert not elmo.trainable_weights
    embedder = ElmoEmbedder(*files, batch_size=2)
    vectors = embedder.embed_sentence(words)
    np.testing.assert_allclose(elmo(batch_to_ids([words]))[0], vectors[1], atol=1e-6)
    np.testing.assert_array_equal(embedder.embed_sentence(words), vectors)
    (tmp_path / "text").write_text("First sentence .\n\n")
    embedder.embed_file(tmp_path / "text", tmp_path / "out.hdf5", layers="top")
    assert ElmoEmbedder(*files, cuda_device=-1).embed_sentence(words).shape == vectors.shape


def test_names_that_are_imported_from_bilm_exist():
    import bilm
    from bilm import data
    from bilm.run_directory.directory import RunDirectory

    section = PROSE[PROSE.index("## Coming from bilm-tf") : PROSE.index("## Different on purpose")]
    ours = {
        name for name in re.findall(r"`([A-Za-z_]+)[`(]", section) if name in {*bilm.__all__, *data.__all__}
    }
    assert len(ours) > 10
    for name in ours:
        assert hasattr(bilm, name) or hasattr(data, name)
    run = RunDirectory.open(CHAR / "final")
    assert run.options.char_cnn and run.weights()


def test_links_lead_somewhere():
    headings = re.findall(r"^#+ (.*)$", PROSE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", PROSE):
        path, _, anchor = target.partition("#")
        if not path:
            assert anchor in anchors, target
        elif not path.startswith("https://") and (not path.startswith("docs/") or (ROOT / "docs").is_dir()):
            assert (ROOT / path).exists(), target


def test_parameters_of_the_presets():
    from bilm.options import PRESETS
    from bilm.weights.names import weight_names

    for name, options in PRESETS.items():
        millions = re.search(rf"^\| `{name}`.*?\| ([\d.]+) M \|", README, re.MULTILINE)
        n_parameters = sum(_product(weight.shape) for weight in weight_names(options))
        assert float(millions[1]) == round(n_parameters / 1e6, 1), (name, n_parameters)


def _product(shape):
    total = 1
    for size in shape:
        total *= size
    return total
