"""Functions of position and time from the text of a case file, a number, or a file of two columns."""

from __future__ import annotations

import difflib
import math
import stat
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from haloscope.case.grammar import (
    CONSTANTS,
    FUNCTIONS,
    MAXIMUM_TEXT_CHARACTERS,
    OPERATIONS,
    Comparison,
    FloatArray,
    Number,
    Parser,
    Variable,
    compared,
    listed,
    shown,
)
from haloscope.errors import InputError, counted

SPACE_AND_TIME = ("x", "y", "z", "t")


class Expression:
    """A function of named variables, parsed once from the text of a case file."""

    # An expression can be pickled and so sent to other processes.

    def __init__(self, text: str, variables: Iterable[str] = SPACE_AND_TIME) -> None:
        if len(text) > MAXIMUM_TEXT_CHARACTERS:
            raise InputError(
                f"it has {len(text)} characters",
                location=f"expression {shown(text)}",
                allowed=f"at most {MAXIMUM_TEXT_CHARACTERS}",
                remedy="shorten it or give a table",
            )
        # The expression, in the grammar of this package; at most 2,000 characters, nested at most
        # 50 deep, constant exponents at most 1,000 in magnitude.
        self.text = " ".join(text.split())
        self.variables = tuple(variables)
        reserved = sorted({*FUNCTIONS, *CONSTANTS}.intersection(self.variables))
        if reserved:
            raise InputError(
                "it has the name of a function or constant of expressions",
                location=f"variable {reserved[0]!r}",
                remedy="give it another name",
            )
        self._program = Parser(self.text, self.variables).program()
        # The names that it does use: without ``t`` in it, one evaluation serves all times.
        self.uses = frozenset(step.name for step in self._program if isinstance(step, Variable))

    def __repr__(self) -> str:
        return f"Expression({self.text!r}, variables={self.variables!r})"

    def __call__(self, **arrays: ArrayLike) -> FloatArray:
        """Evaluate at points.

        `arrays`: one value or array per variable, of shapes that broadcast together. Unused
        variables are optional; if passed, they count for the shape.
        """
        # Returns: float64, of the broadcast shape of all arrays given, freshly allocated. Division
        # by zero and the like leave inf or nan here; `evaluate_finite` refuses them.
        points = self._points(arrays)
        shape = self._shape(points)
        stack: list[Any] = []
        with np.errstate(all="ignore"):
            for step in self._program:
                if isinstance(step, Number):
                    stack.append(np.float64(step.value))
                elif isinstance(step, Variable):
                    stack.append(points[step.name])
                elif isinstance(step, Comparison):
                    sides = _pop(stack, len(step.links) + 1)
                    stack.append(compared(step.links, sides))
                else:
                    stack.append(OPERATIONS[step.name](*_pop(stack, step.operands)))
        return np.array(np.broadcast_to(stack.pop(), shape), dtype=np.float64)

    def evaluate_finite(self, name: str, /, **arrays: ArrayLike) -> FloatArray:
        """Evaluate at points and refuse a result that is not finite everywhere.

        Returns: float64, of the broadcast shape of all arrays given; every value finite.
        """
        values = self(**arrays)
        finite = np.isfinite(values)
        if finite.all():
            return values
        first = int(np.argmin(finite))
        where = ", ".join(
            f"{variable} = {np.broadcast_to(points, values.shape).flat[first]:.9g}"
            for variable, points in self._points(arrays).items()
        )
        raise InputError(
            f"its value is {values.flat[first]}{' at ' + where if where else ''}",
            location=f"{name}: expression {shown(self.text)}",
            allowed="finite values at every point",
            remedy="guard the point with a conditional (a if x > 0 else b) or correct the expression",
        )

    def _points(self, arrays: dict[str, ArrayLike]) -> dict[str, FloatArray]:
        foreign = sorted(set(arrays).difference(self.variables))
        missing = sorted(self.uses.difference(arrays))
        if foreign or missing:
            raise InputError(
                f"no variable {foreign[0]!r}" if foreign else f"no values of {missing[0]!r}",
                location=f"expression {shown(self.text)}",
                allowed=f"the variables {listed(self.variables)}",
                remedy=f"pass those that it uses: {listed(sorted(self.uses))}",
            )
        return {name: np.asarray(points, dtype=np.float64) for name, points in arrays.items()}

    def _shape(self, points: dict[str, FloatArray]) -> tuple[int, ...]:
        try:
            return np.broadcast_shapes(*(values.shape for values in points.values()))
        except ValueError:
            shapes = ", ".join(f"{name} {values.shape}" for name, values in points.items())
            raise InputError(
                f"the shapes of its variables do not broadcast together: {shapes}",
                location=f"expression {shown(self.text)}",
                allowed="equal shapes or axes of length 1",
            ) from None


def _pop(stack: list[Any], count: int) -> list[Any]:
    taken = stack[-count:]
    del stack[-count:]
    return taken


