"""Damaged files: whatever a reader is given, it succeeds or raises a `BilmError`, soon and in little memory.

Each reader gets some hundred inputs, mutated from small valid files, and as many as ``BILM_FUZZ`` says
where it is set. They are read in a child process with limits, so that a crash of a library, a hang, or a
size in a file that was believed is a failure as any other. An input depends on the name of its reader
and its number only; the one that failed is left where the message says.

HDF5 itself was never seen to crash on damaged bytes. It loops for ever on some damaged text of variable
length, which no reader of ours asks for.
"""

import gzip
import json
import lzma
import sys
import zlib
from types import SimpleNamespace
from zipfile import ZIP_DEFLATED, ZIP_STORED

import numpy as np
import pytest
import zstandard

from bilm.analysis.curves import X_AXES, curves_of, load_curves
from bilm.data.corpus import corpus_record, count_corpus, recorded_counts
from bilm.data.stream import Place, Position, Unfinished
from bilm.embedding.hdf5_output import find_parts
from bilm.errors import BilmError
from bilm.io.lines import read_lines, read_stream_lines
from bilm.io.run_files import METRICS_FILE
from bilm.io.shards import same_shards
from bilm.options import Options
from bilm.options.options_file import load_inference_options, load_options, toml_lines
from bilm.run_directory.directory import RunDirectory, RunModel
from bilm.run_directory.records import read_calls
from bilm.run_directory.state import Best, RunState, read_state
from bilm.runs.settings import read_arguments
from bilm.text.pipeline import TextPipeline
from bilm.text.prepare import prepare
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocabulary
from bilm.vocabulary.vocabulary_file import check_vocabulary
from bilm.weights.distribution import find_distribution, find_weights
from bilm.weights.hdf5_file import read_hdf5, read_token_embeddings
from bilm.weights.names import dump_names, weight_names
from tests import allennlp
from tests.distributed import model_files, write_zip
from tests.fuzzing import damaged_hdf5, damaged_json, damaged_text, read_damaged, with_inputs
from tests.helpers import FILES, GOLDEN, TRAIN, VOCAB, invoke, small_options
from tests.mutations import mutate_bytes, mutate_json, mutate_text
from tests.records import call_line, heldout_line, plan, train_line
from tests.text.test_prepare import SAMPLES, TEI, WIKI

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")

# --- text -------------------------------------------------------------------------------------------


def _damaged_corpus(random, place):
    text = TRAIN.read_bytes()[:2000]
    forms = [gzip.compress(text, mtime=0), lzma.compress(text), zstandard.ZstdCompressor().compress(text)]
    forms += [text, _xz_of_4_gigabytes(text), *(form * 3 for form in forms)]
    (place / "text").write_bytes(mutate_bytes(random, random.choice(forms), forms))


def _xz_of_4_gigabytes(text):
    """What looks back over 4 GB, or so it says."""
    data = lzma.compress(text)
    header = data[12:16] + b"\x28" + data[17:20]
    return data[:12] + header + zlib.crc32(header).to_bytes(4, "little") + data[24:]


def _read_corpus(place):
    """As a file and as a stream, which must come to the same."""
    outcomes = []
    with open(place / "text", "rb") as stream:
        for lines in (read_lines(place / "text"), read_stream_lines(stream, "a stream")):
            try:
                outcomes.append(list(lines))
            except BilmError:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]


VOCABULARY_READS = [
    lambda place: check_vocabulary((place / "vocab.txt").read_bytes(), "vocab.txt"),
    lambda place: UnicodeCharsVocabulary(place / "vocab.txt", 20).encode_chars("the cat"),
    lambda place: load_vocabulary(place / "vocab.txt", 20),
]
CORPUS_READS = [_read_corpus, lambda place: count_corpus([place / "text"], Vocabulary(VOCAB))]

RAW = [files for files, *_ in SAMPLES.values() if not isinstance(files, dict)] + [TEI, WIKI]


def _damaged_raw_text(random, place):
    raw = [text if isinstance(text, bytes) else text.encode() for text in RAW]
    (place / "raw").write_bytes(mutate_bytes(random, random.choice(raw), raw))


def _prepare(place):
    prepare(place / "raw", place / "corpus", heldout=0, overwrite=True, language="th")


# --- JSON -------------------------------------------------------------------------------------------


def _read_options(place):
    options = load_options(place / "options.json")
    written = options.to_json()
    assert Options.from_json(json.loads(json.dumps(written))).to_json() == written
    assert len(dump_names(options)) < 100_000


