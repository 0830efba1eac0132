"""A corpus as a stream of encoded sentences, in file order or shuffled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import numpy as np

from bilm.arguments import PathLike, require_positive
from bilm.corpus import name_files, read_sentences
from bilm.errors import DataError, VocabularyError
from bilm.vocab import UnicodeCharsVocabulary, Vocabulary
from bilm.vocab_file import BOS, EOS

_ENCODE_TOKENS = 1 << 13
_MAX_BUFFER_TOKENS = 1 << 25  # a second limit of the shuffle buffer, for corpora of very long lines


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """A sentence as ids.

    Attributes:
        ids: int32 (n words + 2,), from ``<S>`` to ``</S>``. With a vocabulary over characters an
            out-of-vocabulary word is ``vocab.size + k`` for ``oov[k]``; otherwise it is ``<UNK>``.
        oov: The out-of-vocabulary words in order of occurrence.
    """

    ids: np.ndarray
    oov: tuple[str, ...] = ()


def encode_sentences(
    files: Iterable[PathLike], vocab: Vocabulary, keep_blank: bool = False
) -> Iterator[EncodedSentence]:
    """Yield the sentences of files as ids.

    Args:
        files: Read in the order given.
        vocab: Over characters or over words, with all three special tokens.
        keep_blank: Take a blank line for an empty sentence, as bilm-tf does.

    Raises:
        DataError: A file cannot be read.
        VocabularyError: A special token is missing.
    """
    if min(vocab.bos, vocab.eos, vocab.unk) < 0:
        raise VocabularyError("the vocabulary has not all of <S>, </S>, <UNK>")
    tokens: list[str] = []
    ends: list[int] = []
    for path in files:
        for words in read_sentences(path, keep_blank):
            tokens.append(BOS)
            tokens += words
            tokens.append(EOS)
            ends.append(len(tokens))
            if len(tokens) >= _ENCODE_TOKENS:
                yield from _encode(tokens, ends, vocab)
                tokens, ends = [], []
    yield from _encode(tokens, ends, vocab)


def _encode(tokens: list[str], ends: list[int], vocab: Vocabulary) -> Iterator[EncodedSentence]:
    """Encode sentences that lie end to end."""
    ids = vocab.lookup(tokens)
    spans = pairwise([0, *ends])
    outside = np.flatnonzero(ids < 0)
    if not outside.size or not isinstance(vocab, UnicodeCharsVocabulary):
        ids[outside] = vocab.unk
        for start, end in spans:
            yield EncodedSentence(ids[start:end])
        return
    bounds = np.searchsorted(outside, [0, *ends])  # of each sentence in `outside`
    ids[outside] = vocab.size + np.arange(outside.size) - np.repeat(bounds[:-1], np.diff(bounds))
    words = [tokens[position] for position in outside.tolist()]
    for (start, end), (first, last) in zip(spans, pairwise(bounds.tolist()), strict=True):
        yield EncodedSentence(ids[start:end], tuple(words[first:last]))


def sentence_stream(
    files: Sequence[PathLike],
    vocab: Vocabulary,
    *,
    shuffle: bool,
    seed: int,
    shuffle_buffer: int = 100_000,
    endless: bool,
) -> Iterator[EncodedSentence]:
    """Yield sentences, one epoch or without end.

    Args:
        files: The shards.
        vocab: Over characters or over words, with all three special tokens.
        shuffle: Take the shards in random order and shuffle the sentences within consecutive blocks;
            a block may go over shards. Without it: file order.
        seed: The order depends on it, the epoch and the number of the block only.
        shuffle_buffer: Sentences of a block; blocks of very long lines are ended sooner.
        endless: Start another epoch when one ends.

    Raises:
        DataError: The files cannot be read, or have no sentence (`endless` only).
        VocabularyError: A special token is missing.
    """
    require_positive(shuffle_buffer=shuffle_buffer)
    for epoch in count():
        is_empty = True
        for sentence in _epoch(files, vocab, (seed, epoch) if shuffle else None, shuffle_buffer):
            is_empty = False
            yield sentence
        if not endless:
            return
        if is_empty:
            raise DataError(f"no sentence in {name_files(files)}: the corpus is empty")


def _epoch(
    files: Sequence[PathLike], vocab: Vocabulary, seed: tuple[int, int] | None, shuffle_buffer: int
) -> Iterator[EncodedSentence]:
    """Yield one epoch, in file order without a seed."""
    if seed is None:
        yield from encode_sentences(files, vocab)
        return
    shards = [files[k] for k in np.random.default_rng(seed).permutation(len(files))]
    for number, block in enumerate(_blocks(encode_sentences(shards, vocab), shuffle_buffer)):
        for k in np.random.default_rng((*seed, number)).permutation(len(block)).tolist():
            yield block[k]


def _blocks(sentences: Iterator[EncodedSentence], n_sentences: int) -> Iterator[list[EncodedSentence]]:
    """Cut a stream into lists of `n_sentences`, fewer where these are very long."""
    block: list[EncodedSentence] = []
    n_tokens = 0
    for sentence in sentences:
        block.append(sentence)
        n_tokens += len(sentence.ids)
        if len(block) == n_sentences or n_tokens >= _MAX_BUFFER_TOKENS:
            yield block
            block, n_tokens = [], 0
    if block:
        yield block
