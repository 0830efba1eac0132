"""The values of flags."""

import click
import pytest

from bilm.cli.flags import Parsed, key_and_value, seconds
from tests.helpers import refuse

TIME = Parsed("TIME", seconds)


def test_values():
    assert key_and_value("a.b=[1]") == ("a.b", [1]) and key_and_value("a=b=c") == ("a", "b=c")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("45s", 45), ("90m", 5400), ("1.5h", 5400), ("2d", 172800), ("1:30:00", 5400), ("0:05", 300)]
    + [("1-12:00:00", 129600), ("100:00:01", 360001)],
)
def test_spans_of_time(text, seconds):
    assert TIME.convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "90", "0s", "1:60:00", "-5m", "5 m"])
def test_other_words_are_no_time(text):
    with pytest.raises(click.BadParameter, match="is not a time such as 90m"):
        TIME.convert(text, None, None)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        pytest.param("--max-steps", "0", "0 is not in the range x>=1", id="too-little"),
        pytest.param("--n-epochs", "9" * 5000, "is not a valid integer", id="many-digits"),
        pytest.param("--save-every", "9" * 5000, "is neither a number of steps, such as 1250", id="steps"),
        pytest.param("--max-time", "9" * 5000 + "d", "is not a time such as 90m", id="time"),
        pytest.param("--dropout", "1", "1.0 is not in the range 0<=x<1", id="dropout"),
        pytest.param("--set", "=3", "'=3' is not KEY=VALUE", id="no-key"),
        pytest.param("--set", "lstm.dim", "'lstm.dim' is not KEY=VALUE", id="no-value"),
        pytest.param("--se" + "e" * 5000, "1", "No such option", id="flag"),
        pytest.param("--optimizer", "\x1b[2J", r"'\x1b[2J' is not one of 'adagrad'", id="control-characters"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_a_few_words(flag, value, message):
    found = refuse("train", flag, value, status=2)
    assert message in found and len(found) < 400
