"""Detection of bilm-tf's distribution ``bilm`` (2018), which installs a package of the same name.

pip does not track files that two distributions share: the distribution installed last overwrites them, and
uninstalling either removes them.
"""

import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_REMEDY = (
    "run `pip uninstall bilm`, then install bilm-tf2 again with `--force-reinstall --no-deps`, which "
    "restores the shared files"
)


def other_distribution(package: Path = _PACKAGE) -> str | None:
    """Return name and version of a distribution ``bilm`` installed in the same place, or None.

    Reads file names only, so it costs one listing of a directory.

    Args:
        package: the directory of this package.
    """
    folders = sorted(package.parent.glob("bilm-*-info"))  # ours is bilm_tf2-*.dist-info
    return " ".join(folders[0].stem.split("-")[:2]) if folders else None


def conflict(package: Path = _PACKAGE) -> str | None:
    """Return a message, with the remedy, if another distribution shares the directory; otherwise None."""
    other = other_distribution(package)
    if other is None:
        return None
    return f"the package {other} is installed in the same folder as bilm-tf2, {package}: {_REMEDY}"


def damage(package: Path = _PACKAGE) -> str | None:
    """Return a message, with the remedy, if the imported `bilm` is another package; otherwise None."""
    if hasattr(sys.modules.get("bilm"), "__version__"):
        return None
    other = other_distribution(package) or "another package named bilm"
    return f"{other} has replaced or removed files of bilm-tf2 in {package}: {_REMEDY}"
