"""The page of the Python API, made from the docstrings; only the package itself is imported for it."""

from __future__ import annotations

import ast
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import bilm
from docs.markdown import code, docstring_prose

PACKAGE = Path(bilm.__file__).resolve().parent

_HEAD = """<!-- Written by `make docs` from the docstrings of the package. Change the text there. -->
# Python API

Everything that `bilm` exports, and the results of its functions; `help()` tells more. Paths are strings or
`pathlib.Path`; where a text is read, a sequence of them too. Arrays are NumPy's; layers and models return
tensors of Keras's backend, and take Keras's own arguments as `**kwargs`. The examples, which the tests run,
find the files of a small model, three layers of 24 dimensions, in their directory.
"""
_COMMAND = "The arguments are the options of [`bilm {name}`](reference/{name}.md)"
_ERRORS = """
## Errors

What a user can mend is a `bilm.errors.BilmError`, with a message that says what to try. Its subclasses:

"""

# In short, without examples: migrating.md has them, beside the calls of bilm-tf.
_AS_IN_BILM_TF = "As in bilm-tf"
# The sections of the page. What `bilm` does not export has its module.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Train, test, dump": (
        *("train", "restart", "bilm.runs.reporter.TrainingResult", "bilm.runs.reporter.Estimate"),
        *("test", "bilm.runs.reporter.TestResult", "dump_weights", "bilm.runs.reporter.DumpResult"),
        *("Options", "RunDirectory", "Reporter", "bilm.ray.cluster.Cluster"),
    ),
    "Embed": ("ElmoEmbedder", "Elmo", "ScalarMix", "SentenceVectorizer", "batch_to_ids"),
    "Predict": ("WordPredictor", "bilm.runs.prediction.Prediction"),
    _AS_IN_BILM_TF: (
        *("BidirectionalLanguageModel", "bilm.models.bidirectional_lm.BilmOutput"),
        *("weight_layers", "bilm.layers.scalar_mix.WeightedLayers"),
        "Vocabulary",
    ),
}
# A line each.
OTHERS = (
    *("Batcher", "BidirectionalLMDataset", "dump_bilm_embeddings", "dump_token_embeddings"),
    *("LanguageModel", "LMDataset", "TokenBatcher", "UnicodeCharsVocabulary", "use_xla"),
)
# The attributes, properties and methods that the page shows; of other classes all public ones.
MEMBERS = {
    "BidirectionalLanguageModel": ("n_layers", "dim", "reset_states"),
    "Cluster": ("address", "n_workers", "cpus_per_worker", "gpus_per_worker"),
    "DumpResult": ("weight_file", "options_file", "vocabulary_file"),
    "Elmo": ("get_output_dim", "call", "compute_mask"),
    "ElmoEmbedder": (
        *("from_model", "from_run", "embed_sentence", "embed_batch", "batch_to_embeddings"),
        *("embed_sentences", "embed_file", "get_output_dim"),
    ),
    "Estimate": ("n_steps", "step_seconds", "seconds", "tokens_per_second", "peak_bytes", "gpu_bytes"),
    "LanguageModel": ("call", "losses", "zero_states"),
    "Options": ("from_json", "to_json", "to_inference_json", "with_values"),
    "RunDirectory": ("path", "options", "open", "vocabulary_file", "create", "latest", "weights"),
    "ScalarMix": ("call",),
    "SentenceVectorizer": ("call",),
    "UnicodeCharsVocabulary": ("word_to_char_ids", "encode_chars"),
    "WordPredictor": ("from_model", "predict"),
    "Vocabulary": (
        *("bos", "eos", "unk", "from_words", "size", "words", "word_to_id", "id_to_word"),
        *("encode", "decode"),
    ),
}
# Functions that are commands, and the arguments that no option explains.
COMMANDS = {
    "train": ("options", "ray", "reporter", "should_stop", "**settings"),
    "restart": ("ray", "reporter", "should_stop", "**settings"),
    "test": ("reporter",),
    "dump_weights": (),
}
# What other pages say at length.
_SHORTER = {
    ("train", "`**settings`"): (
        "other options, such as `heldout_prefix` and `max_steps`; `max_time` is in seconds. In `changes`, "
        'any key of [`options.json`](options.md), such as `{"lstm.dim": 512}`.'
    ),
}
_SPELLINGS = {"Precision.FLOAT32": "'float32'"}
_NOT_CONSTRUCTED = frozenset(
    "BilmOutput DumpResult Estimate Options RunDirectory TestResult TrainingResult WeightedLayers".split()
)
_PARTS = ("Args", "Attributes", "Returns", "Raises", "Example")
_WITHOUT_EXAMPLE = ("restart", "test", "dump_weights", "SentenceVectorizer", "use_xla")  # pages have them
_LONG = 35  # characters; a shorter text is repeated
_WIDTH = 80  # of a signature
_KERAS = "`**kwargs`"  # which the head explains

