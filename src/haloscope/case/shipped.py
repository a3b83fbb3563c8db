"""Cases that come with Haloscope: their names, and the file of each."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from haloscope.errors import InputError

_INSTALLED = Path(__file__).parents[1] / "cases"  # the build copies them here (setup.py)
_CLONE = Path(__file__).parents[3] / "cases"
_SUFFIX = ".toml"


def folder() -> Path:
    """Folder of the shipped cases: in the installed package, or ``cases/`` of a clone."""
    return _INSTALLED if _INSTALLED.is_dir() else _CLONE


def names() -> list[str]:
    """Names of the shipped cases in alphabetical order."""
    return sorted(path.stem for path in folder().glob(f"*{_SUFFIX}"))


def closest(name: str) -> str | None:
    """The shipped case whose name is most like `name`, if one is."""
    near = difflib.get_close_matches(name, names(), 1)
    return near[0] if near else None


def file_of(name: str) -> Path:
    """File of the shipped case `name`."""
    if name not in names():
        near = closest(name)
        raise InputError(
            "no shipped case has this name",
            location=f"case {name!r}",
            allowed=", ".join(names()),
            remedy=f"did you mean {near}?" if near else "",
        )
    return folder() / f"{name}{_SUFFIX}"


def file_or_shipped(path: Path) -> Path:
    """`path`, or the shipped case of that name if there is no such file."""
    # os.path does not raise if a name is too long.
    if os.path.isfile(path) or str(path) not in names():
        return path
    return file_of(str(path))
