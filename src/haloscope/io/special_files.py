"""Outputs that go to a terminal, a pipe or a device: these are written to and never replaced."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

from haloscope.errors import InputError

_PROCESSES = Path("/proc")
_OWN_DESCRIPTORS = _PROCESSES / "self" / "fd"
# One after the other, as the system follows.
_MOST_LINKS = 40


def is_special(path: Path) -> bool:
    """Tell whether a path names something other than a file or folder of a folder.

    That is a device, a pipe or a socket, or what a process has open (``/dev/stdout``), even if
    that is a file.
    """
    if not os.path.exists(path) or path.is_dir():  # Path.exists raises where a name is too long
        return False
    opened = any(folder.is_relative_to(_PROCESSES) for folder, _ in _places(path))
    return opened or not path.is_file()


def copy_into(source: Path, target: Path) -> None:
    """Write the content of a file to a special one."""
    with source.open("rb") as content, os.fdopen(_open(target), "wb") as out:
        shutil.copyfileobj(content, out)


def _open(target: Path) -> int:
    for folder, name in _places(target):
        if folder == _OWN_DESCRIPTORS.resolve() and name.isdecimal():
            # What is printed later follows; a file that is opened anew is written from its begin.
            return os.dup(int(name))
    mode = target.stat().st_mode
    if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise InputError(
            f"cannot write {target}: it is a disk or a socket; give the path of a file"
        )
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise InputError(
            f"cannot write {target}: nobody reads from this pipe; start the reader first, or give "
            "the path of a file"
        ) from None
    os.set_blocking(descriptor, True)
    return descriptor


def _places(path: Path) -> list[tuple[Path, str]]:
    """Folder and name of a path and, if it is a link, of all that it leads to, link by link.

    Links on the way to the folder are followed: ``/dev/fd/1`` is in ``/proc/self/fd``, and so is
    what ``/dev/stdout`` leads to.
    """
    names = [path]
    while names[-1].is_symlink() and len(names) < _MOST_LINKS:
        last = names[-1]
        if last.parent.resolve().is_relative_to(_PROCESSES):
            break  # what a process has open: its text is no path to follow
        names.append(last.parent / last.readlink())
    return [(name.parent.resolve(), name.name) for name in names]