Definition = ast.ClassDef | ast.FunctionDef


def render() -> str:
    """Return the whole page."""
    entries = Entries({title: [find(name) for name in names] for title, names in SECTIONS.items()})
    return _HEAD + entries.render()


def find(name: str) -> Definition:
    """Return a class or function of `bilm`, or of the module that its name begins with."""
    module, _, name = name.rpartition(".")
    return definition(name, module or bilm._HOMES[name])


def definition(name: str, module: str) -> Definition:
    """Return a class or function from the module that defines it or imports it."""
    for node in parsed(module).body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return definition(name, node.module or "")
    raise ValueError(f"{module}: does not define {name}")


def parsed(module: str) -> ast.Module:
    """Return the source of a module as a tree."""
    path = PACKAGE.parent / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(encoding="utf-8"))


class Entries:
    """The sections of the page, an entry for each class and function.

    Args:
        by_title: the definitions of each section.
    """

    def __init__(self, by_title: Mapping[str, Sequence[Definition]]) -> None:
        self.by_title = by_title
        self.names = {node.name for nodes in by_title.values() for node in nodes}
        self.explained: dict[tuple[str, str], str] = {}  # the entry that explains an argument first

    def render(self) -> str:
        """Return all sections."""
        parts = []
        for title, nodes in self.by_title.items():
            parts += [f"\n## {title}\n", *(self.entry(node, title == _AS_IN_BILM_TF) for node in nodes)]
        parts += ["\n## Others\n\n", self.linked(listed(map(in_a_line, map(find, OTHERS))), ""), "\n"]
        return "".join([*parts, _ERRORS, listed(errors()), "\n"])

    def entry(self, node: Definition, is_short: bool) -> str:
        """Return the entry of a class or function."""
        parts = sections(node)
        blocks = [f"### {node.name}"]
        if signature := signature_of(node):
            blocks.append(f"```python\n{signature}\n```")
        blocks += [
            docstring_prose(text)
            for text in parts[""].split("\n\n")[: 1 if is_short or node.name in COMMANDS else None]
        ]
        if parts["Returns"]:
            blocks.append(f"Returns {docstring_prose(parts['Returns'])}")
        arguments = self.arguments_of(node, items(parts["Args"]))
        if node.name in COMMANDS:
            explained = _COMMAND.format(name=node.name.replace("_", "-"))
            blocks.append(f"{explained}, with underscores{', and:' if arguments else '.'}")
        blocks.append(listed(arguments))
        if isinstance(node, ast.ClassDef) and (rows := members(node, items(parts["Attributes"]))):
            blocks += ["Members:" if arguments else "", listed(rows)]
        text = self.linked("\n\n".join(filter(None, blocks)), node.name)
        if parts["Example"] and not is_short and node.name not in _WITHOUT_EXAMPLE:
            text += f"\n\n```pycon\n{parts['Example']}\n```"
        return f"\n{text}\n"

    def arguments_of(self, node: Definition, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the rows of arguments: one for the same text, "as for ..." for that of an earlier entry."""
        names_of: dict[str, list[str]] = {}
        for name, text in rows:
            if name == _KERAS or name.strip("`") not in COMMANDS.get(node.name, (name.strip("`"),)):
                continue
            text = _SHORTER.get((node.name, name), text)
            first = self.explained.setdefault((name, text), node.name)
            text = f"as for `{first}`." if first != node.name and len(text) > _LONG else text
            names_of.setdefault(text, []).append(name)
        return [(", ".join(names), text) for text, names in names_of.items()]

    def linked(self, text: str, own_name: str) -> str:
        """Return the text of an entry with links to other entries and pages, each once."""
        linked = {own_name}

        def link(match: re.Match[str]) -> str:
            name, member = match["name"], match["member"] or ""
            if name not in self.names or name in linked:
                return match[0]
            linked.add(name)
            return f"[`{name}{member}`](#{anchor(name)})"

        text = re.sub(
            r"(?<!\[)(?<!- )`(?:bilm\.(?:\w+\.)*)?(?P<name>[A-Za-z]\w+)(?P<member>\.\w+)?`", link, text
        )
        return re.sub(r"`docs/([\w-]+)\.md`", r"[\1](\1.md)", text)


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def listed(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names, each with a text."""
    return "\n".join(f"- {name}: {text}" for name, text in rows)


def in_a_line(node: Definition) -> tuple[str, str]:
    """Return the row of a class or function without an entry."""
    names = [name for name, _ in members(node, [])] if isinstance(node, ast.ClassDef) else []
    names = [re.sub(r"\(.*", "", name).rstrip("`") + "`" for name in names]
    more = f" Methods: {', '.join(names)}." if names else ""
    return code(signature_of(node, math.inf)), first_paragraph(node) + more


def members(node: ast.ClassDef, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the rows of the attributes, properties and methods of a class."""
    by_name = {re.sub(rf"`(?:{node.name}\.)?(\w+).*", r"\1", name): (name, text) for name, text in rows}
    by_name |= {name: (code(call), text) for name, call, text in methods(node)}
    shown = MEMBERS.get(node.name, tuple(by_name))
    if missing := set(shown) - by_name.keys():
        raise ValueError(f"{node.name} has no {', '.join(sorted(missing))}")
    return [by_name[name] for name in shown]


def errors() -> Iterator[tuple[str, str]]:
    """Yield the errors of the package, and what each says."""
    for node in parsed("bilm.errors").body:
        if isinstance(node, ast.ClassDef) and node.name != "BilmError":
            yield code(node.name), docstring_prose(sections(node)[""])


# --- signatures ---------------------------------------------------------------------------------------


def signature_of(node: Definition, width: float = _WIDTH) -> str:
    """Return the call of a function or class; none of a class that users do not construct."""
    if isinstance(node, ast.FunctionDef):
        result = ast.unparse(node.returns) if node.returns else "None"
        return wrapped(node.name, [*arguments(node)], "" if result == "None" else f" -> {result}", width)
    if node.name in _NOT_CONSTRUCTED:
        return ""
    constructors = [
        item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]
    return wrapped(node.name, [*(arguments(constructors[0]) if constructors else fields(node))], "", width)


def arguments(node: ast.FunctionDef) -> Iterator[str]:
    """Yield the arguments of a function without ``self``: ``batch_size=64``."""
    signature = node.args
    positional = [*signature.posonlyargs, *signature.args]
    defaults = [None] * (len(positional) - len(signature.defaults)) + signature.defaults
    for parameter, default in zip(positional, defaults, strict=True):
        if parameter.arg not in ("self", "cls"):
            yield argument(parameter.arg, default)
    if signature.vararg:
        yield f"*{signature.vararg.arg}"
    elif signature.kwonlyargs:
        yield "*"
    for parameter, default in zip(signature.kwonlyargs, signature.kw_defaults, strict=True):
        yield argument(parameter.arg, default)
    if signature.kwarg:
        yield f"**{signature.kwarg.arg}"


def fields(node: ast.ClassDef) -> Iterator[str]:
    """Yield the fields of a dataclass as arguments."""
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield argument(item.target.id, item.value)


def argument(name: str, default: ast.expr | None) -> str:
    """Return an argument with its default."""
    if default is None:
        return name
    value = ast.unparse(default)
    return f"{name}={_SPELLINGS.get(value, value)}".replace("'", '"')


def wrapped(name: str, arguments: Sequence[str], result: str, width: float) -> str:
    """Return a signature on one line, or with its arguments on indented lines."""
    line = f"{name}({', '.join(arguments)}){result}"
    if len(line) <= width:
        return line
    inner = textwrap.fill(f"{', '.join(arguments)},", _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return f"{name}(\n{inner}\n){result}"


def methods(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield name, call and first paragraph of the public methods and properties of a class."""
    for item in node.body:
        if not isinstance(item, ast.FunctionDef) or item.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
        call = item.name
        if not decorators & {"property", "cached_property"}:
            call = f"{item.name}({textwrap.shorten(', '.join(arguments(item)), _WIDTH, placeholder=' ...')})"
        if decorators & {"classmethod", "staticmethod"}:
            call = f"{node.name}.{call}"
        yield item.name, call, first_paragraph(item)


# --- docstrings ---------------------------------------------------------------------------------------


def sections(node: Definition) -> dict[str, str]:
    """Return a docstring by its sections, the text outside of them under the empty name."""
    lines_of: dict[str, list[str]] = {name: [] for name in ("", *_PARTS)}
    current = ""
    for line in (ast.get_docstring(node) or "").splitlines():
        if line.removesuffix(":") in _PARTS:
            current = line.removesuffix(":")
            continue
        if line and not line.startswith(" "):
            current = ""
        lines_of[current].append(line)
    return {name: textwrap.dedent("\n".join(lines)).strip("\n") for name, lines in lines_of.items()}


def items(section: str) -> list[tuple[str, str]]:
    """Return the names of a section, as code, and the text of each."""
    entries = re.findall(r"^(\S[^:]*): (.*(?:\n +.*)*)", section, re.MULTILINE)
    return [(", ".join(map(code, name.split(", "))), docstring_prose(text)) for name, text in entries]


def first_paragraph(node: Definition) -> str:
    """Return the first paragraph of a docstring."""
    return docstring_prose(sections(node)[""].partition("\n\n")[0])
