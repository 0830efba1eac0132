"""Generate the page of the Python API from the docstrings, without importing the modules."""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import bilm
from docs.markdown import code, docstring_prose

PACKAGE = Path(bilm.__file__).resolve().parent

_HEAD = """<!-- Generated from the docstrings by `make docs`. -->
# Python API

The classes and functions that `bilm` exports, and what they return. `help()` has more details and examples;
[Training](training.md#training-from-python), [Embedding](embedding.md#in-python) and
[Coming from bilm-tf](migrating.md#usage_characterpy) use them. Paths are strings or `pathlib.Path`;
texts may also be a sequence of paths. Layers and models return tensors of the Keras backend, and accept the
arguments of Keras as `**kwargs`.
"""
_COMMAND = "The arguments are options of [`bilm {name}`](commands.md#{name})"
_OF_BILM_TF = """

## As in bilm-tf

Names and arguments of [bilm-tf](migrating.md#names): """
_ERRORS = """
## Errors

Errors that a user can correct are subclasses of `bilm.errors.BilmError`; the message suggests a solution:

"""

# The sections of the page. Names that `bilm` does not export include their module.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Prepare, train, test, dump": (
        *("prepare", "train", "restart", "bilm.runs.reporter.TrainingResult"),
        *("test", "bilm.runs.reporter.TestResult", "dump_weights"),
    ),
    "Embed": ("ElmoEmbedder", "Elmo"),
}
# Names with one line each.
OTHERS = (
    *("batch_to_ids", "SentenceVectorizer", "ScalarMix", "WordPredictor", "LanguageModel", "TextPipeline"),
    *("Options", "RunDirectory", "Reporter", "use_xla"),
    *("bilm.ray.cluster.Cluster", "bilm.weights.dump.DumpResult", "bilm.runs.reporter.Estimate"),
    *("bilm.embedding.prediction.Prediction", "bilm.text.prepare.Preparation"),
    "bilm.embedding.word_output.WordOccurrence",
)
# Names with their calls only.
OF_BILM_TF = (
    *("Batcher", "TokenBatcher", "BidirectionalLanguageModel", "weight_layers", "dump_bilm_embeddings"),
    *("dump_token_embeddings", "Vocabulary", "UnicodeCharsVocabulary", "LMDataset", "BidirectionalLMDataset"),
)
# The attributes, properties and methods on the page; other classes show all public ones.
MEMBERS = {
    "Cluster": (),
    "DumpResult": ("weight_file", "options_file", "vocabulary_file"),
    "Elmo": (),
    "ElmoEmbedder": (
        *("from_model", "embed_sentence", "embed_batch", "batch_to_embeddings"),
        *("embed_sentences", "embed_words", "word_vectors", "embed_file"),
    ),
    "Estimate": ("n_steps", "step_seconds", "seconds", "tokens_per_second", "peak_bytes", "gpu_bytes"),
    "LanguageModel": ("call", "losses", "zero_states"),
    "Options": ("from_json", "to_json", "with_values"),
    "Reporter": ("command", "say", "warn", "begin", "step", "heldout", "end", "scored"),
    "RunDirectory": ("path", "options", "open", "vocabulary_file", "create", "latest", "weights"),
    "ScalarMix": (),
    "SentenceVectorizer": (),
    "WordPredictor": ("from_model", "predict", "predict_text"),
    "Preparation": ("directory", "train", "heldout", "n_words", "coverage", "unknown_share", "unknown"),
    "TextPipeline": ("from_file", "sentences"),
}
# Functions that are also commands, with the arguments that are not options.
COMMANDS = {
    "prepare": ("callback", "**settings"),
    "train": ("options", "ray", "reporter", "should_stop", "**settings"),
    "restart": ("ray", "reporter", "should_stop", "**settings"),
    "test": ("reporter",),
    "dump_weights": (),
}
# Replacements for texts that other pages explain in full.
_SHORTER = {
    ("train", "`**settings`"): (
        "other options, such as `heldout_prefix` and `max_steps`; `max_time` is in seconds, or a time like "
        '`"90m"`. `changes` sets any key of [`options.json`](options.md), such as `{"lstm.dim": 512}`.'
    ),
}
_SPELLINGS = {"Precision.FLOAT32": "'float32'"}
_NOT_CONSTRUCTED = frozenset(
    "DumpResult Estimate Options Prediction Preparation RunDirectory TestResult TrainingResult "
    "WordOccurrence WordPredictor".split()
)
_PARTS = ("Args", "Attributes", "Returns", "Raises", "Example")
_LONG = 35  # characters; shorter texts are repeated
_KERAS = "`**kwargs`"  # explained in the head

