"""Notices another distribution whose files lie among ours: bilm-tf's package of 2018 installs `bilm` too.

That distribution is called ``bilm``, and pip keeps no account of two distributions with the same files: the
one installed last replaces those of the other, and uninstalling either removes them.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_REMEDY = (
    "run `pip uninstall bilm`, then install bilm-tf2 again with `--force-reinstall --no-deps`, which "
    "restores what is shared"
)


def other_distribution(package: Path = _PACKAGE) -> str | None:
    """The name and version of a distribution ``bilm`` installed in the same place, or None.

    Only names of files are read, which costs no more than listing a directory.

    Args:
        package: the directory of our package.
    """
    try:
        folders = sorted(package.parent.glob("bilm-*-info"))  # ours is bilm_tf2-*.dist-info
    except OSError:
        return None
    return None if not folders else " ".join(folders[0].stem.split("-")[:2])


def conflict(package: Path = _PACKAGE) -> str | None:
    """Say that another distribution shares our directory, and what to do; None if none does."""
    other = other_distribution(package)
    if other is None:
        return None
    return f"the package {other} is installed in the same folder as bilm-tf2, {package}: {_REMEDY}"


def damage(package: Path = _PACKAGE) -> str | None:
    """Say that the package that was imported as `bilm` is not ours, and what to do; None if it is."""
    if hasattr(sys.modules.get("bilm"), "__version__"):
        return None
    other = other_distribution(package) or "another package named bilm"
    return f"{other} has replaced or removed files of bilm-tf2 in {package}: {_REMEDY}"


def warn_if_damaged() -> None:
    """Warn if the package that was imported as `bilm` is not ours; bilm-tf's imports `bilm.data` first."""
    message = damage()
    if message is not None:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
