import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data.windows import pack_windows
from tests.corpora import CHARACTERS, WORDS, encoded, known, sentences_of_words, strings


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 5), st.integers(1, 7), st.booleans(), st.booleans())
def test_masked_windows_hold_every_target_once(tmp_path_factory, sentences, n_rows, n_steps, both, of_words):
    vocab = WORDS if of_words else CHARACTERS
    blocks = encoded(tmp_path_factory, sentences, vocab)
    shape = {"n_rows": n_rows, "n_steps": n_steps, "bidirectional": both}
    windows = list(pack_windows(blocks, vocab, tail="mask", **shape))
    n_targets = sum(len(words) + 1 for words in sentences)
    assert sum(window.weights.sum() for window in windows) == n_targets
    for direction in range(1 + both):
        seen = Counter()
        for row in range(n_rows):
            inputs, targets = [], []
            for window in windows:
                assert window.inputs.shape == window.targets.shape == (1 + both, n_rows, n_steps)
                is_token = window.weights[row] == 1
                assert not window.inputs[direction, row][~is_token].any()
                assert not window.targets[direction, row][~is_token].any()
                inputs += strings(window.inputs[direction, row][is_token], window.oov, vocab)
                targets += strings(window.targets[direction, row][is_token], (), WORDS)
            first, last = ("</S>", "<S>") if direction else ("<S>", "</S>")
            assert known(inputs[1:]) == [t if t != last else first for t in targets[:-1]]
            for is_mark, words in itertools.groupby(inputs, key=lambda word: word == first):
                words = list(words)
                if is_mark:
                    seen[()] += len(words) - 1  # empty sentences: mark after mark
                else:
                    seen[tuple(words[::-1] if direction else words)] += 1
            seen[()] += bool(inputs) and inputs[-1] == first
        expected = Counter(tuple(known(words) if of_words else words) for words in sentences)
        assert +seen == expected
    assert all(window.weights.any() for window in windows)


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
def test_packing_options_agree(tmp_path_factory, sentences, n_rows, pull_steps, n_turns):
    sentences = encoded(tmp_path_factory, sentences, CHARACTERS)

    def pack(n_steps, **options):
        options |= {"n_rows": n_rows, "n_steps": n_steps, "bidirectional": True}
        return list(pack_windows(sentences, CHARACTERS, **options))

    def words(windows):
        steps = [(window, step) for window in windows for step in range(window.weights.shape[1])]
        return [
            (strings(one.inputs[..., k].ravel(), one.oov, CHARACTERS), one.targets[..., k].tolist())
            for one, k in steps
            if one.weights[:, k].any()
        ]

    for tail in ("mask", "drop"):
        short = pack(pull_steps, tail=tail)
        joined = pack(pull_steps * n_turns, tail=tail, pull_steps=pull_steps)
        assert words(joined) == words(short)
        assert sum(w.weights.sum() for w in joined) == sum(w.weights.sum() for w in short)
