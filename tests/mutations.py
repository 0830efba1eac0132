"""Damage to small valid files: random, and the same again for the same state of `random.Random`."""

import json
import re
from contextlib import suppress

import h5py
import numpy as np

# JSON values, as they are written, that a reader may not expect.
JSON_VALUES = (
    *("null", "true", "false", "[]", "{}", '{"a": {"b": [1]}}'),
    *('""', '"x"', '"\\ud800"', '"\\u0000"', '"10"'),
    *("0", "1", "-1", "2", "0.5", "1.0", "-0.0", "1e-320", "1e308", "1e400", "-1e400", "NaN", "Infinity"),
    *("2147483648", "9223372036854775808", "18446744073709551616", "1" + "0" * 400, "9" * 5000),
    *("[" * depth + "]" * depth for depth in (30, 500, 980, 100_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (30, 300, 480, 100_000)),
    *("[[1, 2]]", "[1]", "[null]", "[[0, 0]]", "[[1, 1e9]]", '"' + "x" * 100_000 + '"'),
)
WORDS = (
    *("", " ", "/", ".", "..", "../x", "\0", "\ufeff", "\u2028", "\x85", "\r", "\udcff", "%s", "{}", "$x$"),
    *("<S>", "</S>", "<UNK>", "!!!MAXTERMID", "x" * 300, "x" * 100_000, "9" * 5000, "-1", "0", "1e400"),
    *("18446744073709551616", "NaN", "model.ckpt-", "model.ckpt-" + "9" * 18, "model.ckpt-" + "9" * 400),
)


def mutate_bytes(random, data, others=()):
    """Change some bytes, or cut, repeat, insert or delete a block, or go on as another file does."""
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        start = random.randrange(len(data) + 1)
        end = min(len(data), start + random.choice((1, 1, 2, 4, 8, 64, 1024)))
        block = data[start:end]
        replacement = random.choice(
            (
                bytes(byte ^ 1 << random.randrange(8) for byte in block[:1]) + block[1:],
                bytes(random.randrange(256) for _ in block),
                random.choice((b"\0", b"\xff", b"\x7f", b"\x80", b"\x01")) * len(block),
                block * random.choice((0, 2, 2, 3, 100)),
                block + bytes(random.randrange(256) for _ in range(random.randrange(9))),
                data[(other := random.randrange(len(data) + 1)) : other + len(block)],
            )
        )
        data = data[:start] + replacement + data[end:]
    if random.random() < 0.1:
        data = data[: random.randrange(len(data) + 1)]
    if others and random.random() < 0.1:
        other_data = random.choice(others)
        data = data[: random.randrange(len(data) + 1)] + other_data[random.randrange(len(other_data) + 1) :]
    return data


def mutate_text(random, text):
    """Put strange words in the place of others, or drop, repeat and swap lines."""
    for _ in range(random.choice((1, 1, 2, 4))):
        words = list(re.finditer(r"[^\s\"':,{}\[\]]+", text))
        if words and random.random() < 0.7:
            word = random.choice(words)
            text = text[: word.start()] + random.choice(WORDS) + text[word.end() :]
            continue
        lines = text.split("\n")
        i, j = random.randrange(len(lines)), random.randrange(len(lines))
        lines[i : i + 1] = random.choice(([], [lines[i]] * 2, [lines[j]], [random.choice(WORDS)]))
        text = random.choice(("\n", "\n", "\r\n", "\r")).join(lines)
    return text


def mutate_json(random, value):
    """JSON text with values replaced or moved, keys missing, renamed or twice."""
    value, written = json.loads(json.dumps(value)), {}
    for mark in (f"@mark {i}@" for i in range(random.choice((1, 1, 1, 2, 4)))):
        places = list(_places(value))
        if not places:
            break
        container, key = random.choice(places)
        action = random.choice(("replace", "replace", "replace", "delete", "move", "rename", "twice"))
        if action == "delete":
            del container[key]
        elif action == "move":
            other, place = random.choice(places)
            container[key] = json.loads(json.dumps(other[place]))
        elif action == "replace" or isinstance(container, list):
            container[key], written[f'"{mark}"'] = mark, random.choice(JSON_VALUES)
        else:
            container[mark] = container.pop(key) if action == "rename" else random.choice((None, 0, [], "x"))
            written[f'"{mark}"'] = json.dumps(key if action == "twice" else random.choice(WORDS))
    text = json.dumps(value)
    for mark, replacement in written.items():
        text = text.replace(mark, replacement)
    return text


def _places(value):
    """Container and key of everything below a value."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def mutate_hdf5(random, path):
    """Change what a file holds, so that HDF5 can still read it."""
    with h5py.File(path, "r+") as file:
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            names = []
            file.visit(names.append)
            name = random.choice(names or ["x"])
            with suppress(OSError, ValueError, RuntimeError, KeyError):  # what HDF5 will not do
                random.choice(_HDF5_MUTATIONS)(random, file, name)


def _put(make):
    """Something else in the place of an array; it is told the array's shape."""

    def mutate(random, file, name):
        shape = file[name].shape if isinstance(file.get(name), h5py.Dataset) else (2, 3)
        if name in file:
            del file[name]
        make(file, name, shape or ())

    return mutate


def _of_type(dtype):
    return _put(lambda file, name, shape: file.create_dataset(name, shape, dtype))


def _declared(shape, **settings):
    """An array of which nothing is stored."""
    return _put(lambda file, name, _: file.create_dataset(name, shape, "f4", **settings))


def _put_virtual(file, name, shape):
    layout = h5py.VirtualLayout(shape or (2,), "f4")
    layout[...] = h5py.VirtualSource("/etc/hostname", "x", shape or (2,))
    file.create_virtual_dataset(name, layout)


def _put_same_size(random, file, name):
    """An array as large as a model may want it, of which nothing is stored."""
    if isinstance(file.get(name), h5py.Dataset) and file[name].shape:
        _declared(file[name].shape, fillvalue=random.choice((0.0, np.nan)))(random, file, name)


def _reshape(random, file, name):
    shape = list(file[name].shape or ()) if isinstance(file.get(name), h5py.Dataset) else [2]
    random.shuffle(shape)
    change = random.choice(([0], [1], [2, 2], []))
    _put(lambda file, name, _: file.create_dataset(name, (*shape, *change), "f4"))(random, file, name)


def _rename(random, file, name):
    names = (
        b"\xff\xfe",
        b"CNN/W_cnn_" + b"9" * 5000,
        b"RNN_0/RNN/LSTMCell/W_0",
        b"x" * 60_000,
        b"W_cnn_\xd9\xa3",
    )
    if name in file:
        file.move(name, random.choice((*names, f"{name}/x".encode(), b"sub/group/x")))


def _set_attribute(random, file, name):
    place = random.choice((file, file.get(name))) or file
    key = random.choice(list(file.attrs) or ["x"])
    numbers = (1, -1, 2**64 - 1, 1.5, np.nan, True, np.zeros((2, 2)), np.zeros(0))
    texts = (b"\xff", "", "x", np.array(["1", "2"], object), *JSON_VALUES[:20])
    values = (*numbers, *texts, h5py.Empty("f4"), h5py.Empty("S1"))
    value = random.choice(values)
    if isinstance(place, h5py.Group | h5py.Dataset):
        place.attrs.pop(key, None)
        if random.random() < 0.9:
            place.attrs[key] = value


def _mutate_attribute(random, file, name):
    """Other JSON in an attribute that is JSON."""
    for key in list(file.attrs):
        try:
            text = mutate_json(random, json.loads(file.attrs[key]))
        except (TypeError, ValueError, RecursionError):
            continue
        if len(text) < 60_000 and text.isascii():
            file.attrs[key] = np.bytes_(text)


_HDF5_MUTATIONS = (
    _reshape,
    _rename,
    _put_same_size,
    _set_attribute,
    _set_attribute,
    _mutate_attribute,
    _put(lambda file, name, shape: None),
    _put(lambda file, name, shape: file.create_group(name)),
    _put(lambda file, name, shape: file.create_dataset(name, data=h5py.Empty("f4"))),
    _put(lambda file, name, shape: file.__setitem__(name, h5py.SoftLink("/" + name))),
    _put(lambda file, name, shape: file.__setitem__(name, h5py.SoftLink("/nothing"))),
    _put(lambda file, name, shape: file.__setitem__(name, h5py.SoftLink("/"))),
    _put(lambda file, name, shape: file.__setitem__(name, file["/"])),
    _put(lambda file, name, shape: file.__setitem__(name, np.dtype("f4"))),
    _put(lambda file, name, shape: file.__setitem__(name, h5py.ExternalLink("other.hdf5", "/embedding"))),
    _put(lambda file, name, shape: file.__setitem__(name, h5py.ExternalLink("/dev/zero", "/x"))),
    _put(
        lambda file, name, shape: file.create_dataset(
            name, shape or (2,), "f4", external=[("/dev/zero", 0, h5py.h5f.UNLIMITED)]
        )
    ),
    _put(_put_virtual),
    *map(
        _of_type, ("i4", "?", "c8", "S3", "f2", "f8", ">f4", "V5", "f16", h5py.ref_dtype, h5py.string_dtype())
    ),
    *map(_of_type, (h5py.vlen_dtype(np.dtype("f4")), [("a", "f4"), ("b", "i2")], ("f4", (3,)))),
    _of_type(h5py.enum_dtype({"a": 1})),
    _declared((2**40,)),
    _declared((2**31, 2**31)),
    _declared((2**20, 4), chunks=(2**10, 4), compression="gzip"),
    _declared((2**40, 4), chunks=(2**10, 4), compression="gzip"),
    _declared((2**40, 4), maxshape=(None, 4), chunks=(1, 4)),
    _declared((2**61,), chunks=(1,)),
)