def _read_metrics(place):
    (metrics,) = load_curves([place]).values()
    for x in X_AXES:
        list(curves_of(metrics, x))


def _checkpoint(text):
    """One that holds a text alone."""
    return SimpleNamespace(prefix="model.ckpt-1", extra=lambda name: text, shape=lambda name: ())


RECORD = corpus_record(count_corpus([TRAIN], Vocabulary(VOCAB)))


def _read_record(place):
    state = read_state(_checkpoint((place / "state").read_bytes()))
    assert state is not None
    counts = recorded_counts(state.plan.train_prefix)
    assert counts.oov_rate >= 0
    # The checksum of a file that is as old and as large as it was is compared when it is read.
    assert [shard.size for shard in same_shards(counts.shards, [TRAIN])] == [RECORD["shards"][0]["size"]]


def _read_state(place):
    state = read_state(_checkpoint((place / "state").read_bytes()))
    assert state is not None and isinstance(state.step, int)
    assert read_state(_checkpoint(json.dumps(state.to_json()))) is not None


ROWS = [None, Unfinished("the cat sat", 2)]
STATE = RunState(
    plan(train_prefix=RECORD),
    n_done=3,
    n_tokens=9,
    positions=[Position(Place(1, 0, 1, 2, 3, 4), ROWS)],
    best=Best(2, 9.0),
)

# --- HDF5 -------------------------------------------------------------------------------------------


OPTIONS = Options.from_json(small_options())
SETTINGS = {"layers": "all", "weights": "0123"}


def _weights(file):
    for i, name in enumerate(weight_names(OPTIONS)):
        file.create_dataset(name.hdf5, data=np.ones(name.shape, "f4"), compression=None if i % 4 else "gzip")


def _embeddings(file):
    for i in range(3):
        file.create_dataset(str(i), data=np.ones((3, 4, 8), "f4"), compression="gzip")
    file.attrs.update(
        {"bilm_settings": np.bytes_(json.dumps(SETTINGS)), "bilm_text": np.bytes_("0" * 64), "bilm_lines": 3}
    )


def _describe(flag, weights):
    weights.with_name("options.json").write_text(json.dumps(OPTIONS.to_inference_json()))
    invoke("info", flag, weights)


def _vectors(file):
    file["embedding"] = np.ones((5, 4), "f4")


# --- models as distributed ------------------------------------------------------------------------------


def _damaged_archive(random, place):
    """Its bytes are damaged, or those of one of its files."""
    files = model_files()
    if random.random() < 0.4:
        name = random.choice(list(files))
        files[name] = mutate_bytes(random, files[name], list(files.values()))
    data = write_zip(place / "x.zip", files, random.choice((ZIP_STORED, ZIP_DEFLATED))).read_bytes()
    (place / "x.zip").write_bytes(mutate_bytes(random, data, [data]))


def _read_archive(place):
    found = find_distribution(place / "x.zip")
    found.vocabulary()
    found.arrays()


def _damaged_state_dict(random, place):
    """Of AllenNLP, in a file of PyTorch's new or old form, alone or in a tar archive."""
    sys.modules["torch"].set_num_threads(1)  # a fork lacks its threads, and would wait for them
    torch_file = allennlp.saved(allennlp.state_dict(), _use_new_zipfile_serialization=random.random() < 0.5)
    data = torch_file if random.random() < 0.5 else mutate_bytes(random, torch_file)
    (place / "weights.th").write_bytes(data)
    tar = allennlp.write_tar(place / "x.tar", {"config.json": b"{}", "weights.th": data}, "w").read_bytes()
    (place / "x.tar").write_bytes(mutate_bytes(random, tar))
    data = gzip.compress(tar, 1, mtime=0)
    (place / "x.tar.gz").write_bytes(mutate_bytes(random, data))


def _read_weights(name):
    return lambda place: find_weights(place / name).read(dump_names(load_inference_options(FILES[0])))


