"""The example scripts: what the demo needs, and each of the others at a reduced size."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from click.testing import CliRunner

import bilm
from tests.helpers import GOLDEN, HELDOUT, TRAIN, small_options, write_json

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


def load_script(name: str) -> ModuleType:
    """Import examples/NAME.py, which is no package."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


corpus = load_script("docstring_corpus")
unigram = load_script("unigram")


# --- sentences and tokens ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("One thing. Another thing? Yes! Done.", ["One thing.", "Another thing?", "Yes!", "Done."]),
        (
            "Some units, e.g. Tensors, are kept. See below.",
            ["Some units, e.g. Tensors, are kept.", "See below."],
        ),
        ("It takes `x`. `y` is optional.", ["It takes `x`.", "`y` is optional."]),
        ("Version 2.5 is needed. not a start.", ["Version 2.5 is needed. not a start."]),
    ],
)
def test_split_sentences(paragraph: str, sentences: list[str]):
    assert corpus.split_sentences(paragraph) == sentences


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("See `tf.nn.relu` (or n_tokens).", "See tf.nn.relu ( or n_tokens ) ."),
        (
            "It doesn't use the model's 2.5 units, e.g. 1e-3!",
            "It doesn't use the model 's 2.5 units , e.g. 1e-3 !",
        ),
        ("An n-dimensional array: 4-D, not 10.5.", "An n-dimensional array : 4-D , not 10.5 ."),
        ("Größe des Würfels", "Größe des Würfels"),
    ],
)
def test_tokenize(sentence: str, tokens: str):
    assert " ".join(corpus.tokenize(sentence)) == tokens


DOCSTRING = """Compute the thing of `x`. It is *very* fast,
see [the guide](https://example.org/a_(b)) and :func:`other <pkg.other>`.

>>> compute(1)
Not a sentence at all.

    for row in rows:
        compute(row)

Usage::

    This is not prose either.

Back to the prose here.

.. code-block:: python

   Hidden from everybody in here.

.. note:: ignored marker
   The note itself is prose.

```python
Fenced words are not prose.
```

=====  =====
Left   Right words of a table
=====  =====

Args:
  x: A tensor of some shape
    that goes on here.
  y: Another tensor.

Parameters
----------
a : array_like
    The numpy way to say it.

- First item of the list.
- Second item of the list.

Short one.
x = compute(1)
compute(x, y=(1, 2))
"""


def test_docstring_sentences_keeps_the_prose_only():
    assert list(corpus.docstring_sentences(DOCSTRING)) == [
        "Compute the thing of x .",
        "It is very fast , see the guide and other .",
        "Back to the prose here .",
        "The note itself is prose .",
        "x : A tensor of some shape that goes on here .",
        "y : Another tensor .",
        "The numpy way to say it .",
        "First item of the list .",
        "Second item of the list .",
        "Short one .",
    ]


