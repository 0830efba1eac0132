"""bilm-tf's dataset classes, which yield dictionaries with the characters of every token.

Training and evaluation use the same tokens in a compact form, see `bilm.data.pipeline`.
"""

import functools
import random
from collections.abc import Iterable, Iterator

import numpy as np

from bilm.data.pipeline import Rows, Window
from bilm.data.stream import Block, Place, encode_sentences
from bilm.errors import DataError, OptionsError, checked, require_positive
from bilm.io import PathLike, as_patterns
from bilm.io.lines import read_lines
from bilm.io.shards import find_files
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

InvalidNumberOfCharacters = OptionsError
"""bilm-tf's error of ``n_characters`` other than 261 (training) and 262 (inference)."""


class LMDataset:
    """bilm-tf's dataset for one direction.

    Blank lines are empty sentences. In training, shards are read in random order, endlessly; random numbers
    come from Python's `random` and its seed. In test mode each shard is read once, from the last of the
    sorted names to the first. (bilm-tf reads them in reverse order of ``glob``, which depends on the file
    system, so its perplexity of several shards may differ between machines.)

    Args:
        filepattern: patterns for `find_files`.
        vocab: the vocabulary; with a `UnicodeCharsVocabulary`, batches contain characters.
        reverse: reverse every sentence.
        test: read the shards once instead of endlessly.
        shuffle_on_load: shuffle the sentences of a shard, which is then held in memory.

    Attributes:
        filepattern: the patterns, a tuple of strings.
        vocab: as in Args, like `reverse`, `test` and `shuffle_on_load`.
        max_word_length: characters of a word; None for a word-level vocabulary.

    Raises:
        DataError: no file matches; or, during reading, a file is not text or all files are empty.

    Example:
        >>> dataset = LMDataset("corpus.txt", Vocabulary("vocab.txt"), test=True)
        >>> batch = next(dataset.iter_batches(batch_size=4, num_steps=20))
        >>> batch["token_ids"].shape
        (4, 20)
        >>> dataset.vocab.decode(batch["next_token_id"][0, :4])
        'an owl hid a'
    """

    @checked
    def __init__(
        self,
        filepattern: PathLike | Iterable[PathLike],
        vocab: Vocabulary,
        reverse: bool = False,
        test: bool = False,
        shuffle_on_load: bool = False,
    ) -> None:
        self.filepattern, self.vocab = as_patterns(filepattern, "filepattern"), vocab
        self._files = [file.absolute() for file in find_files(self.filepattern)]  # read again and again
        self.max_word_length = vocab.max_word_length if isinstance(vocab, UnicodeCharsVocabulary) else None
        self.reverse, self.test, self.shuffle_on_load = reverse, test, shuffle_on_load
        self._random = random.Random(random.getrandbits(64))

    def get_sentence(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield sentences: ids (n words + 2,), and characters (n words + 2, max_word_length) or None."""
        for words in self._sentences:  # "yield from" would close the sentences with this generator
            if self.reverse:
                words = words[::-1]
            characters = None
            if isinstance(self.vocab, UnicodeCharsVocabulary):
                characters = self.vocab.encode_chars(words, self.reverse, split=False)
            yield self.vocab.encode(words, self.reverse, split=False), characters

    def iter_batches(self, batch_size: int, num_steps: int) -> Iterator[dict[str, np.ndarray | None]]:
        """Yield dictionaries with ``token_ids``, ``tokens_characters`` and ``next_token_id``.

        Ids are int32 (batch_size, num_steps); characters are int32 (batch_size, num_steps, max_word_length),
        or None for a word-level vocabulary. An incomplete last batch is dropped.
        """
        return (batches[self.reverse] for batches in self._by_direction(batch_size, num_steps))

    def _by_direction(self, n_rows: int, n_steps: int) -> Iterator[list[dict[str, np.ndarray | None]]]:
        """Return an iterator over the batches of both directions."""
        require_positive(batch_size=n_rows, num_steps=n_steps)
        # One sentence a block, so that hardly more are read than the batches have.
        texts = map(" ".join, self._sentences)
        blocks = (Block(encode_sentences([text], self.vocab), Place()) for text in texts)
        windows = Rows(blocks, self.vocab, [None] * n_rows).windows(n_steps, bidirectional=True)
        return ([self._batch(window, direction) for direction in range(2)] for window in windows)

    def _batch(self, window: Window, direction: int) -> dict[str, np.ndarray | None]:
        ids, characters = window.inputs[direction], None
        if isinstance(self.vocab, UnicodeCharsVocabulary):
            rows = self.vocab.character_rows(ids.reshape(-1), window.oov)
            characters = rows.reshape(*ids.shape, -1)
            ids = np.where(ids < self.vocab.size, ids, np.int32(self.vocab.unk))
        return {"token_ids": ids, "tokens_characters": characters, "next_token_id": window.targets[direction]}

    @functools.cached_property
    def _sentences(self) -> Iterator[list[str]]:
        """Words of sentences, in one iterator for all calls."""
        while True:
            is_empty = True
            shards = list(self._files)
            if not self.test:
                self._random.shuffle(shards)
            for path in reversed(shards):
                sentences: Iterable[list[str]] = map(str.split, read_lines(path))
                if self.shuffle_on_load:
                    sentences = list(sentences)
                    self._random.shuffle(sentences)
                for words in sentences:
                    is_empty = False
                    yield words
            if self.test:
                return
            if is_empty:
                raise DataError(f"no sentences in {self._files[0]} (of {len(self._files)} files)")


class BidirectionalLMDataset(LMDataset):
    """bilm-tf's dataset for both directions.

    Both directions read the same sentences in the same order; in bilm-tf the orders differ if anything is
    shuffled. Arguments, errors and the other methods are as for `LMDataset`; `get_sentence` yields the
    forward direction.

    Example:
        >>> vocabulary = UnicodeCharsVocabulary("vocab.txt", max_word_length=50)
        >>> dataset = BidirectionalLMDataset("corpus.txt", vocabulary)
        >>> batch = next(dataset.iter_batches(batch_size=4, num_steps=20))
        >>> batch["tokens_characters"].shape, batch["next_token_id_reverse"].shape
        ((4, 20, 50), (4, 20))
    """

    @checked
    def __init__(
        self,
        filepattern: PathLike | Iterable[PathLike],
        vocab: Vocabulary,
        test: bool = False,
        shuffle_on_load: bool = False,
    ) -> None:
        super().__init__(filepattern, vocab, False, test, shuffle_on_load)

    def iter_batches(self, batch_size: int, num_steps: int) -> Iterator[dict[str, np.ndarray | None]]:
        """Yield the arrays of `LMDataset`, and the backward direction's with the suffix ``_reverse``."""
        for forward, backward in self._by_direction(batch_size, num_steps):
            yield forward | {f"{name}_reverse": array for name, array in backward.items()}
