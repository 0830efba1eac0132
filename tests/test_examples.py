"""The example scripts: what the demo needs, and each of the others at a reduced size."""

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bilm
from tests.helpers import HELDOUT, MODEL, ROOT, TRAIN, small_options, smallest_options, write_json

pytestmark = pytest.mark.slow

sys.path.append(str(ROOT / "examples"))
corpus, ner, pos_tagging, tagging = map(
    importlib.import_module, ("docstring_corpus", "ner", "pos_tagging", "tagging")
)


# --- the demo ---------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path):
    """A package tree with docstrings that repeat, and a file that nobody can read."""
    root = tmp_path / "fake"
    root.mkdir()
    for number in range(60):
        text = f'"""Module number {number} of the fake package.\n\nThis sentence is in every module."""\n'
        (root / f"module{number}.py").write_text(text)
    (root / "broken.py").write_text("def (:\n")
    return root


def test_overwrite_removes_only_a_corpus(package, tmp_path):
    (tmp_path / "thesis.tex").write_text("the only copy")
    with pytest.raises(corpus.CorpusError, match="more than a corpus"):
        corpus.build_corpus(tmp_path, [package], overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "the only copy"


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
def test_demo_script_judges_perplexity(package, tmp_path, perplexity, status):
    """The script itself, with a `bilm` that only answers and a small package tree to read."""
    home, binaries = tmp_path / "clone", tmp_path / "bin"
    (home / "examples").mkdir(parents=True)
    binaries.mkdir()
    source = f'"$demo/corpus" --overwrite --source "{package}/" --heldout-fraction 0.1\n'
    for name in ("docstring_corpus.py", "unigram.py", "train_toy.sh"):
        text = (ROOT / "examples" / name).read_text()
        (home / "examples" / name).write_text(text.replace('"$demo/corpus" --overwrite\n', source, 1))
    (binaries / "bilm").write_text(FAKE_BILM.format(python=sys.executable, perplexity=perplexity))
    (binaries / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for path in binaries.iterdir():
        path.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(bilm.__file__).parent.parent),
    }
    command = ["bash", "examples/train_toy.sh"]
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    called = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("called")]
    assert called == ["vocab", "train", "test", "restart", "test", "dump-weights"]
    assert "60 read, 1 skipped" in done.stdout and "61 distinct sentences" in done.stdout
    assert "$ bilm train --preset tiny --train-prefix 'demo/corpus/train/*' " in done.stdout
    assert f"after restart    {perplexity:10.2f}\n" in done.stdout
    assert ("demo failed" in done.stderr) == bool(status)
    heldout = set((home / "demo" / "corpus" / "heldout.txt").read_text().splitlines())
    train = {
        line
        for path in (home / "demo" / "corpus" / "train").iterdir()
        for line in path.read_text().splitlines()
    }
    assert len(heldout) + len(train) == 61 and not heldout & train


# --- the examples of use ----------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch, capsys):
    """Run a script as `python examples/NAME.py ARGUMENTS` does, in this process; what it prints."""

    def run(name, *arguments):
        path = ROOT / "examples" / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as exit_status:
            if exit_status.code not in (None, 0):
                raise
        return capsys.readouterr().out

    return run


def test_usage(script):
    output = script("usage_character")
    assert "questions at the input (2, 5, 24)" in output
    assert "contexts at the input (2, 8, 24)" in output
    assert "['at_input/ELMo_W', 'at_input/ELMo_gamma']" in output
    output = script("usage_token")
    assert "at the input (8, 16, 24)" in output
    assert float(re.search(r"difference .*: (.*)", output)[1]) < 1e-6
    output = script("usage_cached")
    before, after = map(float, re.search(r"loss ([\d.]+), after 20 epochs ([\d.]+)", output).groups())
    assert after < before
    assert "layers (60, 3, " in output


