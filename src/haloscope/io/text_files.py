"""Text files from users: UTF-8 or refused; no pipes or devices."""

from __future__ import annotations

import codecs
import errno
import io
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
            "it is a disk or a socket", location=str(target), remedy="give the path of a file"
        )
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise InputError(
            "no process reads from this pipe",
            location=str(target),
            remedy="start the reader first, or give the path of a file",
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


# UTF-32 first: what it begins with in one of its orders begins with the mark of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}

# Python's characters for bytes of a command line that it could not decode: this and the byte.
_UNDECODED = 0xDC00


def decoded(content: bytes, name: str) -> str:
    r"""The text of a TOML file, its lines ended by ``\n``, without a byte order mark of UTF-8.

    `content`: all bytes of the file.
    """
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            raise InputError(
                f"the file begins with the byte order mark of {encoding} ({mark.hex(' ')})",
                location=f"{name}, line 1, byte 1",
                remedy="save it as UTF-8",
            )
    content = content.removeprefix(codecs.BOM_UTF8)
    at = _first_fault(content)
    if at is None:
        return io.StringIO(content.decode(), newline=None).read()
    before = content[:at].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    line, byte = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
    place = f"{name}, line {line}, byte {byte}"
    if content[at] == 0:
        raise InputError(
            "a byte has the value zero, which is not TOML and is common in UTF-16",
            location=place,
            remedy="save the file as UTF-8, without such bytes",
        )
    raise InputError(
        f"the byte 0x{content[at]:02x} is not UTF-8, the encoding of TOML",
        location=place,
        remedy="save the file as UTF-8",
    )


def _first_fault(content: bytes) -> int | None:
    """Where the first byte is that text in UTF-8 does not have, from 0; None where there is none."""
    zero = content.find(0)
    try:
        content[: zero if zero >= 0 else None].decode()
    except UnicodeDecodeError as error:
        return error.start
    return zero if zero >= 0 else None


def insist_on_utf8(text: str, name: str) -> None:
    """Refuse an argument of a command that holds bytes which are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        byte = code - _UNDECODED
        problem = (
            f"the byte 0x{byte:02x}"
            if 0x80 <= byte <= 0xFF
            else f"half of a surrogate pair, U+{code:04X}"
        )
        raise InputError(
            f"it is not UTF-8: its character {error.start + 1} is {problem}",
            location=name,
            remedy="give it as UTF-8, in a terminal or script with this encoding",
        ) from None
