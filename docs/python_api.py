"""The page of what `bilm` exports, made from the docstrings; only the package itself is imported for it."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import bilm
from docs.markdown import code, docstring_prose, table

PACKAGE = Path(bilm.__file__).resolve().parent

_HEAD = """<!-- Written by `make docs` from the docstrings of the package. Change the text there. -->
# Python API

Everything that `bilm` exports. User errors are `bilm.errors.BilmError`s, of which the errors named here are
subclasses. The examples find the files of a small model, three layers of 24 dimensions, in their directory;
the tests run them.

"""
_SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")
_OF_KERAS = {"build", "compute_output_shape", "get_config"}  # that every layer has

Definition = ast.ClassDef | ast.FunctionDef


def render() -> str:
    """The whole page."""
    names = sorted((name for name in bilm.__all__ if not name.startswith("__")), key=str.lower)
    found = {name: definition(name, bilm._HOMES[name]) for name in names}
    rows = [(f"[`{name}`](#{name.lower()})", first_paragraph(node)) for name, node in found.items()]
    return _HEAD + "\n".join([table(("name", ""), rows), *map(entry, found.values())])


def definition(name: str, module: str) -> Definition:
    """The class or function, where it is defined."""
    path = PACKAGE.parent / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return definition(name, node.module or "")
    raise ValueError(f"{source}: does not define {name}")


def entry(node: Definition) -> str:
    """The section of a class or function."""
    parts = sections(node)
    call = node if isinstance(node, ast.FunctionDef) else constructor(node)
    result = f" -> {ast.unparse(node.returns)}" if isinstance(node, ast.FunctionDef) and node.returns else ""
    lines = [f"## {node.name}\n", f"```python\n{wrapped(node.name, [*arguments(call)], result)}\n```\n"]
    lines += [f"{docstring_prose(paragraph)}\n" for paragraph in parts[""].split("\n\n")]
    for name, head in (("Args", "argument"), ("Attributes", "attribute")):
        if parts[name]:
            lines.append(table((head, ""), items(parts[name])))
    if parts["Returns"]:
        lines.append(f"Returns: {docstring_prose(parts['Returns'])}\n")
    if isinstance(node, ast.ClassDef) and (rows := [*methods(node)]):
        lines.append(table(("method or property", ""), rows))
    if parts["Raises"]:
        lines += ["Raises:\n", "".join(f"- {name}: {text}\n" for name, text in items(parts["Raises"]))]
    if parts["Example"]:
        lines.append(f"```pycon\n{parts['Example']}\n```\n")
    return "\n".join(lines)


# --- signatures ---------------------------------------------------------------------------------------


def constructor(node: ast.ClassDef) -> Definition:
    """What says which arguments a class takes: its ``__init__``, or its fields."""
    found = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    return found[0] if found else node


def arguments(node: Definition, annotated: bool = True) -> Iterator[str]:
    """The arguments of a function without ``self``, or the fields of a dataclass."""
    if isinstance(node, ast.ClassDef):
        for one in node.body:
            if isinstance(one, ast.AnnAssign):
                if isinstance(one.value, ast.Call):  # the description of a parameter; its default comes first
                    first = next(iter(one.value.args), None)
                    one.value = None if isinstance(first, ast.Name) and first.id == "REQUIRED" else first
                yield ast.unparse(one)
        return
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
    yield from (
        argument(one, default, annotated)
        for one, default in zip(positional, defaults, strict=True)
        if one.arg not in ("self", "cls")
    )
    if given.vararg:
        yield "*" + argument(given.vararg, None, annotated)
    elif given.kwonlyargs:
        yield "*"
    yield from (
        argument(one, default, annotated)
        for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    )
    if given.kwarg:
        yield "**" + argument(given.kwarg, None, annotated)


def argument(one: ast.arg, default: ast.expr | None, annotated: bool) -> str:
    """As the source has it: ``batch_size: int = 64``."""
    text = ast.unparse(one) if annotated else one.arg
    equals = " = " if annotated and one.annotation else "="
    return text if default is None else f"{text}{equals}{ast.unparse(default)}"


def wrapped(name: str, given: list[str], result: str) -> str:
    """A signature, an argument a line if it is long."""
    line = f"{name}({', '.join(given)}){result}"
    if len(line) <= 100:
        return line
    return "\n".join([f"{name}(", *(f"    {one}," for one in given), f"){result}"])


def methods(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The public methods and properties of a class, and what each is for."""
    for one in node.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_") or one.name in _OF_KERAS:
            continue
        decorators = {ast.unparse(decorator) for decorator in one.decorator_list}
        call = f"{one.name}({', '.join(arguments(one, annotated=False))})"
        call = f"{node.name}.{call}" if decorators & {"classmethod", "staticmethod"} else call
        yield code(one.name if decorators & {"property", "cached_property"} else call), first_paragraph(one)


# --- docstrings ---------------------------------------------------------------------------------------


def sections(node: Definition) -> dict[str, str]:
    """A docstring by its sections, the text outside of them under the empty name."""
    found: dict[str, list[str]] = {name: [] for name in ("", *_SECTIONS)}
    current = ""
    for line in (ast.get_docstring(node) or "").splitlines():
        if line.removesuffix(":") in _SECTIONS:
            current = line.removesuffix(":")
            continue
        if line and not line.startswith(" "):
            current = ""
        found[current].append(line)
    return {name: textwrap.dedent("\n".join(lines)).strip("\n") for name, lines in found.items()}


def items(section: str) -> list[tuple[str, str]]:
    """The names of a section, as code, and what it says of each."""
    found = re.findall(r"^(\S[^:]*): (.*(?:\n +.*)*)", section, re.MULTILINE)
    return [(", ".join(map(code, name.split(", "))), docstring_prose(text)) for name, text in found]


def first_paragraph(node: Definition) -> str:
    """What a docstring begins with."""
    return docstring_prose(sections(node)[""].partition("\n\n")[0])
