"""Damage to small valid files: random, and the same again for the same state of `random.Random`."""

import json
import re

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
