import dataclasses

import pytest

from bilm.cli import terminal as progress
from bilm.cli.terminal import EvaluationProgress, TrainingProgress, clock
from bilm.runs.reporter import Schedule
from bilm.training.trainer import StepReport


@pytest.fixture
def time_passes(monkeypatch):
    """A clock that a test sets."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def report(step, n_steps=100, loss=2.0):
    return StepReport(step, step, n_steps, (loss, loss), 1.0, 0.2, 640, None, 1.0, 0.0)


def test_training_tells_of_the_first_the_last_and_every_ten_seconds(time_passes, capsys):
    with TrainingProgress(Schedule(100, 50, 0, sampled=True)) as tell:
        for step in range(1, 101):
            time_passes[0] += 1.0
            tell(report(step))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["1", *map(str, range(11, 100, 10)), "100"]
    assert lines[1] == (
        "step 11  epoch 0.22  11.0%  sampled loss 2.0000  "
        "sampled perplexity 7.389  640 tokens/s  0:01:29 left"
    )


def test_losses_of_the_full_softmax_are_not_called_sampled(time_passes, capsys):
    with TrainingProgress(Schedule(100, 50, 0, sampled=False)) as tell:
        tell(dataclasses.replace(report(1), direction_losses=(1.0, 3.0)))
    line = capsys.readouterr().out
    assert "sampled" not in line and "loss 2.0000  perplexity 7.389" in line


def test_evaluation_is_silent_when_short(time_passes, capsys):
    tell = EvaluationProgress(1000)
    time_passes[0] = 9.0
    tell(500)
    assert capsys.readouterr().err == ""
    time_passes[0] = 20.0
    tell(800)
    assert capsys.readouterr().err == "scored 800 of 1,000 tokens  80.0%  40 tokens/s  0:00:05 left\n"


def test_clock():
    assert clock(3 * 3600 + 4 * 60 + 5.9) == "3:04:05" and clock(-1) == "0:00:00"


def test_the_bar_of_a_resumed_run_begins_where_the_run_stands(time_passes, monkeypatch):
    class Bar:
        pos = 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, n_steps, _=None):
            self.pos += n_steps

    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress.click, "progressbar", lambda **_: Bar())
    with TrainingProgress(Schedule(100, 50, 40, sampled=False)) as tell:
        assert tell.bar.pos == 40
        for step in range(41, 101):
            tell(report(step))
    assert tell.bar.pos == 100
