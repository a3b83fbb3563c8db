"""Insists on UTF-8 where users give text: what is none is told with its place and how to mend it."""

from __future__ import annotations

import codecs
import io

from haloscope.errors import InputError

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
                f"{name}, line 1, byte 1: the file begins with the byte order mark of {encoding} "
                f"({mark.hex(' ')}); save it as UTF-8"
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
            f"{place}: a byte of value zero, which TOML never has and UTF-16 often; save the file "
            "as UTF-8, without such bytes"
        )
    raise InputError(
        f"{place}: the byte 0x{content[at]:02x} is not UTF-8, as which TOML is written; save the "
        "file as UTF-8"
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
        problem = f"the byte 0x{byte:02x}" if 0x80 <= byte <= 0xFF else f"half a pair, U+{code:04X}"
        raise InputError(
            f"{name} is not UTF-8: its character {error.start + 1} is {problem}; give it as UTF-8, in "
            "a terminal or a script that is set to it"
        ) from None