Definition = ast.ClassDef | ast.FunctionDef


def render() -> str:
    """Return the whole page."""
    entries = Entries({title: [find(name) for name in names] for title, names in SECTIONS.items()})
    return _HEAD + entries.render()


def find(name: str) -> Definition:
    """Return a class or function of `bilm`, or of the module in its name."""
    module, _, name = name.rpartition(".")
    return definition(name, module or bilm._HOMES[name])


def definition(name: str, module: str) -> Definition:
    """Return a class or function from the module that defines it or imports it.

    A class has the members of its bases in the same module, too.
    """
    body = parsed(module).body
    by_name = {node.name: node for node in body if isinstance(node, Definition)}
    for node in body:
        if isinstance(node, Definition) and node.name == name:
            bases = [base.id for base in getattr(node, "bases", ()) if isinstance(base, ast.Name)]
            own = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            inherited = [member for base in bases if base in by_name for member in by_name[base].body]
            node.body += [member for member in inherited if getattr(member, "name", None) not in own]
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return definition(name, node.module or "")
    raise ValueError(f"{module}: does not define {name}")


def parsed(module: str) -> ast.Module:
    """Return the syntax tree of a module."""
    path = PACKAGE.parent / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(encoding="utf-8"))


class Entries:
    """The sections of the page, with an entry for each class and function.

    Args:
        by_title: definitions of each section.
    """

    def __init__(self, by_title: Mapping[str, Sequence[Definition]]) -> None:
        self.by_title = by_title
        self.names = {node.name for nodes in by_title.values() for node in nodes}
        self.explained: dict[tuple[str, str], str] = {}  # first entry that explains an argument

    def render(self) -> str:
        """Return all sections."""
        parts = []
        for title, nodes in self.by_title.items():
            parts += [f"\n## {title}\n", *map(self.entry, nodes)]
        parts += [
            "\n## Others\n\n",
            listed(map(in_a_line, map(find, OTHERS))),
            _OF_BILM_TF,
            f"{', '.join(map(code, OF_BILM_TF))}.\n",
        ]
        return "".join([*parts, _ERRORS, listed(errors()), "\n"])

    def entry(self, node: Definition) -> str:
        """Return the entry of a class or function."""
        parts = sections(node)
        blocks = [f"### {node.name}"]
        if signature := signature_of(node):
            blocks.append(code(signature))
        blocks.append(first_paragraph(node))
        described = () if node.name in _NOT_CONSTRUCTED else items(parts["Args"])
        arguments = self.arguments_of(node, described)
        if node.name in COMMANDS:
            explained = _COMMAND.format(name=node.name.replace("_", "-"))
            blocks.append(f"{explained}, with underscores{', and:' if arguments else '.'}")
        blocks.append(listed(arguments))
        if isinstance(node, ast.ClassDef) and (rows := members(node, items(parts["Attributes"]))):
            blocks += ["Members:" if arguments else "", listed(rows)]
        text = self.linked("\n\n".join(filter(None, blocks)), node.name)
        return f"\n{text}\n"

    def arguments_of(self, node: Definition, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the rows of arguments; equal texts share a row, earlier ones become "as for ..."."""
        names_of: dict[str, list[str]] = {}
        for name, text in rows:
            if name == _KERAS or name.strip("`") not in COMMANDS.get(node.name, (name.strip("`"),)):
                continue
            text = _SHORTER.get((node.name, name), text)
            first = self.explained.setdefault((name, text), node.name)
            text = f"as in `{first}`." if first != node.name and len(text) > _LONG else text
            names_of.setdefault(text, []).append(name)
        return [(", ".join(names), text) for text, names in names_of.items()]

    def linked(self, text: str, own_name: str) -> str:
        """Link an entry to other entries and pages, each once."""
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
    """Format a list of names, each with a text."""
    return "\n".join(f"- {name}: {text}" for name, text in rows)


def in_a_line(node: Definition) -> tuple[str, str]:
    """Return the row of a class or function without an entry."""
    rows = items(sections(node)["Attributes"])
    names = [name for name, _ in members(node, rows)] if isinstance(node, ast.ClassDef) else []
    names = [re.sub(r"\(.*", "", name).rstrip("`") + "`" for name in names]
    more = f" Members: {', '.join(names)}." if names else ""
    return code(signature_of(node) or node.name), first_paragraph(node) + more


def members(node: ast.ClassDef, rows: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the rows of the attributes, properties and methods of a class."""
    by_name = {re.sub(rf"`(?:{node.name}\.)?(\w+).*", r"\1", name): (name, text) for name, text in rows}
    by_name |= {name: (code(call), text) for name, call, text in methods(node)}
    shown = MEMBERS.get(node.name, tuple(by_name))
    if missing := set(shown) - by_name.keys():
        raise ValueError(f"{node.name} has no {', '.join(sorted(missing))}")
    return [by_name[name] for name in shown]


def errors() -> Iterator[tuple[str, str]]:
    """Yield the errors of the package with their descriptions."""
    for node in parsed("bilm.errors").body:
        if isinstance(node, ast.ClassDef) and node.name != "BilmError":
            yield code(node.name), docstring_prose(sections(node)[""])


# --- signatures ---------------------------------------------------------------------------------------


def signature_of(node: Definition) -> str:
    """Return the call of a function or class, or nothing for a class that users do not construct."""
    result, names = "", list[str]()
    if isinstance(node, ast.FunctionDef):
        names = [*arguments(node)]
        if node.returns and (value := ast.unparse(node.returns)) != "None":
            result = f" -> {value}"
    elif node.name in _NOT_CONSTRUCTED:
        return ""
    else:
        if node.decorator_list or node.bases:  # a dataclass or named tuple
            names = [*fields(node)]
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                names = [*arguments(item)]
    if node.name in COMMANDS:  # leaves out the options of the command, which are keyword arguments
        first = names.index("*") + 1
        others = [name for name in names[first:] if name.split("=")[0] in COMMANDS[node.name]]
        names = [*names[:first], *(name for name in others if name[0] != "*"), "..."]
    return f"{node.name}({', '.join(names)}){result}"


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
    if isinstance(default, ast.Call) and default.keywords and default.keywords[0].arg == "default":
        default = default.keywords[0].value  # of `dataclasses.field`
    value = ast.unparse(default)
    return f"{name}={_SPELLINGS.get(value, value)}".replace("'", '"')


def methods(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield name, call and first paragraph of the public methods and properties of a class."""
    for item in node.body:
        if not isinstance(item, ast.FunctionDef) or item.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
        call = item.name
        if not decorators & {"property", "cached_property"}:
            call = f"{item.name}({textwrap.shorten(', '.join(arguments(item)), 80, placeholder=' ...')})"
        if decorators & {"classmethod", "staticmethod"}:
            call = f"{node.name}.{call}"
        yield item.name, call, first_paragraph(item)


# --- docstrings ---------------------------------------------------------------------------------------


def sections(node: Definition) -> dict[str, str]:
    """Split a docstring into its sections; text outside of sections has an empty name."""
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
    """Return the names in a section, as code, with their texts."""
    entries = re.findall(r"^(\S[^:]*): (.*(?:\n +.*)*)", section, re.MULTILINE)
    return [(", ".join(map(code, name.split(", "))), docstring_prose(text)) for name, text in entries]


def first_paragraph(node: Definition) -> str:
    """Return the first paragraph of a docstring."""
    return docstring_prose(sections(node)[""].partition("\n\n")[0])
