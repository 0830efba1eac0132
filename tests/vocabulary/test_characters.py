import tracemalloc

from bilm.vocabulary.vocabulary import PackedWords


def test_packed_words_are_small():
    words = [str(number) for number in range(10_000)]
    tracemalloc.start()
    packed = PackedWords(words, 50)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(packed.lengths) == 10_000
    assert size < 10_000 * 40
