import click
import pytest

from bilm.cli.flags import EvalInterval, Integer, Number, SaveInterval, TimeSpan
from bilm.runs.settings import Interval

LONG = "9" * 5000


def test_numbers_within_their_bounds():
    assert Integer(1, 9).convert("9", None, None) == 9 and Integer().convert("-3", None, None) == -3
    assert Number().convert("1e-3", None, None) == 1e-3


@pytest.mark.parametrize(
    ("kind", "text"),
    [(Integer(1), "0"), (Integer(1, 9), "10"), (Integer(1), "1" + "0" * 19), (Integer(), "x")]
    + [(kind, LONG) for kind in (Integer(), Number(), SaveInterval(), EvalInterval(), TimeSpan())]
    + [(SaveInterval(), LONG + "m"), (Number(), "0." + LONG)]
    + [(Number(), text) for text in ("nan", "inf", "-inf", "1e999", "x")],
)
def test_what_is_out_of_bounds_is_refused_in_a_few_words(kind, text):
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert len(caught.value.message) < 200


def convert(kind, text):
    return kind.convert(text, None, None)


def test_saves_are_counted_in_steps_or_minutes():
    assert convert(SaveInterval(), "1250") == Interval(steps=1250)
    assert convert(SaveInterval(), "1.5m") == Interval(minutes=1.5)
    assert Interval(steps=3).is_due(6, 0.0) and not Interval(steps=3).is_due(7, 1e9)
    assert Interval(minutes=2).is_due(1, 120.0) and not Interval(minutes=2).is_due(2, 119.0)


def test_validations_are_counted_in_steps_or_epochs():
    assert convert(EvalInterval(), "12") == 12 and convert(EvalInterval(), "epoch") == "epoch"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90m", 5400), ("1.5h", 5400), ("2d", 172800), ("1:30:00", 5400), ("0:05", 300)]
    + [("1-12:00:00", 129600), ("100:00:01", 360001)],
)
def test_spans_of_time(text, seconds):
    assert convert(TimeSpan(), text) == seconds


@pytest.mark.parametrize(
    ("kind", "text"),
    [(SaveInterval(), text) for text in ("", "0", "0m", "1.5", "-3", "3h", "m")]
    + [(EvalInterval(), text) for text in ("0", "epochs", "-1", "²")]
    + [(TimeSpan(), text) for text in ("", "90", "0s", "1:60:00", "-5m", "5 m")],
)
def test_what_is_none_of_these_is_refused(kind, text):
    with pytest.raises(click.BadParameter, match="such as|nor"):
        convert(kind, text)
