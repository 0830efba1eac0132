import json
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from bilm.io.messages import excerpt, json_line, printable, quoted, shown

DIRECTIONS = [
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
]
MARKS = ["\u200e", "\u200f", "\u061c"]
CONTROL = [chr(i) for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"] + DIRECTIONS + MARKS


@given(st.text() | st.text(st.sampled_from(CONTROL)))
def test_nothing_that_orders_a_terminal_about_comes_through(text):
    for one in (quoted(text), excerpt(text), printable(text), json_line(text), shown(text)):
        assert not set(CONTROL) & set(one)
    assert json.loads(json_line(text)) == text


def test_what_is_long_is_cut():
    word = "x" * 3_000_000
    assert len(quoted(word)) == len(shown(word)) == len(shown([word])) == len(excerpt(word)) == 80
    assert quoted("é\x1b[2J") == r"'é\x1b[2J'" and excerpt("lstm.dim") == "lstm.dim"


def test_printable_text_stays_as_it_is():
    text = "naïve 日本 👩\u200d🔬\tand\nlines"
    assert printable(text) == text and json.loads(json_line({"a": text})) == {"a": text}
