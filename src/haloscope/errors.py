r"""Errors made of location, problem, allowed values and remedy, and the printable text of messages.

Control characters, escape sequences and marks that turn the direction of writing are printed as
text (``\x1b``): no name in a file, a case or a program can clear a screen, hide a line or pass
for another one.
"""

from __future__ import annotations

import copy
import importlib
import re
import shlex
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, Self, TextIO

ERROR_LENGTH = 500
"""Most characters of an error line."""
WARNING = "warning:"
"""Lines that begin so question a result."""
_NAME_LENGTH = 100
_CLONE = Path(__file__).parents[2]  # the project's folder if the package is used from a clone
_TAIL = 0.3  # Of a shortened text
_ELLIPSIS = "..."
# Control, format (direction of writing), lone surrogates, private, unassigned, line and paragraph ends.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_KEPT = "\n\t"
# Places within a file follow its name after a comma: "case.toml, line 3".
_WITHIN_FILE = re.compile(r"(line|byte|column|row) \d")


class Fields(Protocol):
    """The four parts of a message."""

    location: str
    problem: str
    allowed: str
    remedy: str


FIELDS = ("location", "problem", "allowed", "remedy")
"""Names of the parts of a message, in the order in which they are printed."""


def error_text(fields: Fields) -> str:
    """One line: ``location: problem; allowed: allowed; remedy``, without the parts that are empty."""
    allowed = f"allowed: {fields.allowed}" if fields.allowed else ""
    rest = "; ".join(part for part in (fields.problem, allowed, fields.remedy) if part)
    return ": ".join(part for part in (fields.location, rest) if part)


class WithFields(Exception):
    """An exception whose text is made of fields."""

    def __init__(
        self, problem: str, *, location: str = "", allowed: str = "", remedy: str = ""
    ) -> None:
        # Copies and unpickled errors are made by a call with `args`.
        super().__init__(problem)
        self.problem = problem
        self.location = location
        self.allowed = allowed
        self.remedy = remedy

    def __str__(self) -> str:
        return error_text(self)

    def within(self, place: object) -> Self:
        """The same error with `place` in front of its location."""
        moved = copy.copy(self)
        separator = ", " if _WITHIN_FILE.match(self.location) else ": "
        moved.location = f"{place}{separator}{self.location}" if self.location else str(place)
        return moved


class HaloscopeError(WithFields):
    """A failure with a message meant for the user and the exit code of the command."""

    exit_code = 1


class SolutionError(HaloscopeError):
    """The solution broke (NaN, divergence) or a check failed: exit code 1."""

    exit_code = 1


class InputError(HaloscopeError):
    """Wrong input: a case file, an option, a checkpoint. Exit code 2."""

    exit_code = 2


class MachineError(HaloscopeError):
    """The machine lacks something: a compiler, a GPU, MPI, disk space. Exit code 3."""

    exit_code = 3


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra beside this installation."""
    if (_CLONE / "pyproject.toml").is_file():
        place = "." if Path.cwd() == _CLONE else str(_CLONE)
        return f"pip install -e {shlex.quote(f'{place}[{extra}]')}"
    # A wheel: its own packages, as no index has to know Haloscope.
    import importlib.metadata

    try:
        requirements = importlib.metadata.requires("haloscope") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    packages = []
    for requirement in requirements:
        package, _, marker = requirement.partition(";")
        if re.search(rf"""extra == ["']{extra}["']""", marker):
            others = re.sub(r"""(\s+and\s+)?extra == ["'][\w-]+["']""", "", marker).strip()
            packages.append(f"{package.strip()}; {others}" if others else package.strip())
    return f"pip install {shlex.join(packages)}" if packages else f"install its extra {extra}"


def counted(number: object, noun: str, several: str = "") -> str:
    """A number of things in words: 1 rank, 2 ranks.

    `several`: what several are called; the noun with an s by default.
    """
    shown = str(number)
    return f"{shown} {noun if shown == '1' else several or noun + 's'}"


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


def imported(package: str, purpose: str) -> Any:
    """A package of the extra `notebook`; its error names the extra."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MachineError(
            f"{package} cannot be imported ({error})",
            location=purpose,
            remedy=f"run {install_command('notebook')}",
        ) from error


_MOST_ROWS = 20
_CELL_LENGTH = 200


def html_table(title: str, rows: Sequence[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A table with a caption; names and values may come from anywhere and are escaped."""
    lines = [_row("th", head)] if head else []
    lines += [_row("td", row) for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(_row("td", [f"and {counted(len(rows) - _MOST_ROWS, 'more row')}"]))
    return f"<table><caption>{_cell(title)}</caption>{''.join(lines)}</table>"


def _row(tag: str, values: Sequence[object]) -> str:
    cells = (f'<{tag} style="text-align: left">{_cell(value)}</{tag}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: object) -> str:
    import html  # 1 ms, in notebooks only

    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return html.escape(message_line(text, _CELL_LENGTH))
