"""The package's imports run one way: from higher levels to lower ones (the table below)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "bilm"

# A package directory stands for all of its modules unless one of them is named.
LEVELS = {
    "errors": 0,
    "json_object": 0,
    "json_lines": 0,
    "atomic": 0,
    "locks": 0,
    "outputs": 0,
    "run_names": 0,
    "staging": 0,
    "characters": 0,
    "prefetch": 0,
    "arguments": 0,
    "named": 0,
    "reasons": 0,
    "changes": 0,
    "packing": 0,
    "loss_scale": 0,
    "meter": 0,
    "every": 0,
    "embedding_keys": 0,
    "network_options": 1,
    "options": 1,
    "options_file": 1,
    "metrics": 1,
    "compression": 1,
    "hdf5": 1,
    "parts_directory": 1,
    "saved_model_files": 1,
    "embeddings_file": 1,
    "embeddings_part": 1,
    "plot": 1,
    "vector_plot": 2,
    "text": 1,
    "stdin": 1,
    "corpus": 1,
    "vocab_file": 1,
    "vocab_check": 1,
    "vocab_build": 1,
    "vocab": 1,
    "run_vocabulary": 1,
    "remap": 2,
    "batching": 2,
    "data": 2,
    "position": 2,
    "sentences": 2,
    "stream": 2,
    "rows": 2,
    "windows": 2,
    "batch": 2,
    "batches": 2,
    "padded": 2,
    "sampling": 2,
    "learning_rate": 2,
    "layers": 2,
    "weights": 2,
    "training_plot": 2,
    "encoder": 3,
    "weights.shapes": 2,
    "weights.inferred": 2,
    "weights.transfer": 3,
    "inference": 3,
    "batch_text": 3,
    "checkpoint_index": 3,
    "language_model": 4,
    "elmo": 4,
    "elmo_layer": 4,
    "saved_model": 4,
    "optimizer": 4,
    "cluster": 4,
    "optimizer_state": 4,
    "run_state": 4,
    "run_log": 4,
    "checkpoint": 4,
    "training": 5,
    "evaluation": 5,
    "training_run": 6,
    "dumps": 6,
    "embedding": 4,
    "word_vectors": 4,
    "packed_embedder": 5,
    "embedder": 5,
    "scoring": 5,
    "neighbours": 5,
    "model_info": 4,
    "info": 5,
    "cli": 7,
    "__main__": 8,
}

# Imports within a level, each in this direction only.
SIDEWAYS = {
    ("padded", "batch"),
    ("arguments", "errors"),
    ("atomic", "outputs"),
    ("atomic", "staging"),
    ("outputs", "errors"),
    ("outputs", "run_names"),
    ("staging", "locks"),
    ("json_lines", "arguments"),
    ("json_lines", "errors"),
    ("json_lines", "json_object"),
    ("options", "network_options"),
    ("options_file", "options"),
    ("embeddings_file", "embeddings_part"),
    ("embeddings_file", "parts_directory"),
    ("embeddings_part", "hdf5"),
    ("embedder", "packed_embedder"),
    ("text", "compression"),
    ("corpus", "text"),
    ("vocab_file", "text"),
    ("vocab_check", "text"),
    ("vocab_check", "vocab_file"),
    ("vocab_build", "vocab_file"),
    ("vocab", "vocab_file"),
    ("vocab", "vocab_check"),
    ("data", "batching"),
    ("stream", "position"),
    ("stream", "sentences"),
    ("rows", "position"),
    ("rows", "sentences"),
    ("rows", "stream"),
    ("windows", "position"),
    ("windows", "sentences"),
    ("windows", "rows"),
    ("windows", "stream"),
    ("batches", "position"),
    ("batches", "stream"),
    ("batch", "windows"),
    ("batches", "batch"),
    ("batches", "windows"),
    ("optimizer_state", "optimizer"),
    ("checkpoint", "optimizer_state"),
    ("checkpoint", "run_state"),
    ("inference", "encoder"),
    ("inference", "weights.transfer"),
}

# These must be importable without paying for TensorFlow.
WITHOUT_TENSORFLOW = (
    *(
        "__init__",
        "cli",
        "embedding",
        "batching",
        "data",
        "position",
        "sentences",
        "stream",
        "rows",
        "windows",
        "batch",
        "batches",
        "training_plot",
        "weights.shapes",
        "weights.inferred",
        "model_info",
        "info",
    ),
    *(module for module, level in LEVELS.items() if level < 2),
)


def module_name(path: Path) -> str:
    """`weights.names` for bilm/weights/names.py, `weights` for its __init__.py."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def entry(module: str) -> str:
    """The row of the table that a module belongs to."""
    return module if module in LEVELS else module.partition(".")[0]


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def statements(node: ast.AST, into_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not into_functions and (
            is_type_checking(child) or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        ):
            continue
        yield child
        yield from statements(child, into_functions)


def imported_names(module: str, source: str, into_functions: bool = True) -> set[str]:
    """Absolute dotted names that a module's source imports; `from a import b` gives `a.b`."""
    path = MODULES.get(module, PACKAGE / f"{module}.py")
    package = ["bilm", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in statements(ast.parse(source), into_functions):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [] if not node.level else package[: len(package) - node.level + 1]
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{stem}.{alias.name}" for alias in node.names}
    return names


def imported_modules(module: str, source: str) -> set[str]:
    """Modules of this package that a module's source imports; `__init__` for the package itself."""
    targets = set()
    for name in imported_names(module, source):
        if name == "bilm" or name.startswith("bilm.") and name != "bilm.__version__":
            inner = name.removeprefix("bilm").lstrip(".")
            while inner and inner not in MODULES and inner not in LEVELS:
                inner = inner.rpartition(".")[0]  # a name inside a module
            targets.add(inner or "__init__")
    return targets


def violations(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a module, one line each."""
    found = []
    own = entry(module)
    for target in sorted(imported_modules(module, source) - {module}):
        if target == "__init__":
            found.append(
                f"bilm.{module} imports from the package itself; import from the module that owns it"
            )
            continue
        other = entry(target)
        same_directory = own.partition(".")[0] == other.partition(".")[0]
        limit = LEVELS[own] + same_directory
        if LEVELS[other] >= limit and (own, other) not in SIDEWAYS:
            found.append(
                f"bilm.{module} (level {LEVELS[own]}) must not import bilm.{target} (level {LEVELS[other]})"
            )
    return found


def test_every_module_is_in_the_table():
    unknown = [module for module in MODULES if module != "__init__" and entry(module) not in LEVELS]
    assert not unknown, (
        f"new modules: add {unknown} to LEVELS in {Path(__file__).name}, at a level of their own"
    )


@pytest.mark.parametrize("module", [module for module in MODULES if module != "__init__"])
def test_imports_point_down(module: str):
    assert violations(module, MODULES[module].read_text(encoding="utf-8")) == []


def test_the_package_itself_imports_no_module_of_its_own_when_it_loads():
    names = imported_names("__init__", MODULES["__init__"].read_text(encoding="utf-8"), into_functions=False)
    assert not [name for name in names if name.startswith("bilm")]


@pytest.mark.parametrize("module", [m for m in MODULES if entry(m) in WITHOUT_TENSORFLOW])
def test_no_tensorflow_at_the_top(module: str):
    names = imported_names(module, MODULES[module].read_text(encoding="utf-8"), into_functions=False)
    assert not [name for name in names if name.partition(".")[0] in ("tensorflow", "keras")]


def test_no_tensorflow_through_another_module():
    modules = [m for m in MODULES if entry(m) in WITHOUT_TENSORFLOW and m != "__init__"]
    code = f"""
import importlib, sys
for module in {modules}:
    importlib.import_module("bilm." + module)
    heavy = [name for name in ("tensorflow", "keras") if name in sys.modules]
    if heavy:
        sys.exit(f"bilm.{{module}} imports {{heavy}}")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("errors", "import bilm.options"),
        ("vocab", "from bilm import corpus"),
        ("vocab", "from .corpus import find_files"),
        ("batching", "def late():\n    from bilm.data import LMDataset"),
        ("weights.names", "from . import transfer"),
        ("layers.lstm", "from ..language_model import LanguageModel"),
        ("training", "from bilm.evaluation import evaluate"),
        ("training", "from bilm import LanguageModel"),
    ],
)
def test_the_check_sees_wrong_imports(module: str, source: str, monkeypatch: pytest.MonkeyPatch):
    # These modules need not exist yet for the check to be checked.
    names = [*LEVELS, "weights.names", "layers.lstm"]
    monkeypatch.setattr(
        sys.modules[__name__],
        "MODULES",
        {name: PACKAGE / (name.replace(".", "/") + ".py") for name in names},
    )
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("data", "from bilm.batching import Batcher"),
        ("weights.transfer", "from .names import weight_names"),
        (
            "cli.train",
            "def run():\n    from bilm.training import train\n    from bilm.cli.options import shared",
        ),
        ("training", "import bilm.errors"),
    ],
)
def test_the_check_accepts_right_imports(module: str, source: str, monkeypatch: pytest.MonkeyPatch):
    names = [*LEVELS, "weights.names", "cli.train", "cli.options"]
    monkeypatch.setattr(
        sys.modules[__name__],
        "MODULES",
        {name: PACKAGE / (name.replace(".", "/") + ".py") for name in names},
    )
    assert violations(module, source) == []
