"""`bilm plot`: the course of training as a picture."""

import shutil

import pytest

from bilm.analysis.curves import _places, curves_picture, load_curves
from bilm.io.atomic import writing
from bilm.run_directory.records import read_metrics
from tests.helpers import figure_of, markup_of, python, refuse, run
from tests.records import call_line, heldout_line, train_line, write_lines

pytest.importorskip("matplotlib")


def record(directory, *lines):
    directory.mkdir(parents=True)
    write_lines(directory / "metrics.jsonl", *lines)
    return directory


@pytest.fixture
def noted(tmp_path):
    """A run with metrics."""
    lines = [train_line(step, perplexity=900.0 / step) for step in range(1, 90)]
    lines[40:40] = [heldout_line(40, perplexity=200.0, best=True, time=1795243600.0)]
    lines[20:20] = [heldout_line(20, perplexity=250.0, best=True)]
    return record(tmp_path / "one", *lines, heldout_line(90, perplexity=210.0))


def test_image_is_written(noted, tmp_path):
    with (noted / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "tra')  # as where a run is going on
    asked = ("plot", noted, "--outfile", tmp_path / "a.PNG")
    assert run(*asked) == f"plot -> {tmp_path / 'a.PNG'}\n"
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    assert refuse(*asked) == f"{tmp_path / 'a.PNG'}: exists; --overwrite replaces it"
    assert run(*asked, "--overwrite") == f"plot -> {tmp_path / 'a.PNG'}\n"


def test_page_is_written(noted, tmp_path):
    pytest.importorskip("plotly")
    other = record(tmp_path / "<u>x", *(train_line(step, sampled=False) for step in (10, 20)))
    page = tmp_path / "a.html"
    assert run("plot", noted, other, "--outfile", page) == f"plot -> {page}\n"
    figure = figure_of(page)
    shown = [trace for trace in figure["data"] if trace["visible"]]
    curves = {(trace["legendgrouptitle"]["text"], trace["name"]): trace for trace in shown}
    kinds = ("training, sampled softmax", "training text, full softmax", "heldout", "best heldout")
    assert list(curves) == [
        *(("one, step 90, best heldout perplexity 200.00<br>at step 40", kind) for kind in (*kinds, "")),
        *(("&lt;u&gt;x, step 20", kind) for kind in ("training", "")),
    ]
    perplexities = [trace["y"] for (_, kind), trace in curves.items() if kind in kinds[1:]]
    assert perplexities == [[240.1] * 3, [250.0, 200.0, 210.0], [None, 200.0, None]]
    assert [(one["yaxis"], one["y"][0]) for one in shown[4:7]] == [("y2", 0.2), ("y3", 3.1), ("y4", 5120.3)]
    panels = [figure["layout"][f"yaxis{number}"]["title"]["text"] for number in ("", 2, 3, 4)]
    assert panels == ["perplexity", "learning<br>rate", "gradient<br>norm", "tokens per<br>second"]
    assert len(figure["data"]) == 4 * (7 + 4)
    assert figure["layout"]["yaxis"]["type"] == "log" and "type" not in figure["layout"]["yaxis2"]
    buttons = figure["layout"]["updatemenus"][0]["buttons"]
    assert [button["label"] for button in buttons] == ["training steps", "tokens", "epochs", "hours"]
    assert "<h1>one, &lt;u&gt;x</h1>" in markup_of(page)


def test_terminal_chart(noted, monkeypatch):
    title, axis, *lines = run("plot", noted).splitlines()
    assert title == "one, step 90, best heldout perplexity 200.00 at step 40"
    assert axis == "perplexity (logarithmic)"
    assert lines[-1] == "⠤ training, sampled softmax   o heldout   @ best heldout"
    assert lines[-2].strip() == "training steps" and 70 < max(map(len, lines)) <= 80 and len(lines) == 19
    monkeypatch.setenv("COLUMNS", "60")
    *rows, numbers, label, _ = run("plot", noted, "--x", "epoch").splitlines()
    assert 50 < max(map(len, rows)) <= 60
    assert (numbers.split(), label.strip()) == (["20", "40"], "epochs")  # 45 of them


def test_ascii_chart(noted):
    code = "import sys; sys.stdout.isatty = lambda: True; from bilm.__main__ import main; main()"
    drawn = python("-c", code, "plot", noted, PYTHONIOENCODING="latin-1").stdout
    assert drawn.isascii() and drawn.splitlines()[-1].startswith(". training, sampled softmax")


def test_several_runs_have_one_curve_each(noted, tmp_path):
    """A run without heldout text has its training perplexity."""
    other = record(tmp_path / "other\x1b[2J", *(train_line(step, sampled=False) for step in (10, 20)))
    third = record(tmp_path / "third", *map(train_line, (10, 20)))
    lines = run("plot", noted, other, third).splitlines()
    assert lines[0] == r"one, other\x1b[2J, third"
    assert lines[-3:] == [
        "A heldout: one, step 90, best heldout perplexity 200.00 at step 40",
        r"B training: other\x1b[2J, step 20",
        "C training, sampled softmax: third, step 20",
    ]
    assert sum(line.count("B") for line in lines) == 1 and sum(line.count("C") for line in lines) == 3


def test_runs_of_other_vocabularies_are_told(noted, tmp_path):
    other = record(tmp_path / "other", *map(train_line, (10, 20)))
    for run_directory, is_told in ((noted, False), (other, True)):
        (run_directory / "vocab.txt.sha256").write_text(run_directory.name)
        assert ("have different vocabularies" in run("plot", noted, other)) == is_told


def test_bad_input(noted, tmp_path):
    outfile, begun = tmp_path / "a.png", record(tmp_path / "begun", train_line(20))
    (tmp_path / "empty").mkdir()
    assert "none' does not exist" in refuse("plot", tmp_path / "none", status=2)
    for directory, n_records in ((tmp_path / "empty", "no"), (begun, "one")):
        message = (
            f"{directory}: has {n_records} record in metrics.jsonl, and a curve needs two; training writes "
            "one every --log-every steps and at each validation"
        )
        assert refuse("plot", noted, directory, "--outfile", outfile) == message == refuse("plot", directory)
    assert not outfile.exists()
    lost = record(tmp_path / "lost", *(train_line(step, perplexity=None) for step in (1, 2)))
    assert refuse("plot", lost) == "lost: no perplexity in metrics.jsonl is a number"
    assert "--overwrite needs --outfile" in refuse("plot", noted, "--overwrite", status=2)
    assert "Missing argument 'RUN...'" in refuse("plot", "--outfile", outfile, status=2)


def test_second_writer_of_a_picture_is_refused(noted, tmp_path):
    outfile = tmp_path / "a.html"
    with writing(outfile):
        message = refuse("plot", noted, "--outfile", outfile)
    assert message.startswith(f"{outfile}: is being written by host ")


def test_tokens_of_equal_calls_add_up_and_hours_are_since_the_first_record(tmp_path):
    lines = [line(step, tokens=400, epoch=1.0) for step in (2, 4) for line in (train_line, heldout_line)]
    times = [train_line(step, time=1.7e9 + 900.0 * step) for step in (2, 4)]
    for x, own, places in (("tokens", lines, {2: 400, 4: 800}), ("time", times, {2: 0.0, 4: 0.5})):
        assert _places(read_metrics(record(tmp_path / x, *own) / "metrics.jsonl"), x) == places


def test_tokens_add_up_after_short_call_unless_it_is_resumed(tmp_path):
    """Where the next call has more tokens at its first record."""
    lines = [train_line(10, tokens=6400, epoch=0.5), train_line(30, tokens=12_800, epoch=1.0)]
    directory = record(tmp_path / "run", *lines)
    for changes, last in (({}, 19_200), ({"n_done": 10}, 12_800)):
        write_lines(directory / "calls.jsonl", call_line(), call_line(step=10, **changes))
        (metrics,) = load_curves([directory]).values()
        assert _places(metrics, "tokens") == {10: 6400, 30: last}


def test_tokens_add_up_over_calls(tmp_path):
    lines = [train_line(step, tokens=100 * step, epoch=step / 2) for step in (1, 2)]
    lines += [train_line(3, tokens=90, epoch=0.25), heldout_line(3, tokens=90, epoch=0.25)]
    lines += [heldout_line(4, tokens=190, epoch=0.5)]
    directory = record(tmp_path / "one", *lines, train_line(5, tokens=10, epoch=0.125))
    for x, train, heldout in (
        ("tokens", [100, 200, 290, 400], [290, 390]),
        ("epoch", [0.5, 1.0, 1.25, 1.625], [1.25, 1.5]),
    ):
        picture = curves_picture(load_curves([directory]), x)
        curves = {series.name: series for series in picture.views[picture.chosen].series}
        assert curves["training, sampled softmax"].xs == train
        assert curves["heldout"].xs == heldout


def test_runs_of_one_name_are_distinguished(noted, tmp_path):
    copies = [shutil.copytree(noted, tmp_path / f"{i}" / "one") for i in range(9)]
    runs = load_curves(copies)
    assert [*runs] == [str(path) for path in copies]
    assert [*load_curves([noted])] == ["one"]
    picture = curves_picture(runs, "time")
    assert picture.views[picture.chosen].x_label == "hours"
    assert len({series.colour for series in picture.views[0].series}) == 9


def test_record_is_refused_as_output(noted, tmp_path):
    before = (noted / "metrics.jsonl").read_bytes()
    (tmp_path / "a.svg").symlink_to(noted / "metrics.jsonl")
    message = refuse("plot", noted, "--outfile", tmp_path / "a.svg", "--overwrite")
    assert message.endswith(f"{noted / 'metrics.jsonl'} is an input and would be lost; give another name")
    assert (noted / "metrics.jsonl").read_bytes() == before
