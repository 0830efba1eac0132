"""Runs of earlier and later versions: a golden run of each version, and states as others may write them."""

import json
import shutil

import pytest

import bilm
from bilm.data.corpus import count_corpus
from bilm.errors import CheckpointError, OptionsError
from bilm.run_directory.directory import RunModel
from bilm.run_directory.records import WRITER, read_metrics
from bilm.runs.settings import read_arguments
from tests.helpers import GOLDEN, HELDOUT, TRAIN, VOCAB, checkpoint_arrays, newest, run, save_arrays
from tests.write_golden_run import SETTINGS

RUNS = sorted(GOLDEN.glob("run-*"))
SAME = {"rel": 1e-5, "abs": 1e-6}


def rewrite_state(directory, change):
    """Change the training state in the newest checkpoint; `change` takes its object and returns one."""
    prefix = newest(directory)
    arrays = checkpoint_arrays(prefix, extras=True)
    state = change(json.loads(arrays["bilm/run_state"]))
    arrays["bilm/run_state"] = state if isinstance(state, str) else json.dumps(state)
    save_arrays(prefix, arrays)


def of_newer(state):
    """Add keys that this version does not know, and leave out some that have defaults."""
    for key in ("must_evaluate", "n_without_gain", "loss_scale"):
        del state[key]
    state["settings"]["options"]["colour"] = "blue"
    state["settings"] |= {"shade": 1}
    state["best"] |= {"hue": [1]}
    return state | {"written_by": "bilm 9.1", "tint": {"a": 1}}


def assert_same_numbers(path, other):
    arrays, expected = (checkpoint_arrays(newest(place), extras=True) for place in (path, other))
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        if name != "bilm/run_state":
            assert arrays[name] == pytest.approx(array, **SAME), name
    metrics, known = (read_metrics(place / "metrics.jsonl") for place in (path, other))
    left_out = {"time", "seconds", "tokens_per_second", "data_wait", "known_perplexity"}
    records = [*metrics.train, *metrics.heldout], [*known.train, *known.heldout]
    for pair in zip(*records, strict=True):
        found, values = ({key: one.to_json()[key] for key in one.to_json().keys() - left_out} for one in pair)
        assert found.pop("kind") == values.pop("kind") and found == pytest.approx(values, **SAME)


@pytest.mark.parametrize("change", [None, of_newer], ids=["as written", "by a newer version"])
@pytest.mark.parametrize("golden", RUNS, ids=lambda path: path.name)
def test_interrupted_run_resumes_to_same_numbers(golden, change, tmp_path, caplog):
    path = shutil.copytree(golden / "interrupted", tmp_path / "run")
    if change is not None:
        rewrite_state(path, change)
    result = bilm.train(TRAIN, VOCAB, path, **SETTINGS, heldout_prefix=HELDOUT, resume=True)
    assert (result.outcome, result.step, result.best_step) == ("finished", 6, 6)
    assert_same_numbers(path, golden / "finished")
    message = f"model.ckpt-3: written by bilm 9.1; unknown to bilm {bilm.__version__} and ignored: "
    assert (message + "tint, settings.shade, best.hue" in caplog.text) is (change is not None)


@pytest.mark.parametrize("golden", RUNS, ids=lambda path: path.name)
def test_finished_run_is_readable(golden):
    finished = golden / "finished"
    *_, heldout = read_metrics(finished / "metrics.jsonl").heldout
    assert bilm.test(HELDOUT, finished).perplexity == pytest.approx(heldout.perplexity, rel=1e-5)
    description = run("info", finished)
    assert "heldout perplexity: 54.25 at step 6, best 54.25 at step 6" in description
    assert "last command: bilm.train(train_prefix='train.txt'" in description and "seed 7" in description
    assert "best heldout perplexity 54.25 at step 6" in run("plot", finished)
    arguments = read_arguments(finished / "run.toml")
    assert arguments["seed"] == 7 and arguments["options"]["recipe"] == "several-passes"


@pytest.mark.parametrize("golden", RUNS, ids=lambda path: path.name)
def test_restart_reads_step_schedule_and_text(golden, tmp_path, capsys):
    """As the schedule had ended on this text, the learning rate is a sixth."""
    finished = golden / "finished"
    for files, has_ended in (([TRAIN], True), ([TRAIN, HELDOUT], False)):
        shards = count_corpus(files, bilm.Vocabulary(VOCAB)).shards
        assert RunModel(finished).has_ended_on(shards) is has_ended
    result = bilm.restart(TRAIN, finished, save_to=tmp_path / "to", max_steps=1)
    assert (result.step, result.save_dir) == (7, tmp_path / "to")
    said = capsys.readouterr().err
    assert "recipe: learning_rate 0.001 instead of 0.006, because the schedule had ended" in said


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda state: state | {"positions": 3}, "by an earlier version .*positions: expected a list, got 3"),
        pytest.param(
            lambda state: {"written_by": "bilm 9.1"},
            "by bilm 9.1 .*settings: missing; first_step: missing",
            marks=pytest.mark.slow,
        ),
        (lambda state: state["settings"]["options"].clear() or state, "by .*settings.options: invalid"),
        (lambda state: "{", "by an earlier version .*expected an object"),
    ],
    ids=["other kind", "nothing known", "no options", "no JSON"],
)
def test_unreadable_state_prevents_only_resume(change, problem, tmp_path):
    path = shutil.copytree(RUNS[0] / "finished", tmp_path / "run")
    rewrite_state(path, change)
    with pytest.raises(CheckpointError, match=f"its training state was written {problem}") as caught:
        bilm.train(TRAIN, VOCAB, path, **SETTINGS, heldout_prefix=HELDOUT, resume=True)
    assert "damaged" not in str(caught.value)
    assert f"cannot be read by bilm {bilm.__version__}" in str(caught.value)
    assert bilm.test(HELDOUT, path).step == 6
    assert "step 6" in run("info", path)
    if problem.startswith("by bilm"):  # one of them, since it compiles the step
        assert bilm.restart(TRAIN, path, max_steps=1).step == 7


def test_arguments_of_other_version_warn(tmp_path, caplog):
    file = tmp_path / "run.toml"
    lines = (RUNS[0] / "finished" / "run.toml").read_text()
    unknown = "tint = 1\n" + lines + "hue = 2\n"
    file.write_text('written_by = "bilm 9.1"\n' + unknown)
    known = read_arguments(RUNS[0] / "finished" / "run.toml")
    assert read_arguments(file) == known
    told = f"unknown to {WRITER} and ignored: tint, options.lstm.hue"
    assert f"{file}: written by bilm 9.1; {told}" in caplog.text
    file.write_text(f'written_by = "{WRITER}"\n{unknown}')
    with pytest.raises(OptionsError, match="'tint': unrecognised option"):
        read_arguments(file)