# --- files ------------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package tree with docstrings that repeat, and files that nobody can read."""
    root = tmp_path / "fake"
    for number in range(40):
        path = root / f"sub{number % 4}" / f"module{number:02d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f'"""Module number {number} of the fake package.\n\nThis sentence is in every module."""\n'
            f'class A:\n    """Class number {number} has a docstring."""\n'
            f'    async def f(self):\n        """Method number {number} has one too."""\n'
            f'if True:\n    def g():\n        """Function number {number} hides in a branch."""\n'
            "raise SystemExit('this file was run')\n"
        )
    (root / "broken.py").write_text("def (:\n")
    (root / "latin.py").write_bytes(b'"""Caf\xe9 in the wrong encoding."""\n')
    (root / "null.py").write_bytes(b'"""A null byte here.\0"""\n')
    (root / "tests").mkdir()
    (root / "tests" / "test_a.py").write_text('"""Tests are not part of the corpus."""\n')
    return root


def build(package: Path, out_dir: Path, **arguments) -> object:
    return corpus.build_corpus(out_dir, [package], **{"n_shards": 4, "heldout_fraction": 0.1, **arguments})


def test_corpus_of_a_package_tree(package: Path, tmp_path: Path):
    built = build(package, tmp_path / "out")
    assert (built.n_files, built.n_skipped, built.n_docstrings) == (40, 3, 160)
    assert (built.n_sentences_read, len(built.sentences)) == (200, 161)  # 39 copies of one sentence

    train = [(tmp_path / "out" / "train" / f"part-0{i}.txt").read_text().splitlines() for i in range(4)]
    heldout = (tmp_path / "out" / "heldout.txt").read_text().splitlines()
    assert max(map(len, train)) - min(map(len, train)) <= 1
    assert sorted([*sum(train, []), *heldout]) == sorted(built.sentences)
    assert not set(heldout) & set(sum(train, []))
    assert 4 < len(heldout) < 30
    assert sum(len(line.split(" ")) for line in built.sentences) == built.n_tokens
    assert "Module number 0 of the fake package ." in built.sentences
    assert not [line for line in built.sentences if "Tests" in line]


def test_overwrite_removes_nothing_but_a_corpus(package: Path, tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("the only copy")
    with pytest.raises(corpus.CorpusError, match="more than a corpus"):
        build(package, tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "the only copy"
    with pytest.raises(corpus.CorpusError, match="not a directory"):
        build(package, tmp_path / "thesis.tex", overwrite=True)


def test_corpus_command_line(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = [f"{tmp_path}/out", "--source", f"{package}/", "--shards", "2", "--heldout-fraction", "0.1"]
    assert corpus.main(arguments) == 0
    out = capsys.readouterr().out
    assert "40 read, 3 skipped" in out
    assert "161 distinct sentences" in out
    assert corpus.main(arguments) == 1
    assert capsys.readouterr().err.startswith("Error: ")
    assert corpus.main([f"{tmp_path}/other", "--source", "no_such_package_at_all"]) == 1
    assert "no_such_package_at_all" in capsys.readouterr().err
    for wrong in (["--shards", "0"], ["--heldout-fraction", "1"]):
        with pytest.raises(SystemExit) as exit_status:
            corpus.main([f"{tmp_path}/other", *wrong])
        assert exit_status.value.code == 2


# --- unigram ----------------------------------------------------------------------------------------


def test_unigram_perplexity_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "vocab.txt").write_text("<S>\n</S>\n<UNK>\na\nb\n")
    (tmp_path / "train.txt").write_text("a a b\n\na x\n")
    (tmp_path / "heldout.txt").write_text("a b\n\ny c\n")
    # Predictable: </S> 2, <UNK> 1 (x), a 3, b 1: 7 tokens over 4 types, so p = (count + 1) / 11.
    # Heldout: a b </S> <UNK> <UNK> </S>.
    log_likelihood = math.log(4 / 11 * 2 / 11 * 3 / 11 * 2 / 11 * 2 / 11 * 3 / 11)
    expected = math.exp(-log_likelihood / 6)
    arguments = ["--train-prefix", f"{tmp_path}/tr*", "--heldout", f"{tmp_path}/heldout.txt"]
    assert unigram.main([*arguments, "--vocab-file", f"{tmp_path}/vocab.txt"]) == 0
    assert capsys.readouterr().out == f"unigram perplexity (add-one): {expected:.2f} over 6 tokens\n"

    assert unigram.main([*arguments, "--vocab-file", f"{tmp_path}/none.txt"]) == 1
    assert "none.txt" in capsys.readouterr().err


# --- the demo ---------------------------------------------------------------------------------------

FAKE_BILM = """#!{python}
import json, pathlib, sys
verb = sys.argv[1:3] if sys.argv[1] == "vocab" else sys.argv[1:2]
print("called", *sys.argv[1:])
if verb == ["vocab", "build"]:
    words = sorted(set(pathlib.Path("demo/corpus/heldout.txt").read_text().split()))
    pathlib.Path("demo/vocab.txt").write_text("\\n".join(["<S>", "</S>", "<UNK>", *words]) + "\\n")
if verb == ["test"]:
    print(json.dumps({{"perplexity": {perplexity}}}))
"""


@pytest.mark.parametrize(("perplexity", "status"), [(1.5, 0), (1e9, 1)])
def test_demo_script_runs_every_command_and_judges_the_result(
    package: Path, tmp_path: Path, perplexity: float, status: int
):
    """The script itself, with a `bilm` that only answers and a small package tree to read."""
    home = tmp_path / "clone"
    (home / "examples").mkdir(parents=True)
    for name in ("docstring_corpus.py", "unigram.py", "train_toy.sh"):
        text = (ROOT / "examples" / name).read_text()
        text = text.replace(
            '"$demo/corpus"\n', f'"$demo/corpus" --source "{package}/" --heldout-fraction 0.1\n', 1
        )
        (home / "examples" / name).write_text(text)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "bilm").write_text(FAKE_BILM.format(python=sys.executable, perplexity=perplexity))
    (binaries / "bilm").chmod(0o755)
    (binaries / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (binaries / "python").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(bilm.__file__).parent.parent),
    }
    for _ in range(2):  # a second run replaces the first
        done = subprocess.run(
            ["bash", "examples/train_toy.sh"],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
    called = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("called")]
    assert called == ["vocab", "train", "test", "restart", "test", "dump-weights"]
    assert "$ bilm train --preset tiny --train-prefix 'demo/corpus/train/*' " in done.stdout
    assert f"after restart    {perplexity:10.2f}\n" in done.stdout
    assert ("demo failed" in done.stderr) == bool(status)


# --- the examples of use ----------------------------------------------------------------------------

CHAR = (GOLDEN / "char" / "options.json", GOLDEN / "char" / "weights.hdf5")
MODEL = ["--options-file", str(CHAR[0]), "--weight-file", str(CHAR[1])]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run a script as `python examples/NAME.py ARGUMENTS` does, in this process; what it prints."""

    def run(name: str, *arguments: object) -> str:
        path = ROOT / "examples" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as exit_status:
            if exit_status.code not in (None, 0):
                raise
        return capsys.readouterr().out

    return run


