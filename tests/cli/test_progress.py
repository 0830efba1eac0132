"""Lines on what is done, now and then; on a terminal one line."""

import dataclasses
import io
import os
import pty
import re
import sys
import time
from pathlib import Path

import click
import pytest

from bilm.cli import main
from bilm.cli.commands.embed import EmbeddingProgress
from bilm.cli.commands.prepare import PreparationProgress
from bilm.cli.commands.training import PrintingReporter, _lines
from bilm.embedding.hdf5_output import EmbeddingReport
from bilm.io.progress import ProgressLine, clock
from bilm.options import PRESETS
from bilm.run_directory.records import HeldoutRecord
from bilm.runs.reporter import Estimate, Outcome, ProgressReporter, Reporter, TrainingResult
from bilm.training.meter import StepReport
from tests.helpers import TRAIN
from tests.records import heldout_line, plan

FULL = PRESETS["tiny"].with_values({"sample_softmax": False})


@pytest.fixture
def time_passes(monkeypatch):
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def context(time_passes):
    """A command that was called."""
    with click.Context(main) as context:
        context.meta["bilm.command"] = "bilm train"
        yield


def report(step, n_steps=100):
    return StepReport(step, step, n_steps, (2.0, 2.0), 1.0, 0.2, 640, None, 1.0, 0.0)


@pytest.fixture
def train(time_passes):
    """A function that tells of two steps, a message, another step and the last."""

    def train():
        reporter = ProgressReporter()
        reporter.begin(plan(n_steps=100_000, steps_per_epoch=50_000))
        for step in (41, 42, 43, 100_000):
            time_passes[0] += 5.0
            reporter.step(report(step, 100_000))
            if step == 42:
                reporter.say("a message")
        reporter.end()

    return train


def test_progress_lines_every_ten_seconds(time_passes, context, capsys):
    reporter = PrintingReporter()
    reporter.begin(plan())
    for step in range(1, 101):
        time_passes[0] += 1.0
        reporter.step(report(step))
    begun, *lines = capsys.readouterr().out.splitlines()
    assert begun == "training: 100 steps, 50 per epoch"
    assert [line.split()[1] for line in lines] == ["1", *map(str, range(11, 100, 10)), "100"]
    assert lines[1] == (
        "step 11  0:01:29 left  sampled perplexity 7.389  epoch 0.22  640 tokens/s  11.0%  "
        "sampled loss 2.0000"
    )


def test_python_call_writes_to_standard_error(time_passes, capsys):
    reporter = ProgressReporter()
    reporter.begin(plan(options=FULL))
    reporter.step(dataclasses.replace(report(1), step=51))  # of a run that goes on
    reporter.warn("a warning")
    reporter.scored(0, 1000)
    time_passes[0] = 20.0
    reporter.scored(800, 1000)
    told = capsys.readouterr()
    assert told.out == "" and [line.partition("  ")[0] for line in told.err.splitlines()] == [
        "training: 100 steps, 50 per epoch",
        "step 51",
        "warning: a warning",
        "scored 800 of 1,000 tokens",
    ]
    assert "epoch 0.02  640 tokens/s  1.0%  loss 2.0000\n" in told.err
    assert told.err.endswith("tokens  80.0%  0:00:05 left  40 tokens/s\n")


def test_output_that_cannot_be_written_ends_no_call(monkeypatch):
    with open(os.devnull) as not_for_writing, open(os.devnull, "w") as closed:
        pass
    for stream in (None, not_for_writing, closed, open(os.devnull)):  # noqa: SIM115
        monkeypatch.setattr(sys, "stderr", stream)
        ProgressReporter().warn("a warning")


def shown(monkeypatch, call, width=None, **variables):
    """What a call writes to a terminal of a width, or to a pipe."""
    reading, writing = pty.openpty() if width else os.pipe()
    for name, value in {"COLUMNS": str(width), **variables}.items():
        monkeypatch.setenv(name, value)
    with open(writing, "w") as stream:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, stream)
        call()
    text = b"".join(iter(lambda: read(reading), b"")).decode()
    os.close(reading)
    return text


