"""The package's imports run one way: each part imports only from those before it."""

import ast
import functools
import graphlib
import re

import pytest

from docs.generate import PACKAGE, PACKAGES, modules
from tests.helpers import python

# These must be importable without paying for TensorFlow: whole packages, and modules of others.
WITHOUT_TENSORFLOW = {
    *("errors", "io", "options", "vocabulary", "text", "data", "cli", "analysis"),
    *("weights.names", "weights.arrays", "weights.hdf5_file", "weights.distribution"),
    *("backend.settings", "training.meter", "training.negative_sampling", "run_directory.files"),
    *("run_directory.records", "run_directory.model_source", "runs.reporter", "runs.settings"),
    *("embedding.hdf5_output", "embedding.parquet_output"),
    *("ray.cluster", "ray.jobs"),
}
MODULES = modules()


def package_of(module):
    """`weights` for `weights.names`."""
    return module.partition(".")[0]


def needs_no_tensorflow(module):
    return bool({module, package_of(module)} & WITHOUT_TENSORFLOW)


def imported_names(module):
    """Absolute dotted names that a module imports; `from a import b` gives `a.b`."""
    path = MODULES[module]
    package = ["bilm", *path.relative_to(PACKAGE).parent.parts]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = [] if not node.level else package[: len(package) - node.level + 1]
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{stem}.{alias.name}" for alias in node.names}
    return names


@functools.cache
def imported_modules(module):
    """Modules of this package that a module imports; `__init__` for the package itself."""
    targets = set()
    for name in imported_names(module):
        if name == "bilm" or name.startswith("bilm.") and name != "bilm.__version__":
            inner = name.removeprefix("bilm").lstrip(".")
            while inner and inner not in MODULES:
                inner = inner.rpartition(".")[0]  # a name inside a module
            targets.add(inner or "__init__")
    return targets - {module}


def test_every_module_is_in_a_package():
    assert {package_of(module) for module in MODULES} == set(PACKAGES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_one_way(module):
    """From the module that owns a name, not from the package itself, and from no later package."""
    own, targets = PACKAGES.index(package_of(module)), imported_modules(module)
    assert "__init__" not in targets
    assert [name for name in targets if PACKAGES.index(package_of(name)) > own] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_no_circle_within_a_package(name):
    own = {module for module in MODULES if package_of(module) == name}
    graph = {module: imported_modules(module) & own for module in own}
    graphlib.TopologicalSorter(graph).prepare()


def test_module_imports_no_tensorflow_indirectly():
    code = f"""
import importlib, sys, bilm
assert {{name for name in sys.modules if name.startswith("bilm")}} == {{"bilm", "bilm.errors"}}
for module in {[*filter(needs_no_tensorflow, MODULES)]}:
    importlib.import_module("bilm." + module)
    heavy = [name for name in ("tensorflow", "keras") if name in sys.modules]
    if heavy:
        sys.exit(f"bilm.{{module}} imports {{heavy}}")
"""
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_case_ids_are_words(request):
    """In plain letters, which pytest-xdist compares between its processes."""
    ids = [item.callspec.id for item in request.session.items if hasattr(item, "callspec")]
    assert [name for name in ids if not re.fullmatch(r"[\w.+/, -]*", name, re.ASCII)] == []
