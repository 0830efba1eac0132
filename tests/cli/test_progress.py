"""Lines on what is done, now and then."""

import click
import pytest

from bilm.cli import main, terminal
from bilm.cli.terminal import EmbeddingProgress, PrintingReporter
from bilm.embedding.hdf5_output import EmbeddingReport
from bilm.runs.reporter import Schedule
from bilm.training.trainer import StepReport


@pytest.fixture
def time_passes(monkeypatch):
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def context(time_passes):
    """A command that was called."""
    with click.Context(main) as context:
        context.meta["bilm.command"] = "bilm train"
        yield


def report(step):
    return StepReport(step, step, 100, (2.0, 2.0), 1.0, 0.2, 640, None, 1.0, 0.0)


def test_training_tells_of_the_first_the_last_and_every_ten_seconds(time_passes, context, capsys):
    reporter = PrintingReporter()
    reporter.begin(Schedule(100, 50, sampled=True))
    for step in range(1, 101):
        time_passes[0] += 1.0
        reporter.step(report(step))
    begun, *lines = capsys.readouterr().out.splitlines()
    assert begun == "training: 100 steps, 50 per epoch"
    assert [line.split()[1] for line in lines] == ["1", *map(str, range(11, 100, 10)), "100"]
    assert lines[1] == (
        "step 11  epoch 0.22  11.0%  sampled loss 2.0000  "
        "sampled perplexity 7.389  640 tokens/s  0:01:29 left"
    )


def test_on_a_terminal_a_line_is_written_anew(time_passes, context, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    reporter = PrintingReporter()
    reporter.begin(Schedule(100, 50, sampled=False))
    capsys.readouterr()
    for step in (41, 42):
        time_passes[0] += 5.0
        reporter.step(report(step))
    reporter.end()
    assert "sampled" not in (found := capsys.readouterr()).err
    assert found.out == "" and found.err.endswith("\n")
    assert [line.split("  ")[0] for line in found.err.split("\r")] == ["", "step 41", "step 42"]
    assert {len(line) for line in found.err.rstrip("\n").split("\r")[1:]} == {39}


@pytest.mark.parametrize(("n_tokens", "left"), [(1000, "  20.0%  0:00:40 left"), (None, "")])
def test_embedding_tells_the_time_left_where_it_is_known(n_tokens, left, time_passes, capsys):
    tell = EmbeddingProgress(n_tokens)
    time_passes[0] = 10.0
    report = EmbeddingReport()
    report.n_lines, report.n_tokens, report.seconds = 30, 200, 10.0
    tell(report)
    assert capsys.readouterr().err == f"30 lines  200 words  20 tokens/s{left}\n"