def test_other_output_stays_where_it_goes(monkeypatch):
    def call():
        monkeypatch.setattr(sys, "stdout", printed := io.StringIO())
        line = ProgressLine()
        line.show(["a line"], click.echo)
        sys.stdout.write("a result\n")
        line.close()
        assert printed.getvalue() == "a result\n"

    assert "a line" in shown(monkeypatch, call, 80, TERM="xterm")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_terminal_line_fits(width, train, monkeypatch):
    text = shown(monkeypatch, train, width, TERM="xterm", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*[1-9]m", text)  # no colours
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", text)]
    steps = [line for line in lines if line.startswith("step 4")]
    assert len(steps) >= 3 and all(len(line.rstrip()) < width for line in steps)
    assert all(" left" in line for line in steps) and ("tokens/s" in steps[-1]) == (width >= 80)
    # What stays is the messages and the last step, each on lines of its own.
    stays = [line for line in lines if line and not line.startswith("step 4")]
    assert stays[0].startswith("training: 100,000 steps") and stays[1] == "a message"
    assert "".join(stays[2:]).startswith("step 100000  0:00:00 left")


def test_dumb_terminal_gets_lines(train, monkeypatch):
    assert "\x1b" not in shown(monkeypatch, train, FORCE_COLOR="1")  # a pipe, whatever the environment says
    text = shown(monkeypatch, train, 80, TERM="dumb")
    assert "\x1b" not in text and [line[:8] for line in text.split("\r\n") if "step" in line] == [
        "training",
        "step 41 ",
        "step 43 ",
        "step 100",
    ]


@pytest.mark.parametrize("width", [80, None], ids=["terminal", "pipe"])
def test_result_wraps_at_words(width, tmp_path, monkeypatch):
    """A result is whole, as on a pipe, or in lines of a terminal's width with all its words."""
    outfile = tmp_path / "vocabulary-with-a-long-name.txt"
    command = ["vocab", "build", "--train-prefix", str(TRAIN), "--outfile", str(outfile)]
    text = shown(monkeypatch, lambda: main(command, standalone_mode=False), width)
    lines = text.splitlines()
    result = " ".join(text.split())
    assert re.fullmatch(r"2,650 tokens, .* words written to \S+, covering 100.00% of the tokens", result)
    assert (len(lines) > 1) == bool(width)
    assert not width or all(len(line) <= 80 or " " not in line.strip() for line in lines), lines


def read(terminal):
    """What was written to a pseudo-terminal; nothing at its end, which Linux tells by an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


@pytest.mark.parametrize(("n_tokens", "beginning"), [(1000, "20.0%  0:00:40 left  "), (None, "")])
def test_embedding_shows_time_left(n_tokens, beginning, time_passes, capsys):
    tell, report = EmbeddingProgress(n_tokens), EmbeddingReport()
    report.count(30, 0, 200)
    time_passes[0] = 10.0  # the first words took so long
    tell(report)
    assert capsys.readouterr().err == f"{beginning}30 lines  200 words  20 tokens/s\n"


def test_clock_counts_days():
    assert [clock(seconds) for seconds in (59, 3661, 90_061)] == ["0:00:59", "1:01:01", "1 d 1:01:01"]


def test_estimate_is_printed():
    sizes = {"peak_bytes": 3_000_000_000, "gpu_bytes": 2_000_000_000, "kept_bytes": 1_000_000_000}
    steps = {"n_steps": 100, "steps_per_epoch": 50, "n_left": 80, "n_timed": 6, "threads": 2}
    times = {"step_seconds": 2.0, "first_step_seconds": 9.0, "tokens_per_second": 6400.0}
    estimate = Estimate(**sizes, **steps, **times, bfloat16_seconds=0.5)
    assert [*_lines(TrainingResult(Path("run"), Outcome.DRY_RUN, 0, estimate=estimate), None)] == [
        "memory: peak 3.00 GB in 6 steps, of which weights and optimizer 1.00 GB",
        "GPU memory: peak 2.00 GB",
        "steps: 100, 50 per epoch",
        "with --precision bfloat16: 0.500 s per step",
        "time: 0:02:47 for the remaining 80 steps, 2.000 s per step, 6,400 tokens/s, first step 9.0 s; "
        "nothing was written",
    ]


def test_validation_is_told():
    lines, reporter = [], Reporter()
    reporter.say = lines.append
    values = heldout_line(40, known_perplexity=300.0, best=True)
    del values["kind"]
    reporter.heldout(HeldoutRecord(**values))
    assert lines == [
        "step 40  epoch 0.50  heldout perplexity 260.9000 (forward 264.9000, backward 257.0000, "
        "known words 300.0000), training slice 240.1000  best"
    ]


def test_preparing_shows_share(time_passes, capsys):
    tell = PreparationProgress()
    time_passes[0] = 10.0
    tell(500, 2000, 1234)
    assert capsys.readouterr().err == "25% of 2.0 kB  1,234 sentences\n"