ARGUMENTS = {"train_prefix": ["a"], "vocab_file": "v", "seed": 1, "dropout": 0.1, "save_every": "30m"}
READERS = {
    "archive": (_damaged_archive, [_read_archive, lambda place: invoke("info", place / "x.zip")]),
    "vocabulary": (damaged_text("vocab.txt", VOCAB.read_text()), VOCABULARY_READS),
    "raw text": (_damaged_raw_text, [_prepare]),
    "text.json": (
        damaged_json(
            "text.json", {"language": "en", "form": "NFC", "split": "lines", "icu": "1", "version": 1}
        ),
        [lambda place: [*TextPipeline.from_file(place / "text.json").sentences("A b. C")]],
    ),
    "corpus": (_damaged_corpus, CORPUS_READS),
    "options": (
        damaged_json("options.json", small_options(n_tokens_vocab=73)),
        [_read_options, lambda place: load_inference_options(place / "options.json")],
    ),
    "arguments": (
        damaged_text("run.toml", "\n".join(toml_lines(ARGUMENTS | {"options": small_options()}))),
        [lambda place: read_arguments(place / "run.toml")],
    ),
    "metrics": (
        damaged_json(
            METRICS_FILE, *(train_line(i, tokens=9 * i) for i in range(3)), heldout_line(3, best=True)
        ),
        [_read_metrics],
    ),
    "calls": (damaged_json("calls.jsonl", call_line()), [lambda place: read_calls(place / "calls.jsonl")]),
    "state": (damaged_json("state", STATE.to_json()), [_read_state, _read_record]),
    "weights": (
        damaged_hdf5("weights.hdf5", _weights),
        [
            lambda place: read_hdf5(place / "weights.hdf5", dump_names(OPTIONS)),
            lambda place: _describe("--arrays", place / "weights.hdf5"),
            lambda place: _describe("--json", place / "weights.hdf5"),
        ],
    ),
    "vectors": (
        damaged_hdf5("vectors.hdf5", _vectors),
        [lambda place: read_token_embeddings(place / "vectors.hdf5", 4)],
    ),
    "embeddings": (
        damaged_hdf5("out.hdf5.parts/part-000000000000.hdf5", _embeddings),
        [lambda place: find_parts(place / "out.hdf5", SETTINGS)],
    ),
}


@with_inputs
@pytest.mark.parametrize("name", READERS)
def test_damaged_files(name, inputs, tmp_path):
    read_damaged(name, *READERS[name], tmp_path, inputs)


@with_inputs
def test_damaged_state_dicts(inputs, tmp_path):
    pytest.importorskip("torch")
    reads = [*map(_read_weights, ("weights.th", "x.tar", "x.tar.gz"))]
    read_damaged("state dict", _damaged_state_dict, reads, tmp_path, inputs)


# --- run directories --------------------------------------------------------------------------------


def _damaged_run(run):
    """One of its files is damaged, as text or as bytes."""
    contents = {file.name: file.read_bytes() for file in sorted(run.iterdir()) if "tfevents" not in file.name}
    contents[METRICS_FILE] += json.dumps(heldout_line(2, best=True)).encode() + b"\n"

    def write(random, place):
        (place / "run").mkdir(exist_ok=True)
        for name, data in contents.items():
            if not (place / "run" / name).exists() or (place / "run" / name).read_bytes() != data:
                (place / "run" / name).write_bytes(data)
        file = place / "run" / random.choice(list(contents))
        if file.suffix == ".json" and random.random() < 0.7:
            file.write_text(mutate_json(random, json.loads(file.read_text())))
        elif ".ckpt" not in file.name and random.random() < 0.7:
            file.write_text(mutate_text(random, file.read_text()), errors="surrogateescape")
        else:
            file.write_bytes(mutate_bytes(random, file.read_bytes(), list(contents.values())))

    return write


def _read_run(place):
    run = RunDirectory.open(place / "run")
    checkpoint = run.latest()
    checkpoint.read(run.names)
    checkpoint.accumulators(run.names)
    assert checkpoint.step() >= 0
    RunModel(run.path).check_vocabulary(load_vocabulary(run.vocabulary_file))


def _draw(place):
    if zlib.crc32((place / "run" / METRICS_FILE).read_bytes()) % 20 == 0:
        invoke("plot", place / "run", "--outfile", place / "plot.png", "--overwrite")


RUN_READS = [
    _read_run,
    lambda place: invoke("info", place / "run"),
    lambda place: invoke("info", "--json", place / "run"),
    _draw,
]


@pytest.mark.slow
@with_inputs
def test_damaged_runs(inputs, tmp_path):
    read_damaged("run", _damaged_run(GOLDEN / "run-0.2.0" / "finished"), RUN_READS, tmp_path, inputs)


def test_unexpected_errors_fail_the_fuzz_test(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="KeyError: 'x'"):
        read_damaged("bad", lambda random, place: None, [lambda place: {}["x"]], tmp_path)
