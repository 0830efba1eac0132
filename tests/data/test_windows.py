from bilm.data.pipeline import pack_windows
from bilm.data.stream import Block, Place, encode_sentences
from tests.corpora import WORDS


def test_sentences_come_in_order_and_rows_in_turn():
    sentences = encode_sentences([" ".join("abc"[k % 3] * k) for k in range(6)], WORDS)
    windows = pack_windows([Block(sentences, Place())], WORDS, n_rows=2, n_steps=4, bidirectional=True)
    first = next(windows)
    assert first.inputs[0].tolist() == [[0, 0, 4, 0], [0, 3, 3, 3]]
    assert first.targets[0].tolist() == [[1, 4, 1, 5], [3, 3, 3, 1]]
    assert first.inputs[1].tolist() == [[1, 1, 4, 1], [1, 3, 3, 3]]
    assert first.targets[1].tolist() == [[0, 4, 0, 5], [3, 3, 3, 0]]