def refused(script, name: str, *arguments: object) -> str:
    """What a script says when it gives up."""
    with pytest.raises(SystemExit) as exit_status:
        script(name, *arguments)
    return str(exit_status.value.code)


def test_usage_character(script):
    output = script("usage_character")
    assert "questions at the input (2, 5, 24)" in output
    assert "contexts at the input (2, 8, 24)" in output
    assert "['at_input/ELMo_W', 'at_input/ELMo_gamma']" in output
    message = refused(script, "usage_character", "--weight-file", "none.hdf5")
    assert message.startswith("Error: ") and "none.hdf5" in message


def test_usage_token(script):
    output = script("usage_token")
    assert "at the input (8, 16, 24)" in output
    assert float(re.search(r"difference .*: (.*)", output)[1]) < 1e-6


def test_usage_cached(script):
    output = script("usage_cached")
    before, after = map(float, re.search(r"loss ([\d.]+), after 20 epochs ([\d.]+)", output).groups())
    assert after < before
    assert "layers (60, 3, " in output


# --- tagging ----------------------------------------------------------------------------------------

pos_tagging = load_script("pos_tagging")
CONLLU = """# text = Owls sing.
1-2\tOwls\t_\t_\t_\t_\t_\t_\t_\t_
1\tOwls\towl\tNOUN\tNNS\t_\t2\tnsubj\t_\t_
2\tsing\tsing\tVERB\tVBP\t_\t0\troot\t_\t_
2.1\tsongs\tsong\tNOUN\tNNS\t_\t_\t_\t_\t_
3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_conllu_words_and_tags(tmp_path: Path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    sentences = pos_tagging.read_conllu(tmp_path / "a.conllu")
    assert [sentence.words for sentence in sentences] == [["Owls", "sing", "."], ["Yes"]]
    assert [sentence.tags for sentence in sentences] == [["NOUN", "VERB", "PUNCT"], ["INTJ"]]
    (tmp_path / "b.conllu").write_text("1\tYes\n")
    with pytest.raises(bilm.errors.DataError, match="line 1: has 2 fields"):
        pos_tagging.read_conllu(tmp_path / "b.conllu")
    (tmp_path / "c.conllu").write_text("# nothing\n")
    with pytest.raises(bilm.errors.DataError, match="no sentences"):
        pos_tagging.read_conllu(tmp_path / "c.conllu")
    with pytest.raises(bilm.errors.DataError, match="d.conllu"):
        pos_tagging.read_conllu(tmp_path / "d.conllu")


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of the golden text, tagged by the length of their words."""
    folder = tmp_path_factory.mktemp("treebank")
    for name, path in {"train": TRAIN, "dev": HELDOUT, "test": HELDOUT}.items():
        sentences = [
            "".join(
                f"{i}\t{word}\t_\t{'SHORT' if len(word) < 4 else 'LONG'}\t_\t_\t_\t_\t_\t_\n"
                for i, word in enumerate(line.split(), start=1)
            )
            for line in path.read_text().splitlines()
            if line.strip()
        ]
        (folder / f"{name}.conllu").write_text("\n".join(sentences))
    return folder


