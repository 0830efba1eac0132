import click
import pytest

from bilm.cli.intervals import EvalInterval, SaveInterval, TimeSpan
from bilm.cli.numbers import Integer, Number

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
