r"""Text of files, cases and programs as a terminal may show it.

Names may hold anything. Control characters, escape sequences and marks that turn the direction of
writing are printed as text (``\x1b``), so that no name can clear a screen, hide a line or pass for
another one.
"""

from __future__ import annotations

import unicodedata
from typing import Any, TextIO

ERROR_LENGTH = 500
"""Most characters of an error line."""
_NAME_LENGTH = 100
_HEAD, _TAIL = 0.6, 0.3
_ELLIPSIS = "..."
# Control, format (direction of writing), lone surrogates, private, unassigned, line and paragraph ends.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_KEPT = "\n\t"


def printable(text: str) -> str:
    r"""A text whose unprintable characters are shown as escapes, but for line ends and tabs."""
    # >>> printable("a\x1b[2Jb") 'a\\x1b[2Jb'
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in _UNPRINTABLE:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters: its beginning and its end."""
    if len(text) <= limit:
        return text
    tail = int(_TAIL * limit)
    return text[: limit - tail - len(_ELLIPSIS)] + _ELLIPSIS + text[-tail:]


def message_line(text: str, limit: int = ERROR_LENGTH) -> str:
    """One printable line of at most `limit` characters.

    Where a message is too long its long words (paths, keys) are cut first, then its middle: it
    begins with the location and ends with the remedy.
    """
    line = printable(" ".join(text.splitlines()))
    if len(line) > limit:
        line = " ".join(shortened(word, _NAME_LENGTH) for word in line.split(" "))
    return shortened(line, limit)


class PrintableStream:
    """A text stream that shows unprintable characters as escapes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, its unprintable characters as escapes."""
        self._stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    @property
    def raw(self) -> Any:
        """The stream itself, for escape sequences of our own."""
        return self._stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def raw_stream(stream: TextIO) -> TextIO:
    """The stream below a :class:`PrintableStream`, for progress lines and colours of our own."""
    return stream.raw if isinstance(stream, PrintableStream) else stream