@pytest.fixture(scope="module")
def tagged(treebank: Path) -> tuple[Path, str]:
    """The results and the output of tagging with two of the taggers."""
    results = treebank / "pos.json"
    arguments: list[str] = []
    for name in ("train", "dev", "test"):
        arguments += [f"--{name}", str(treebank / f"{name}.conllu")]
    arguments += [*MODEL, "--fraction", "0.5"]
    for variant in ("own", "both", "own-characters"):
        arguments += ["--variant", variant]
    arguments += ["--seeds", "1", "--max-rounds", "2", "--results", str(results), "--resume"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pos_tagging, "ROUND_STEPS", 10)
        done = CliRunner().invoke(pos_tagging.main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        again = CliRunner().invoke(pos_tagging.main, arguments, catch_exceptions=False)
    assert again.stdout == done.stdout and "own embeddings, 50%" not in again.stderr  # nothing done again
    return results, done.stdout


def test_tagging_prints_tables_and_writes_results(tagged: tuple[Path, str]):
    results, output = tagged
    runs = json.loads(results.read_text())
    assert [run["variant"] for run in runs] == ["own", "both", "own-characters"]
    assert f"| + ELMo at input and output | {100 * runs[1]['test']:.2f} |" in output
    assert all(run["test"] > 0.8 and run["rounds"] == 2 for run in runs)  # the words are known
    assert runs[0]["mixes"] == {} and list(runs[1]["mixes"]) == ["mix_at_input", "mix_at_output"]
    for mix in runs[1]["mixes"].values():
        assert sum(mix["shares"]) == pytest.approx(1) and np.ptp(mix["shares"]) > 1e-4  # it has learned


def test_inspect_layers(script, tagged: tuple[Path, str], tmp_path: Path):
    results, _ = tagged
    output = script(
        *("inspect_layers", "--results", results, *MODEL, "--word", "owl", "--sentence", "an owl sold"),
        *("--text", HELDOUT, "-n", 2, "--plot", tmp_path / "mixes.png"),
    )
    assert "| both, 50%: mix_at_output |" in output
    assert re.findall(r"^layer \d", output, re.MULTILINE) == ["layer 0", "layer 1", "layer 2"]
    assert output.count("[owl]") >= 2  # of layer 0, whatever the model has learned
    assert (tmp_path / "mixes.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "other.json").write_text("[1]")
    assert "other.json" in refused(script, "inspect_layers", "--results", tmp_path / "other.json")


# --- sentiment --------------------------------------------------------------------------------------


def test_sentiment(script, tmp_path: Path):
    words = {"good": ["fine", "grand", "dear"], "bad": ["poor", "dull", "sour"]}
    lines = [
        f"{label}\tthe {word} {noun} ."
        for label, some in words.items()
        for word in some
        for noun in ("owl", "clock", "river", "violin")
    ]
    (tmp_path / "train.tsv").write_text("\n".join(lines * 4) + "\n")
    (tmp_path / "test.tsv").write_text("good\ta fine letter\nbad\ta dull umbrella\n")
    files = ("--train", tmp_path / "train.tsv", "--test", tmp_path / "test.tsv")
    output = script("sentiment", *files, *MODEL, "--epochs", 3)
    assert "96 training and 2 test sentences, labels bad, good" in output
    accuracies = dict(re.findall(r"^(.*?) {2,}([\d.]+)$", output, re.MULTILINE))
    assert list(accuracies) == ["the commonest label", "bag of own embeddings", "bag of ELMo"]
    assert float(accuracies["bag of own embeddings"]) == 1.0
    (tmp_path / "test.tsv").write_text("good a fine letter\n")
    assert "test.tsv line 1: is not LABEL<TAB>SENTENCE" in refused(script, "sentiment", *files, *MODEL)


# --- another domain ---------------------------------------------------------------------------------


def test_domain_adaptation(script, tmp_path: Path):
    options = write_json(tmp_path / "options.json", small_options())
    (tmp_path / "b.txt").write_text("zwei kleine Eulen singen leise .\n" * 20)
    arguments = ["--text-a", TRAIN, "--text-b", tmp_path / "b.txt", "--heldout-b", tmp_path / "b.txt"]
    arguments += ["--work-dir", tmp_path / "work", "--options", options, "--batch-size", 2]
    output = script("domain_adaptation", *arguments, "--steps-a", 2, "--steps-b", 30)
    verbs = re.findall(r"^\$ (?:bilm )?(\w+)", output, re.MULTILINE)
    assert verbs == ["vocab", "train", "test", "restart", "test", "train", "test"]
    on_a, adapted, on_b = (float(value) for value in re.findall(r"\| ([\d.]+) \|$", output, re.MULTILINE))
    assert adapted < on_a / 2 and on_b < on_a / 2
    assert "exists; give a new directory" in refused(script, "domain_adaptation", *arguments)


# --- all of them ------------------------------------------------------------------------------------


def test_the_table_names_every_example():
    table = (ROOT / "examples" / "README.md").read_text()
    files = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh")}
    assert set(re.findall(r"^\| `([\w.]+)` \|", table, re.MULTILINE)) == files


# --- protein sequences ------------------------------------------------------------------------------


def test_protein(script):
    sizes = ("--sequences", 3, "--mean-length", 30, "--longest", 200)
    output = script("protein", *sizes, "--quick")
    assert "random weights: the vectors mean nothing" in output
    assert re.search(r"4 sequences, \d+ residues, the longest of 200\n", output)
    assert "vectors of proteins (4, 128)\n" in output and "residues/s" in output
    assert "random" not in script("protein", *sizes, *MODEL)