def write_tagged(folder, form, text="{}"):
    """Write sentences of the golden text, a word per line as in `form`, for a tagger; the arguments."""
    arguments = [*map(str, MODEL), "--fraction", "0.5", "--seeds", "1"]
    for name, path in {"train": TRAIN, "dev": HELDOUT, "test": HELDOUT}.items():
        sentences = [
            "".join(form.format(i, word, "NO"[len(word) < 4]) for i, word in enumerate(line.split(), start=1))
            for line in path.read_text().splitlines()
            if line.strip()
        ]
        (folder / name).write_text(text.format("\n".join(sentences)))
        arguments += [f"--{name}", str(folder / name)]
    return arguments


def test_tagging_and_probing(script, monkeypatch, tmp_path):
    """Sentences tagged by the length of their words."""
    results = tmp_path / "pos.json"
    arguments = write_tagged(tmp_path, "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n")
    arguments += ["--variant", "own", "--variant", "both", "--max-rounds", "2", "--results", str(results)]
    monkeypatch.setattr(tagging, "ROUND_STEPS", 10)
    monkeypatch.setattr(tagging, "LEARNING_RATE", 0.02)
    done = CliRunner().invoke(pos_tagging.main, [*arguments, "--resume"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(pos_tagging.main, [*arguments, "--resume"], catch_exceptions=False)
    assert again.stdout == done.stdout and "own embeddings, 50%" not in again.stderr  # nothing done again
    runs = json.loads(results.read_text())
    assert f"| + ELMo at input and output | {100 * runs[1]['test']:.2f} |" in done.stdout
    assert all(run["test"] > 0.8 and run["rounds"] == 2 for run in runs)  # the words are known
    assert runs[0]["mixes"] == {} and list(runs[1]["mixes"]) == ["mix_at_input", "mix_at_output"]
    for mix in runs[1]["mixes"].values():
        assert sum(mix["shares"]) == pytest.approx(1) and np.ptp(mix["shares"]) > 1e-4  # it has learned

    output = script(
        *("inspect_layers", "--results", results, *MODEL, "--word", "owl", "--sentence", "an owl sold"),
        *("--text", HELDOUT, "-n", 2, "--plot", tmp_path / "mixes.png"),
    )
    assert "| both, 50%: mix_at_output |" in output
    assert re.findall(r"^layer \d", output, re.MULTILINE) == ["layer 0", "layer 1", "layer 2"]
    assert output.count("[owl]") >= 2  # of layer 0, whatever the model has learned
    assert (tmp_path / "mixes.png").read_bytes().startswith(b"\x89PNG")


def test_entities(monkeypatch, tmp_path):
    """In a text where each long word is an entity, in the form of the first release of CoNLL 2003."""
    arguments = write_tagged(tmp_path, "{1} {0} I-NP {2}\n", "-DOCSTART- -X- O O\n\n{}")
    for path in map(tmp_path.joinpath, ("train", "dev", "test")):
        path.write_text(path.read_text().replace(" N\n", " I-LONG\n"))
    monkeypatch.setattr(tagging, "ROUND_STEPS", 10)
    monkeypatch.setattr(tagging, "LEARNING_RATE", 0.02)
    arguments += ["--variant", "input", "--max-rounds", "2"]
    done = CliRunner().invoke(ner.main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert (
        float(re.search(r"Test F1\n(?:.*\n){3}\| \+ ELMo at the input \| ([\d.]+) \|", done.stdout)[1]) > 80
    )


def test_f1_counts_whole_entities():
    gold = [["B-LOC", "I-LOC", "O", "B-PER"], ["O", "B-ORG"]]
    guess = [["B-LOC", "O", "O", "B-PER"], ["O", "O"]]
    everything = [[True] * 4, [True] * 2]
    assert ner.f1(gold, gold, everything) == 1
    assert ner.f1(gold, guess, everything) == pytest.approx(2 * 1 / (3 + 2))
    assert ner.f1(gold, guess, [[False] * 3 + [True], [False] * 2]) == 1  # of B-PER alone
    assert ner.f1(gold, guess, [[False] * 4, [False] * 2]) == 0


def test_sentiment(script, tmp_path):
    words = {"good": ["fine", "grand", "dear"], "bad": ["poor", "dull", "sour"]}
    nouns = ("owl", "clock", "river", "violin")
    lines = [f"{label}\tthe {word} {noun} ." for label in words for word in words[label] for noun in nouns]
    (tmp_path / "train.tsv").write_text("\n".join(lines * 4) + "\n")
    (tmp_path / "test.tsv").write_text("good\ta fine letter\nbad\ta dull umbrella\ngood\ta dear owl\n")
    files = ("--train", tmp_path / "train.tsv", "--test", tmp_path / "test.tsv")
    output = script("sentiment", *files, *MODEL, "--epochs", 3)
    assert "96 training and 3 test sentences, labels bad, good" in output
    accuracies = dict(re.findall(r"^(.*?) {2,}([\d.]+)$", output, re.MULTILINE))
    assert list(accuracies) == ["most frequent label", "bag of own embeddings", "bag of ELMo"]
    assert float(accuracies["most frequent label"]) == 0.3333  # of the training text
    assert float(accuracies["bag of own embeddings"]) == 1.0


def test_semantic_change(script, tmp_path):
    texts = {
        "old.txt": ["an owl sold a file", "the owl", "a file here"],
        "new.txt": ["owl owl", "a file here"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "words.txt").write_text("file\nowl\nsold\n")
    old, new, plot = (tmp_path / name for name in (*texts, "change.html"))
    output = script("semantic_change", old, new, "--words", tmp_path / "words.txt", *MODEL, "--plot", plot)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines()[2:5]]
    assert [row[:3] for row in rows] == [["owl", "2", "2"], ["file", "2", "1"], ["sold", "1", "0"]]
    assert float(rows[0][-1]) > float(rows[1][-1])
    embedder = bilm.ElmoEmbedder(*MODEL[1::2])
    for word, *_, prototype, pairwise, excess in rows[:2]:
        vectors = [
            [found.vector for found in embedder.embed_words(map(str.split, lines), [word])]
            for lines in texts.values()
        ]
        pairs = [cosine(a, b) for a in vectors[0] for b in vectors[1]]
        assert float(pairwise) == pytest.approx(1 - np.mean(pairs), abs=1e-4)
        within = [1 - cosine(*side) for side in vectors if len(side) > 1]
        assert float(excess) == pytest.approx(1 - np.mean(pairs) - np.mean(within), abs=2e-4)
        means = [np.mean(side, axis=0) for side in vectors]
        assert float(prototype) == pytest.approx(1 - cosine(*means), abs=1e-4)
    assert f"owl in {new}" in output and output.count("[owl]") == 4
    assert plot.stat().st_size > 1 << 20 and "words alone" not in plot.read_text()  # they are of all layers


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_domain_adaptation(script, tmp_path):
    options = write_json(tmp_path / "options.json", smallest_options())
    (tmp_path / "b.txt").write_text("zwei kleine Eulen singen leise .\n" * 20)
    arguments = ["--text-a", TRAIN, "--text-b", tmp_path / "b.txt", "--heldout-b", tmp_path / "b.txt"]
    arguments += ["--work-dir", tmp_path / "work", "--options", options, "--batch-size", 2]
    output = script("domain_adaptation", *arguments, "--steps-a", 2, "--steps-b", 60)
    verbs = re.findall(r"^\$ (?:bilm )?(\w+)", output, re.MULTILINE)
    assert verbs == ["vocab", "train", "test", "restart", "test", "train", "test"]
    on_a, adapted, on_b = (float(value) for value in re.findall(r"\| ([\d.]+) \|$", output, re.MULTILINE))
    assert adapted < on_a / 2 and on_b < on_a / 2
    labels = re.findall(r"^\| (\w.* steps.*?) \|", output, re.MULTILINE)  # B ends before 60 steps
    assert labels == ["A, 2 steps", "A, 2 steps, then B, 23", "B alone, 23 steps"]


def test_protein(script):
    output = script("protein", "--sequences", 3, "--mean-length", 30, "--longest", 200, "--quick")
    assert "random weights: the vectors mean nothing" in output
    assert re.search(r"4 sequences, \d+ residues, the longest of 200\n", output)
    assert "vectors of proteins (4, 128)\n" in output and "residues/s" in output


TUTORIAL = json.loads((ROOT / "examples" / "tutorial.ipynb").read_text(encoding="utf-8"))


# Smaller numbers, for the sake of the time that the test takes.
REDUCED = {
    "max_steps=200": "max_steps=150",
    "eval_every=50": "eval_every=150",
    'preset="tiny"': 'preset="tiny", changes={"unroll_steps": 5, "batch_size": 32}',
    'for library in ("numpy", "keras")': 'for library in ["numpy"]',
    "range(5)": "range(1)",
    "train[:1000]": "train[:100]",
}


def run_tutorial(reduced, **settings):
    """Run the cells in order, as a notebook does, with other settings; what they define."""
    first, *cells = ["".join(cell["source"]) for cell in TUTORIAL["cells"] if cell["cell_type"] == "code"]
    for number, smaller in reduced.items():
        assert number in "".join(cells)
        cells = [cell.replace(number, smaller) for cell in cells]
    namespace = {"__name__": "__main__"}
    exec(compile(first, "settings", "exec"), namespace)
    assert namespace.keys() >= settings.keys()
    namespace |= settings
    for number, cell in enumerate(cells, start=2):
        exec(compile(cell, f"cell {number}", "exec"), namespace)
    return namespace


def test_tutorial(tmp_path, monkeypatch, capsys):
    """Its own text, with less of it and less training."""
    monkeypatch.chdir(tmp_path)
    namespace = run_tutorial(REDUCED)
    assert namespace["tested"].perplexity < 0.9 * namespace["by_frequency"]
    accuracies = namespace["accuracies"]
    others = accuracies["vectors of layer 0"], accuracies["one-hot with both neighbours"]
    assert accuracies["vectors of layer 1"] > max(others) + 0.02, accuracies
    output = capsys.readouterr().out
    assert "the same vectors: True" in output


def test_tutorial_shows_the_output_of_each_cell():
    code = [cell for cell in TUTORIAL["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    shown = [json.dumps(cell["outputs"]) for cell in code if cell["outputs"]]
    assert len({*shown}) == len(shown)


NOUNS, VERBS = "λόγος ἄνθρωπος ἵππος ποταμός", "λέγει ἔχει φέρει γράφει"


def test_tutorial_reads_accented_text(tmp_path, monkeypatch, capsys):
    """Greek, not in the normal form of corpora, and settings that do not occur in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw" / "below").mkdir(parents=True)
    pairs = [(noun, verb) for noun in NOUNS.split() for verb in VERBS.split()]
    for name in ("a.txt", "below/b.txt"):
        text = "\n\n".join(f"ὁ {noun} {verb} {i} τὸν {noun}." for i in range(30) for noun, verb in pairs)
        (tmp_path / "raw" / name).write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    smaller = {
        "max_steps=200": "max_steps=2",
        "eval_every=50": "eval_every=2",
        'preset="tiny"': f"options={small_options()}",
    }
    decomposed = unicodedata.normalize("NFD", f"{VERBS} πίπτει")
    settings = {"RAW": "raw", "LANGUAGE": "grc", "CLASSES": {"noun": NOUNS, "verb": decomposed}}
    settings |= {"WORD": decomposed.split()[1], "USES": ["ὁ λόγος ἔχει.", "ὁ ἵππος ἔχει τὸν λόγον."]}
    settings |= {"ASKED": "θεός", "SENTENCE": "ὁ λόγος λέγει."}
    namespace = run_tutorial(smaller, **settings)
    output = capsys.readouterr().out
    assert "do not occur in the text: θεός πίπτει\n" in output
    assert "sentences, layers, numbers: (2, " in output and namespace["classes"]["verb"] == VERBS.split()
    assert "θεός is not in the sentence" in output and "the same vectors: True" in output
    assert list(namespace["accuracies"])[-1] == "vectors of layer 2"
    assert namespace["embedder"].pipeline.language == "grc"


def test_table_names_every_example():
    table = (ROOT / "examples" / "README.md").read_text()
    files = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh", ".ipynb")}
    cells = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`([\w.]+)`", cell)} == files
