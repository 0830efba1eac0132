"""A text summarised in a line: its size, and anything odd."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bilm.data.corpus import CorpusCounts


def describe_corpus(counts: CorpusCounts, name: str = "corpus") -> list[str]:
    """A line on the text that was read, and one on damage in it."""
    blank = describe_blank_lines(counts.n_blank_lines)
    corpus = (
        f"{name}: {_number(counts.n_files, 'file')}, {_number(counts.n_sentences, 'sentence')}{blank}, "
        f"{counts.n_tokens:,} tokens with sentence ends, OOV {counts.oov_rate:.2%}"
    )
    if counts.first_nul is None:
        return [corpus]
    path, line = counts.first_nul
    nuls = _number(counts.n_nul, "NUL byte")
    return [corpus, f"warning: {nuls} in the text, first at {path} line {line}; kept as characters"]


def describe_blank_lines(n_blank_lines: int) -> str:
    """What to add to a count of sentences, or nothing."""
    return f" ({_number(n_blank_lines, 'blank line')} skipped)" if n_blank_lines else ""


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
