"""Every command and every piece of code in the README and in docs/ does what the page says."""

import ast
import contextlib
import importlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bilm
from bilm.cli import main
from bilm.options import Options
from bilm.runs.settings import read_arguments
from tests import pages
from tests.helpers import CHAR, TRAIN, run, small_options, write_json
from tests.pages import ROOT
from tests.ray.local import local_ray

slow = pytest.mark.slow  # trains as a reader would

QUICK_START = "README.md"
# In the order in which a reader runs them, and what each leaves; all go on in one directory.
COURSE = {
    QUICK_START: ["weights.hdf5", "embeddings.hdf5"],
    "docs/training.md": ["mine/train/part-00000.txt", "mine/heldout.txt"],
    "docs/long-runs.md": ["curves.svg"],
    "docs/fine-tuning.md": ["tuned", "from-weights"],
    "docs/embedding.md": ["vectors.hdf5", "average.hdf5", "classifier.keras", "served"],
    "docs/file-formats.md": [],
}
ALONE = "docs/migrating.md"  # in a directory of its own, with the files that its reader has
ON_RAY = "docs/ray.md"  # with Ray, if it is installed
ON_BACKENDS = "docs/pytorch-and-jax.md"  # by tests/backend/test_other_backends.py
IN_LIBRARIES = "docs/plug-ins.md"  # with those that are installed
# Smaller numbers, for the sake of the time a test takes.
REDUCED = {
    "--max-steps 500": "--max-steps 4",
    "--max-steps 100": "--max-steps 2",
    "--preset small": "--preset tiny",
    "--preset laptop": "--preset tiny",
}
SCRIPTS = {"train_elmo": "train", "run_test": "test", "dump_weights": "dump-weights", "restart": "restart"}


def check_installation(line):
    """Such a command is not run, but what it names is there."""
    program, what = line.split(" ", 1)
    if program != "make":
        assert what in ("-m venv .venv", ".venv/bin/activate", "install .")
    else:
        assert re.search(rf"^{what}:", (ROOT / "Makefile").read_text(), re.M), line


def run_python(script, *words):
    """An example of the repository, or one of the scripts with bilm-tf's names."""
    if script.startswith("../examples/"):
        small = ["--source", f"{ROOT / 'bilm'}/", "--heldout-fraction", "0.1"]
        subprocess.run([sys.executable, ROOT / script.removeprefix("../"), *words, *small], check=True)
        return
    verb = SCRIPTS[Path(script).stem]
    assert f'"{verb}"' in (ROOT / script).read_text(encoding="utf-8")
    if verb == "train":
        words = (*words, "--options", "small.json", "--max-steps", "1")
    run(verb, *words)


def run_line(line, directory):
    """Run a line of a console block; the directory after it."""
    if match := re.fullmatch(r"mkdir (\w+) && cd \1", line):
        (directory / match[1]).mkdir()
        return directory / match[1]
    for number, reduced in REDUCED.items():
        line = line.replace(number, reduced)
    program, *words = shlex.split(line)
    if program in ("make", "pip", "python3", "source"):
        check_installation(line)
    elif program == "python":
        run_python(*words)
    elif program == "printf":
        subprocess.run(["bash", "-c", line], check=True)
    else:
        assert program == "bilm", f"no way to run {line}"
        run(*words)
    return directory


