import json
import os
import sys
import tempfile
import threading
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from bilm.io.messages import held_back, json_line, message_lines, printable, shown
from tests.helpers import raising

DIRECTIONS = [
    c
    for c in map(chr, range(sys.maxunicode + 1))
    if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
]
MARKS = ["\u200e", "\u200f", "\u061c"]
CONTROL = [chr(i) for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"] + DIRECTIONS + MARKS


@given(st.text() | st.text(st.sampled_from(CONTROL)))
def test_control_characters_are_escaped(text):
    for one in (printable(text), message_lines(text), json_line(text), shown(text)):
        assert not set(CONTROL) & set(one)
    assert json.loads(json_line(text)) == text


def test_long_lines_are_shortened():
    word = "x" * 3_000_000
    assert len(shown(word)) == len(shown([word])) == 80
    first, second = message_lines(f"run/a: {word} is unknown\nshort").split("\n")
    assert first.startswith("run/a: xx") and first.endswith("xx is unknown") and len(first) < 1000
    assert second == "short"


def test_printable_text_is_unchanged():
    text = "naïve 日本 👩\u200d🔬\tand\nlines"
    assert printable(text) == text and json.loads(json_line({"a": text})) == {"a": text}


def test_output_is_held_back_in_the_main_thread(capfd, monkeypatch):
    def write():
        with held_back():
            os.write(2, b"seen")

    write()
    assert capfd.readouterr().err == ""
    thread = threading.Thread(target=write)  # beside others, whose output it must not take
    thread.start()
    thread.join()
    assert capfd.readouterr().err == "seen"
    monkeypatch.setattr(tempfile, "TemporaryFile", raising(FileNotFoundError(2, "No usable directory")))
    write()
    assert capfd.readouterr().err == "seen"
