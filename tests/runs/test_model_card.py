"""The card of a model that is handed on."""

import json
import re

import numpy as np
import pytest
import yaml

import bilm
from tests.distributed import model_files, write_zip
from tests.helpers import HELDOUT, TRAIN, VOCAB, run, smallest_options, train_command, write_json


def head_and_body(directory):
    _, head, body = (directory / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(head), body


def rows(body):
    return dict(re.findall(r"^\| (\w.*?) \| (.*) \|$", body, re.M))


def blocks(body, language):
    return re.findall(rf"^```{language}\n(.*?)^```", body, re.M | re.S)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run with two calls and a heldout text that was scored at steps 2 and 4, and its model; only read."""
    place = tmp_path_factory.mktemp("cards")
    options = write_json(place / "options.json", smallest_options())
    flags = ("--heldout-prefix", HELDOUT, "--recipe", "one-pass", "--seed", 5, "--eval-every", 2)
    command = train_command(place / "run", options, *flags)
    run(*command, "--max-steps", 2)
    flags = ("--heldout-prefix", HELDOUT, "--seed", 5, "--eval-every", 2, "--max-steps", 2, "--save-every", 1)
    run("restart", "--save-dir", place / "run", "--train-prefix", TRAIN, *flags)
    words = ("--language", "no", "--license", "cc-by-4.0", "--description", "Tales: of *owls*.\n\nAnd {sea}.")
    run("dump-weights", "--save-dir", place / "run", "--model-dir", place / "a model", *words)
    return place


@pytest.mark.slow
def test_card_describes_run(place):
    head, body = head_and_body(place / "a model")
    assert head == {
        "language": "no",
        "license": "cc-by-4.0",
        "library_name": "bilm",
        "tags": ["elmo", "bilm"],
        "pipeline_tag": "feature-extraction",
        "metrics": ["perplexity"],
    }
    assert "\n# a model\n\nTales: of *owls*.\n\nAnd {sea}.\n" in body
    facts, card = json.loads(run("info", place / "a model", "--json")), rows(body)
    result = bilm.test(HELDOUT, place / "run")
    assert card == {
        "language": "no",
        "licence": "cc-by-4.0",
        "parameters": f"{facts['parameters']:,}, without the softmax",
        "words": "73, in `vocab.txt`; 4.57% of the training text are others",
        "text": "words separated by spaces, tokenised as the training text was",
        "normal form": "Unicode NFC",
        "input": "words",
        "directions": "forward",
        "LSTM layers": "1, of 8 units",
        "vectors": "4 numbers in each direction",
        "recipe": "one-pass",
        "training": "4 steps; in the last command 12 tokens, 0.00 passes",
        "heldout perplexity": f"{result.perplexity:.2f} at step 4, {result.known_perplexity:.2f} for the "
        "words in the vocabulary",
        "written by": f"bilm {bilm.__version__}",
    }
    calls = re.findall(r"^    # seed 5, bilm .*\n    bilm (.*)$", body, re.M)
    assert [call.split()[0] for call in calls] == ["train", "restart"]
    assert (place / "a model" / "run.toml").read_bytes() == (place / "run" / "run.toml").read_bytes()


@pytest.mark.slow
def test_card_example_loads_model(place, tmp_path, monkeypatch):
    _, body = head_and_body(place / "a model")
    (tmp_path / "a model").symlink_to(place / "a model")
    words = VOCAB.read_text().split()[3:]
    example = [word for word in words if word[0].isalpha()][:5]
    (tmp_path / "text.txt").write_text("Time flies\n")
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(*blocks(body, "python"), namespace)
    install, command = blocks(body, "console")
    assert install == "pip install .  # in a clone of the repository of bilm-tf2\n"
    assert command == "bilm embed text.txt vectors.hdf5 --model 'a model'\n"
    run("embed", "text.txt", "vectors.hdf5", "--model", "a model")
    wanted = bilm.ElmoEmbedder.from_model(place / "run").embed_sentence(example)
    np.testing.assert_allclose(namespace["vectors"], wanted, atol=1e-6)


@pytest.mark.slow
def test_card_of_unscored_step_says_so(place, tmp_path):
    flags = ("--checkpoint", 3, "--with-softmax", "--model-dir", tmp_path / "model")
    run("dump-weights", "--save-dir", place / "run", *flags)
    head, body = head_and_body(tmp_path / "model")
    assert head.keys() == {"library_name", "tags", "pipeline_tag"}
    assert rows(body)["heldout perplexity"] == "not measured" and "\nNo description was given.\n" in body
    run("dump-weights", "--save-dir", place / "run", *flags, "--overwrite")
    assert head_and_body(tmp_path / "model") == (head, body)
    assert rows(body)["parameters"].endswith(", with the softmax")
    assert rows(body)["training"] == "3 steps; in the last command 6 tokens, 0.00 passes"


@pytest.mark.slow
def test_card_of_earlier_step_has_its_own_numbers(place, tmp_path):
    run("dump-weights", "--save-dir", place / "run", "--checkpoint", 2, "--model-dir", tmp_path / "model")
    _, body = head_and_body(tmp_path / "model")
    assert " at step 2, " in rows(body)["heldout perplexity"]
    assert re.findall(r"^    bilm (\w+)", body, re.M) == ["train"]


@pytest.mark.slow
def test_card_of_another_runs_model_says_so(place, tmp_path):
    few = ("--max-steps", 1, "--train-prefix", TRAIN, "--no-xla")
    run("restart", "--save-dir", place / "run", "--save-to", tmp_path / "to", *few)
    run("dump-weights", "--save-dir", tmp_path / "to", "--model-dir", tmp_path / "model")
    _, body = head_and_body(tmp_path / "model")
    assert "Its commands, the first one first, after 4 steps of another run:\n\n    # seed" in body
    assert rows(body)["training"] == "5 steps; in the last command 6 tokens, 0.00 passes"


def test_card_without_records_says_so(tmp_path):
    steps = {"text.json": b'{"language": "und", "form": null}'}
    archive = write_zip(tmp_path / "193.zip", model_files() | steps)
    run("dump-weights", "--model", archive, "--model-dir", tmp_path / "model")
    _, body = head_and_body(tmp_path / "model")
    unknown = {"language": "not stated", "licence": "not stated", "heldout perplexity": "not measured"}
    unknown |= {"recipe": "not recorded", "training": "steps not recorded", "input": "characters"}
    unknown |= {"directions": "forward and backward", "vectors": "12 numbers in each direction"}
    assert unknown.items() <= rows(body).items() and "commands of its training are not recorded" in body