def run_code(code, page):
    """Run Python; a comment behind a call of `print` is what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), {})
    for expected in re.findall(r"^ *print\(.*\)  # (.+)$", code, re.M):
        assert expected in printed.getvalue().splitlines(), (code, printed.getvalue())


def run_block(language, code, page, directory):
    """Run a block of a page; the directory after it."""
    with contextlib.chdir(directory):
        if language == "python":
            run_code(code, page)
    for line in code.splitlines() if language == "console" else ():
        with contextlib.chdir(directory):
            directory = run_line(line, directory)
    return directory


@pytest.fixture(scope="module")
def course(tmp_path_factory, tiny):
    """The directory after all pages of the course, in the order of a reader."""
    directory = tmp_path_factory.mktemp("course")
    for page, left in COURSE.items():
        for language, code in pages.blocks(page):
            directory = run_block(language, code, page, directory)
        assert [name for name in left if not (directory / name).exists()] == [], page
        if page == QUICK_START:
            (directory / "raw").mkdir()
            for name in ("train.txt", "heldout.txt"):
                text = (CHAR / name).read_text(encoding="utf-8").replace("\n", "\n\n")
                (directory / "raw" / name).write_text(text, encoding="utf-8")
    return directory


@slow
def test_file_formats(course):
    part = pages.text("docs/file-formats.md").partition("## Run directory")[2].partition("### ")[0]
    names = [name for row in pages.rows(part) for name in re.findall(r"`([^`]+)`", row[0])]
    patterns = [re.escape(name).replace(r"\.\.\.", ".*").replace(r"\*", ".*") for name in names]
    known = re.compile("|".join(re.sub("-N", "-[0-9]+", pattern) for pattern in patterns))
    assert [path for path in (course / "watched").iterdir() if not known.fullmatch(path.name)] == []


@pytest.fixture(scope="module")
def migrant(tmp_path_factory):
    """What those have who come from bilm-tf and AllenNLP."""
    folder = tmp_path_factory.mktemp("migrating")
    for name in ("options.json", "weights.hdf5", "vocab.txt"):
        shutil.copyfile(CHAR / name, folder / name)
    shutil.copytree(CHAR / "final", folder / "checkpoint")
    for part, name in (("train", "train.txt"), ("heldout", "heldout.txt")):
        (folder / part).mkdir()
        shutil.copyfile(CHAR / name, folder / part / "text.txt")
    for name in ("dataset_file.txt", "sentences.txt"):
        (folder / name).write_text("The owl sold her violin .\nSo it did .\n", encoding="utf-8")
    write_json(folder / "small.json", small_options())
    return folder


@slow
@pytest.mark.parametrize("number", range(len(pages.blocks(ALONE))))
def test_migrating(number, migrant, tmp_path):
    language, code = pages.blocks(ALONE)[number]
    if "bin/dump_weights" in code:  # which writes the weights that others begin with
        without = shutil.ignore_patterns("options.json", "weights.hdf5", "checkpoint")
        migrant = shutil.copytree(migrant, tmp_path / "migrating", ignore=without)
    run_block(language, code, ALONE, migrant)


@slow
def test_ray(tmp_path):
    for name in ("options.json", "weights.hdf5"):
        shutil.copyfile(CHAR / name, tmp_path / name)
    (tmp_path / "mine").mkdir()
    shutil.copyfile(CHAR / "heldout.txt", tmp_path / "mine/heldout.txt")
    with contextlib.chdir(tmp_path), local_ray():
        for language, code in pages.blocks(ON_RAY):
            run_block(language, code, ON_RAY, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(pages.blocks(IN_LIBRARIES))))
def test_other_libraries(number, tmp_path):
    for name in ("options.json", "weights.hdf5"):
        shutil.copyfile(CHAR / name, tmp_path / name)
    language, code = pages.blocks(IN_LIBRARIES)[number]
    pytest.importorskip(re.search(r"bilm\.(\w+)", code)[1])
    run_block(language, code, IN_LIBRARIES, tmp_path)


def test_every_block_is_run():
    with_blocks = {name for name in pages.NAMES if {"console", "python"} & dict(pages.blocks(name)).keys()}
    assert with_blocks == {*COURSE, ALONE, ON_RAY, ON_BACKENDS, IN_LIBRARIES}
    languages = {block.language for name in pages.NAMES for block in pages.blocks(name)}
    # JSON, TOML and bash are tested below.
    assert languages == {"", "console", "python", "bash", "json", "toml"}
    assert [name for name in pages.NAMES if pages.code(name, "bash")] == ["docs/long-runs.md"]
    drawings = [name for name in pages.NAMES if pages.code(name, "")]
    assert drawings == ["docs/architecture.md", ON_RAY, "docs/results.md"]


def test_cluster_blocks_name_existing_arguments():
    """Blocks of the page on Ray that are not run."""
    pytest.importorskip("ray")
    cluster_of = importlib.import_module("bilm.ray").Cluster
    settings = importlib.import_module("bilm.runs.settings").ARGUMENTS
    command, python = pages.code(ON_RAY, "")
    name, *words = shlex.split(command.removeprefix("bilm "))
    assert {word for word in words if word.startswith("--")} <= flags_of(COMMANDS[name])
    (call,) = (node for node in ast.walk(ast.parse(python)) if ast.unparse(node).startswith("bilm.train("))
    (cluster,) = (node for node in ast.walk(call) if ast.unparse(node).startswith("Cluster("))
    assert {word.arg for word in call.keywords} <= {*inspect.signature(bilm.train).parameters, *settings}
    assert {word.arg for word in cluster.keywords} <= {*inspect.signature(cluster_of).parameters}


@pytest.mark.parametrize("name", [name for name in pages.NAMES if pages.code(name, "json")])
def test_options_in_json(name):
    for code in pages.code(name, "json"):
        Options.from_json(json.loads(code))


def test_arguments_in_toml(tmp_path):
    for name in pages.NAMES:
        for code in pages.code(name, "toml"):
            (tmp_path / "run.toml").write_text(code)
            assert read_arguments(tmp_path / "run.toml")["preset"] == "tiny"


def flags_of(command):
    options = [flag for one in command.params for flag in [*one.opts, *one.secondary_opts]]
    return {flag for flag in options if flag.startswith("--")} | {"--help"}


COMMANDS = {
    **{name: main.get_command(None, name) for name in main.table},
    **{f"vocab {name}": one for name, one in main.get_command(None, "vocab").commands.items()},
}
THEIRS = {
    "--code",
    "--paths",
    "--vocab-path",
    "--file-friendly-logging",
    "--include-package",
    "--logdir",
}  # of other programs


@pytest.mark.parametrize("name", pages.NAMES)
def test_mentioned_flags_exist(name):
    known = set().union(*map(flags_of, COMMANDS.values()))
    assert not known & THEIRS
    for benchmark in (ROOT / "tests" / "benchmarks").glob("*.py"):
        known |= set(re.findall(r"--[a-z-]+", benchmark.read_text()))
    for flag in set(re.findall(r"(?<!\w)--[a-z][a-z_-]+", pages.prose(name))):
        assert flag.replace("_", "-") in known | THEIRS, flag


def test_commands_in_sentences_have_their_flags():
    cells = json.loads(pages.text("examples/tutorial.ipynb"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    texts += map(pages.prose, pages.NAMES)
    inline = [command for text in texts for command in re.findall(r"`bilm ([a-z][^`]*)`", text)]
    assert len(inline) > 10
    for text in inline:
        name, *words = shlex.split(text)
        command = COMMANDS[f"vocab {words[0]}" if name == "vocab" and words else name]
        for word in words:
            assert not word.startswith("--") or word in flags_of(command), text


def test_index_lists_every_page():
    index = pages.text("docs/README.md")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "README.md" or f"]({path.name})" in index, path


def test_readme_is_short():
    assert len(pages.text(QUICK_START).encode()) < 8000


# --- the scripts for clusters, with stand-ins for SLURM -------------------------------------------


JOB, WORKERS = pages.code("docs/long-runs.md", "bash")


def run_script(place, script, bilm, **variables):
    """What a script prints where `srun` only runs its command and `scontrol` tells what it was asked."""
    programs = {
        "srun": 'exec "$@"',
        "scontrol": '[ "$1" = show ] && printf "node0\\nnode1\\n" || echo scontrol "$@"',
        "bilm": bilm,
    }
    (place / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / "bin" / name).chmod(0o755)
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(pages.ROOT), "SLURM_JOB_ID": "17"} | variables
    settings = {"cwd": place, "env": environment, "stdout": subprocess.PIPE, "text": True, "check": False}
    done = subprocess.run(["bash", "-c", script], **settings)
    return done.returncode, done.stdout


@pytest.mark.slow
def test_a_job(tmp_path):
    bilm.prepare(TRAIN, tmp_path / "mine", tokens=True, heldout=0.1)
    assert "--preset small" in JOB
    job = JOB.replace("--preset small", "--preset tiny --set unroll_steps=3 --max-time 3s")
    status, said = run_script(tmp_path, job, f'exec "{sys.executable}" -m bilm "$@"')
    assert (tmp_path / "job" / "checkpoint").exists()
    assert status == 75 and said.endswith("scontrol requeue 17\n"), said
    array = {"SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}  # of whose tasks one is queued again
    assert run_script(tmp_path, JOB, "exit 75", **array) == (75, "scontrol requeue 17_3\n")
    status, said = run_script(tmp_path, JOB, 'echo "$@"')
    assert status == 0 and said.startswith("train --preset small --resume ") and "scontrol" not in said


def test_workers(tmp_path):
    variables = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_PROCID": "1"}
    _, said = run_script(tmp_path, f"{WORKERS}echo done", 'echo "$TF_CONFIG"', **variables)  # exec ends it
    assert json.loads(said) == {
        "cluster": {"worker": ["node0:9000", "node1:9000"]},
        "task": {"type": "worker", "index": 1},
    }