def parse_quantity_or_expression(
    value: float | int | str,
    key: str,
    variables: Iterable[str] = SPACE_AND_TIME,
    *,
    words: Sequence[str] = (),
) -> Expression:
    """Read a case-file entry that may be a number or an expression.

    `words`: what the key takes beside them; a misspelt one is refused with their names.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(
            f"wrong type {type(value).__name__}",
            location=f"{key} = {shown(str(value))}",
            allowed="a number or an expression as text",
            remedy="write 300 or '300 + 5*sin(pi*x)'",
        )
    if isinstance(value, str):
        text = value
    else:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise InputError("not finite", location=f"{key} = {number}", allowed="a finite number")
        text = repr(number)
    try:
        return Expression(text, variables)
    except InputError as error:
        if words and text.strip().isidentifier():
            raise _unknown_word(text.strip(), key, variables, words) from None
        raise error.within(key) from None


def _unknown_word(
    word: str, key: str, variables: Iterable[str], words: Sequence[str]
) -> InputError:
    near = difflib.get_close_matches(word, words, 1)
    return InputError(
        "unknown word",
        location=f"{key} = {shown(word)}",
        allowed=f"{listed(words)}, a number, or an expression of {listed(variables)}",
        remedy=f"did you mean {near[0]}?" if near else "",
    )


MAXIMUM_TABLE_BYTES = 64 * 1024 * 1024
_SEPARATORS = ";\t,"
_DECIMAL_POINT = "write decimals with a point, as in 0.5"
# A table that reaches so many times beyond the end of the run is probably in milliseconds.
_MILLISECONDS_FROM = 100.0


@dataclass(frozen=True, eq=False)
class Table:
    """Values along time or one coordinate, linear between rows and constant beyond the ends."""

    coordinate: FloatArray  # (rows,) float64, strictly increasing, in s or m
    value: FloatArray  # (rows,) float64, in the unit of the quantity that it stands for

    @classmethod
    def from_csv(cls, path: str | Path) -> Table:
        """Read a table from a file of two columns."""
        # `path`: a UTF-8 file of at most 64 MiB. Columns are separated by semicolons, tabs, commas
        # or blanks: the first of these that the first line of numbers holds. One line before it may
        # be a header; blank lines, and text from ``#`` to the end of a line, are skipped. Decimals
        # have points. The first column is strictly increasing.
        coordinate, value = array("d"), array("d")
        may_be_header = True
        for line, row in _rows(path):
            if may_be_header and _is_text(row):
                may_be_header = False
                continue
            may_be_header = False
            if len(row) != 2:
                raise InputError(
                    f"it has {counted(len(row), 'column')}",
                    location=f"table {path}, line {line}",
                    allowed="2 columns, separated by a semicolon, tab, comma or blanks",
                    remedy="correct the line",
                )
            first, second = _number(row[0]), _number(row[1])
            if first is None or second is None or not np.isfinite([first, second]).all():
                raise InputError(
                    f"{shown(' '.join(row))} is not two numbers",
                    location=f"table {path}, line {line}",
                    allowed="two finite numbers",
                    remedy=_DECIMAL_POINT if _has_decimal_comma(row) else "correct the line",
                )
            if coordinate and not first > coordinate[-1]:
                raise InputError(
                    f"{first:.9g} follows {coordinate[-1]:.9g}",
                    location=f"table {path}, line {line}",
                    allowed="a strictly increasing first column",
                    remedy="sort it and remove repeats",
                )
            coordinate.append(first)
            value.append(second)
        if len(coordinate) < 2:
            raise InputError(
                f"it has {counted(len(coordinate), 'row')} of numbers",
                location=f"table {path}",
                allowed="at least 2",
                remedy="add rows or give a number instead of a table",
            )
        return cls(np.array(coordinate), np.array(value))

    def __call__(self, at: ArrayLike) -> FloatArray:
        """Interpolate linearly; beyond the ends the end values hold.

        `at`: times or coordinates, any shape, in the unit of the first column; Returns: float64, of
        the shape of `at`.
        """
        points = np.asarray(at, dtype=np.float64)
        return np.array(np.interp(points, self.coordinate, self.value), dtype=np.float64)


def times_in_milliseconds(table: Table, end: float) -> bool:
    """Whether a table's times look like milliseconds: they end long after the run.

    `end`: where the run ends in s.
    """
    return bool(end > 0 and table.coordinate[-1] >= _MILLISECONDS_FROM * end)


def _is_text(row: list[str]) -> bool:
    """Whether a line holds no number, as a header."""
    return all(_number(cell) is None for cell in row) and not _has_decimal_comma(row)


def _has_decimal_comma(row: list[str]) -> bool:
    return any(_number(cell.replace(",", ".")) is not None for cell in row if "," in cell)


def _rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every line that holds any, the size checked first."""
    try:
        status = Path(path).stat()
        # A pipe or a device has no size to check and may never end.
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                "it is not a regular file",
                location=f"table {path}",
                remedy="give the path of a CSV file",
            )
        if status.st_size > MAXIMUM_TABLE_BYTES:
            raise InputError(
                f"it has {status.st_size / 2**20:.1f} MiB",
                location=f"table {path}",
                allowed=f"at most {MAXIMUM_TABLE_BYTES // 2**20} MiB",
                remedy="thin it out",
            )
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"it cannot be read ({reason})",
            location=f"table {path}",
            remedy="check the path and its permissions",
        ) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"it is not CSV text in UTF-8 ({error})",
            location=f"table {path}",
            remedy="export it as CSV",
        ) from None
    separator: str | None = None
    begun = False
    for number, line in enumerate(text.splitlines(), 1):
        row = line.partition("#")[0].strip(" ")
        if not row.strip():
            continue
        if not begun:
            # A header has separators of its own: "time in s, flow in m3/s".
            separator = next((mark for mark in _SEPARATORS if mark in row), None)
        cells = [cell.strip().strip('"') for cell in row.split(separator)]
        begun = begun or not _is_text(cells)
        yield number, cells


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
