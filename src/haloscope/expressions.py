"""Functions of position and time that a case file gives as text or as a two-column table.

An expression such as ``300 + 5*sin(pi*x/0.05)*exp(-t)`` is parsed once into a short list of
operations, and only the operations named in this file exist: no text of a case file is ever run
as Python.

The grammar, all of it in 64-bit floats:

- numbers, the constants ``pi`` and ``e``, and the variables that the caller allows;
- ``+ - * / **``, unary ``+ -`` and parentheses;
- comparisons ``< <= > >= == !=``, which give 1 or 0 and may be chained (``0.1 < x < 0.2``);
- the conditional ``a if x < 0.1 else b``;
- ``sin cos tan asin acos atan atan2 sinh cosh tanh exp log log10 sqrt abs min max floor ceil
  step``, where ``log`` is the natural logarithm, ``min`` and ``max`` take two values or more, and
  ``step(x)`` is 0 for x < 0 and 1 otherwise.
"""

from __future__ import annotations

import ast
import csv
import difflib
import io
import math
import re
import stat
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError

MAXIMUM_TEXT_CHARACTERS = 2000
MAXIMUM_NESTING_DEPTH = 50
MAXIMUM_CONSTANT_EXPONENT = 1000.0
MAXIMUM_TABLE_BYTES = 64 * 1024 * 1024

SPACE_AND_TIME = ("x", "y", "z", "t")
CONSTANTS = {"pi": math.pi, "e": math.e}

_SHOWN_CHARACTERS = 100
_FOREIGN_CHARACTER = re.compile(r"[^A-Za-z0-9_+\-*/().,<>=! ]")

FloatArray: TypeAlias = NDArray[np.float64]


def _step(x: FloatArray) -> FloatArray:
    return np.heaviside(x, 1.0)


def _select(condition: FloatArray, chosen: FloatArray, other: FloatArray) -> FloatArray:
    # A condition that is not a number must not quietly pick a branch.
    return np.where(np.isnan(condition), np.nan, np.where(condition != 0.0, chosen, other))


class _Function(NamedTuple):
    apply: Callable[..., Any]
    fewest: int
    most: int | None  # None: any number


_FUNCTIONS: dict[str, _Function] = {
    "sin": _Function(np.sin, 1, 1),
    "cos": _Function(np.cos, 1, 1),
    "tan": _Function(np.tan, 1, 1),
    "asin": _Function(np.arcsin, 1, 1),
    "acos": _Function(np.arccos, 1, 1),
    "atan": _Function(np.arctan, 1, 1),
    "atan2": _Function(np.arctan2, 2, 2),
    "sinh": _Function(np.sinh, 1, 1),
    "cosh": _Function(np.cosh, 1, 1),
    "tanh": _Function(np.tanh, 1, 1),
    "exp": _Function(np.exp, 1, 1),
    "log": _Function(np.log, 1, 1),
    "log10": _Function(np.log10, 1, 1),
    "sqrt": _Function(np.sqrt, 1, 1),
    "abs": _Function(np.abs, 1, 1),
    "floor": _Function(np.floor, 1, 1),
    "ceil": _Function(np.ceil, 1, 1),
    "step": _Function(_step, 1, 1),
    "min": _Function(np.minimum, 2, None),
    "max": _Function(np.maximum, 2, None),
}

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}

_COMPARISONS: dict[type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "**": np.power,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "negate": np.negative,
    "select": _select,
    **{name: function.apply for name, function in _FUNCTIONS.items()},
}

# What the user may have meant by a character or a piece of Python that the grammar lacks.
_CHARACTER_ADVICE = {
    "^": "write ** for a power",
    "%": "write a - b*floor(a/b) for a remainder",
}
_ADVICE: dict[type[ast.AST], str] = {
    ast.FloorDiv: "write floor(a/b)",
    ast.And: "chain comparisons (0.1 < x < 0.2) or multiply them",
    ast.Or: "write max(a, b) of two comparisons",
    ast.Not: "write 1 - a for the opposite of a comparison",
    ast.Tuple: "write decimals with a point, not a comma",
}


class _Number(NamedTuple):
    value: float


class _Variable(NamedTuple):
    name: str


class _Operation(NamedTuple):
    name: str
    operands: int


class _Comparison(NamedTuple):
    links: tuple[str, ...]  # a < b <= c has the links < and <=


_Instruction: TypeAlias = _Number | _Variable | _Operation | _Comparison


def _compared(links: tuple[str, ...], sides: list[Any]) -> FloatArray:
    """Give 1 where every link of a chain of comparisons holds, 0 where not, nan where a side is."""
    holds: Any = 1.0
    for link, left, right in zip(links, sides, sides[1:], strict=False):
        known = ~(np.isnan(left) | np.isnan(right))
        holds = holds * np.where(known, _OPERATIONS[link](left, right), np.nan)
    return np.asarray(holds)


class Expression:
    """A function of named variables, parsed once from the text of a case file.

    Parameters
    ----------
    text : str
        The expression, in the grammar of this module; at most 2,000 characters, nested at most
        50 deep, constant exponents at most 1,000 in magnitude.
    variables : iterable of str
        The names that the text may use besides functions and constants.

    Attributes
    ----------
    text : str
        The expression with runs of white space made one space.
    variables : tuple of str
        The names that it may use.
    uses : frozenset of str
        The names that it does use: without ``t`` in it, one evaluation serves all times.

    Raises
    ------
    InputError
        The text is empty, too long, too deep, outside the grammar or uses an unknown name.

    Notes
    -----
    An expression can be pickled and so sent to other processes.
    """

    def __init__(self, text: str, variables: Iterable[str] = SPACE_AND_TIME) -> None:
        if len(text) > MAXIMUM_TEXT_CHARACTERS:
            raise InputError(
                f"expression {_shown(text)} has {len(text)} characters; at most "
                f"{MAXIMUM_TEXT_CHARACTERS} are allowed: shorten it or give a table"
            )
        self.text = " ".join(text.split())
        self.variables = tuple(variables)
        reserved = sorted({*_FUNCTIONS, *CONSTANTS}.intersection(self.variables))
        if reserved:
            raise InputError(
                f"variable {reserved[0]!r} has the name of a function or constant of expressions: "
                f"give it another name"
            )
        self._program = _Parser(self.text, self.variables).program()
        self.uses = frozenset(step.name for step in self._program if isinstance(step, _Variable))

    def __repr__(self) -> str:
        return f"Expression({self.text!r}, variables={self.variables!r})"

    def __call__(self, **arrays: ArrayLike) -> FloatArray:
        """Evaluate at points.

        Parameters
        ----------
        **arrays : array_like
            One value or array per variable, of shapes that broadcast together. A variable that
            the text does not use may be left out; one that is given still counts for the shape.

        Returns
        -------
        numpy.ndarray
            float64, of the broadcast shape of all arrays given, freshly allocated. Division by
            zero and the like leave inf or nan here; `evaluate_finite` refuses them.

        Raises
        ------
        InputError
            A variable that the text uses is missing, one given is not allowed, or the shapes do
            not broadcast.
        """
        points = self._points(arrays)
        shape = self._shape(points)
        stack: list[Any] = []
        with np.errstate(all="ignore"):
            for step in self._program:
                if isinstance(step, _Number):
                    stack.append(np.float64(step.value))
                elif isinstance(step, _Variable):
                    stack.append(points[step.name])
                elif isinstance(step, _Comparison):
                    sides = _pop(stack, len(step.links) + 1)
                    stack.append(_compared(step.links, sides))
                else:
                    stack.append(_OPERATIONS[step.name](*_pop(stack, step.operands)))
        return np.array(np.broadcast_to(stack.pop(), shape), dtype=np.float64)

    def evaluate_finite(self, name: str, /, **arrays: ArrayLike) -> FloatArray:
        """Evaluate at points and refuse a result that is not finite everywhere.

        Parameters
        ----------
        name : str
            The key of the case file that holds the expression, for the message.
        **arrays : array_like
            As for calling the expression.

        Returns
        -------
        numpy.ndarray
            float64, of the broadcast shape of all arrays given; every value finite.

        Raises
        ------
        InputError
            A value is inf or nan (the message names the first such point in storage order), or
            as for calling the expression.
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
            f"{name}: expression {_shown(self.text)} gives {values.flat[first]}"
            f"{' at ' + where if where else ''}; it must be finite at every point: guard the "
            f"point with a conditional (a if x > 0 else b) or correct the expression"
        )

    def _points(self, arrays: dict[str, ArrayLike]) -> dict[str, FloatArray]:
        foreign = sorted(set(arrays).difference(self.variables))
        missing = sorted(self.uses.difference(arrays))
        if foreign or missing:
            problem = f"was given {foreign[0]!r}" if foreign else f"was not given {missing[0]!r}"
            raise InputError(
                f"expression {_shown(self.text)} {problem}; its variables are "
                f"{_listed(self.variables)} and it uses {_listed(sorted(self.uses))}: pass those"
            )
        return {name: np.asarray(points, dtype=np.float64) for name, points in arrays.items()}

    def _shape(self, points: dict[str, FloatArray]) -> tuple[int, ...]:
        try:
            return np.broadcast_shapes(*(values.shape for values in points.values()))
        except ValueError:
            shapes = ", ".join(f"{name} {values.shape}" for name, values in points.items())
            raise InputError(
                f"expression {_shown(self.text)} was given shapes that do not broadcast "
                f"together: {shapes}; give equal shapes or axes of length 1"
            ) from None


def _pop(stack: list[Any], count: int) -> list[Any]:
    taken = stack[-count:]
    del stack[-count:]
    return taken


class _Parser:
    """Turns one text into instructions in postfix order, or says why it cannot."""

    def __init__(self, text: str, variables: tuple[str, ...]) -> None:
        self.text = text
        self.variables = variables
        self.instructions: list[_Instruction] = []

    def program(self) -> tuple[_Instruction, ...]:
        self._visit(self._tree(), depth=1)
        return tuple(self.instructions)

    def _tree(self) -> ast.expr:
        if not self.text:
            raise self._error("is empty", "write a number or a formula")
        foreign = _FOREIGN_CHARACTER.search(self.text)
        if foreign:
            advice = _CHARACTER_ADVICE.get(foreign.group(), "remove it")
            raise self._error(
                f"has {foreign.group()!r} at character {foreign.start() + 1}, which is not part of "
                "an expression",
                advice,
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # style advice for Python programs, not for cases
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise self._error(
                f"cannot be read at character {error.offset or 1} ({error.msg})",
                "correct it there",
            ) from None
        except (RecursionError, MemoryError):
            raise self._too_deep() from None

    def _visit(self, node: ast.expr, depth: int) -> None:
        if depth > MAXIMUM_NESTING_DEPTH:
            raise self._too_deep()
        match node:
            case ast.Constant():
                self._number(node)
            case ast.Name():
                self._name(node)
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                self._visit(node.operand, depth + 1)
                if isinstance(node.op, ast.USub):
                    self._emit("negate", 1)
            case ast.BinOp():
                self._chain(node, depth)
            case ast.Compare():
                self._comparison(node, depth)
            case ast.IfExp():
                for part in (node.test, node.body, node.orelse):
                    self._visit(part, depth + 1)
                self._emit("select", 3)
            case ast.Call():
                self._call(node, depth)
            case _:
                raise self._foreign(node)

    def _number(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self._foreign(node)
        self.instructions.append(_Number(self._float(node)))

    def _float(self, node: ast.Constant) -> float:
        try:
            value = float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            value = math.inf
        if math.isinf(value):
            raise self._error(
                f"has the number {_shown(self._source(node))}, above the largest 64-bit float",
                "give a number below 1.8e308",
            )
        return value

    def _name(self, node: ast.Name) -> None:
        if node.id in self.variables:
            self.instructions.append(_Variable(node.id))
        elif node.id in CONSTANTS:
            self.instructions.append(_Number(CONSTANTS[node.id]))
        elif node.id in _FUNCTIONS:
            raise self._error(
                f"uses the function {node.id!r} without arguments", f"write {node.id}(...)"
            )
        else:
            allowed = [*self.variables, *CONSTANTS]
            raise self._unknown(node.id, allowed, f"names are {_listed(allowed)}")

    def _chain(self, node: ast.BinOp, depth: int) -> None:
        # A sum of many terms leans to the left in the tree without being nested in the text, so
        # the left edge is walked in a loop and counts as one level.
        edge: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            edge.append(left)
            left = left.left
        self._visit(left, depth + 1)
        for operation in reversed(edge):
            name = _OPERATORS.get(type(operation.op))
            if name is None:
                raise self._foreign(operation)
            if name == "**":
                self._check_exponent(operation.right)
            self._visit(operation.right, depth + 1)
            self._emit(name, 2)

    def _check_exponent(self, node: ast.expr) -> None:
        while isinstance(node, ast.UnaryOp):
            node = node.operand
        if not isinstance(node, ast.Constant) or not isinstance(node.value, int | float):
            return
        if self._float(node) > MAXIMUM_CONSTANT_EXPONENT:
            raise self._error(
                f"has the exponent {_shown(self._source(node))}; constant exponents are at most "
                f"{MAXIMUM_CONSTANT_EXPONENT:g} in magnitude",
                "use a smaller one",
            )

    def _comparison(self, node: ast.Compare, depth: int) -> None:
        links = tuple(_COMPARISONS.get(type(link), "") for link in node.ops)
        if "" in links:
            raise self._foreign(node)
        for side in (node.left, *node.comparators):
            self._visit(side, depth + 1)
        self.instructions.append(_Comparison(links))

    def _call(self, node: ast.Call, depth: int) -> None:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self._foreign(node)
        name = node.func.id
        if name not in _FUNCTIONS:
            if name in self.variables or name in CONSTANTS:
                raise self._error(
                    f"calls {name!r}, which is not a function", f"write {name}*(...) for a product"
                )
            raise self._unknown(name, list(_FUNCTIONS), f"functions are {_listed(_FUNCTIONS)}")
        _, fewest, most = _FUNCTIONS[name]
        given = len(node.args)
        if given < fewest or (most is not None and given > most):
            raise self._error(
                f"gives {name} {given} argument{'' if given == 1 else 's'}; it takes {fewest}"
                f"{' or more' if most is None else ''}",
                "correct the call",
            )
        # min and max of many values fold from the left, two at a time.
        for position, argument in enumerate(node.args):
            self._visit(argument, depth + 1)
            if most is None and position > 0:
                self._emit(name, 2)
        if most is not None:
            self._emit(name, given)

    def _emit(self, name: str, operands: int) -> None:
        self.instructions.append(_Operation(name, operands))

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.text, node) or self.text

    def _error(self, problem: str, advice: str) -> InputError:
        return InputError(f"expression {_shown(self.text)} {problem}: {advice}")

    def _too_deep(self) -> InputError:
        return self._error(
            f"is nested more than {MAXIMUM_NESTING_DEPTH} deep", "simplify it or give a table"
        )

    def _unknown(self, name: str, candidates: list[str], allowed: str) -> InputError:
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)[0]
        return self._error(
            f"uses the unknown name {_shown(name)}; allowed {allowed}",
            f"nearest is {nearest!r}",
        )

    def _foreign(self, node: ast.expr) -> InputError:
        kind = node.op if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) else node
        advice = _ADVICE.get(
            type(kind), "use numbers, + - * / **, comparisons, a if c else b, and functions"
        )
        return self._error(
            f"has {_shown(self._source(node))}, which is not part of the grammar", advice
        )


def parse_quantity_or_expression(
    value: float | int | str, key: str, variables: Iterable[str] = SPACE_AND_TIME
) -> Expression:
    """Read a case-file entry that may be a number or an expression.

    Parameters
    ----------
    value : float, int or str
        The entry, in the unit of the key.
    key : str
        The key of the entry, for messages.
    variables : iterable of str
        The names that an expression may use.

    Returns
    -------
    Expression
        A number becomes a constant expression.

    Raises
    ------
    InputError
        The entry is neither a finite number nor a valid expression; the message starts with the
        key.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InputError(
            f"{key}: given {_shown(str(value))} ({type(value).__name__}); allowed are a number or "
            f"an expression as text: write 300 or '300 + 5*sin(pi*x)'"
        )
    if isinstance(value, str):
        text = value
    else:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise InputError(f"{key}: given {number}; allowed is a finite number: give one")
        text = repr(number)
    try:
        return Expression(text, variables)
    except InputError as error:
        raise InputError(f"{key}: {error}") from None


@dataclass(frozen=True, eq=False)
class Table:
    """Values along time or one coordinate, linear between rows and constant beyond the ends.

    Attributes
    ----------
    coordinate : numpy.ndarray
        (rows,) float64, strictly increasing, in s or m.
    value : numpy.ndarray
        (rows,) float64, in the unit of the quantity that it stands for.
    """

    coordinate: FloatArray
    value: FloatArray

    @classmethod
    def from_csv(cls, path: str | Path) -> Table:
        """Read a table from a file of two comma-separated columns.

        Parameters
        ----------
        path : str or Path
            A UTF-8 file of at most 64 MiB. The first line may be a header; blank lines are
            skipped. The first column is strictly increasing.

        Returns
        -------
        Table
            At least two rows, every number finite.

        Raises
        ------
        InputError
            The file is missing, unreadable, too large or not such a table; the message names
            the line.
        """
        coordinate, value = array("d"), array("d")
        may_be_header = True
        for line, row in _csv_rows(path):
            if len(row) != 2:
                raise InputError(
                    f"table {path}, line {line}: has {len(row)} column"
                    f"{'' if len(row) == 1 else 's'}; allowed are 2, separated by a comma: "
                    f"correct the line"
                )
            first, second = _number(row[0]), _number(row[1])
            if may_be_header and first is None and second is None:
                may_be_header = False
                continue
            may_be_header = False
            if first is None or second is None or not np.isfinite([first, second]).all():
                raise InputError(
                    f"table {path}, line {line}: {_shown(','.join(row))} is not two finite "
                    f"numbers: correct the line"
                )
            if coordinate and not first > coordinate[-1]:
                raise InputError(
                    f"table {path}, line {line}: {first:.9g} follows {coordinate[-1]:.9g}; the "
                    f"first column must be strictly increasing: sort it and remove repeats"
                )
            coordinate.append(first)
            value.append(second)
        if len(coordinate) < 2:
            raise InputError(
                f"table {path}: has {len(coordinate)} row{'' if len(coordinate) == 1 else 's'} of "
                f"numbers; at least 2 are needed: add rows or give a number instead of a table"
            )
        return cls(np.array(coordinate), np.array(value))

    def __call__(self, at: ArrayLike) -> FloatArray:
        """Interpolate linearly; beyond the ends the end values hold.

        Parameters
        ----------
        at : array_like
            Times or coordinates, any shape, in the unit of the first column.

        Returns
        -------
        numpy.ndarray
            float64, of the shape of `at`.
        """
        points = np.asarray(at, dtype=np.float64)
        return np.array(np.interp(points, self.coordinate, self.value), dtype=np.float64)


def _csv_rows(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every line that is not blank, the size checked first."""
    try:
        status = Path(path).stat()
        # A pipe or a device has no size to check and may never end.
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"table {path}: is not a regular file: give the path of a CSV file")
        if status.st_size > MAXIMUM_TABLE_BYTES:
            raise InputError(
                f"table {path}: has {status.st_size / 2**20:.1f} MiB; at most "
                f"{MAXIMUM_TABLE_BYTES // 2**20} MiB are allowed: thin it out"
            )
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(
            f"table {path}: cannot be read ({error.strerror}): check the path and its permissions"
        ) from None
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        for row in reader:
            if any(cell.strip() for cell in row):
                yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"table {path}: is not CSV text in UTF-8 ({error}): export it as CSV"
        ) from None


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _shown(text: str) -> str:
    """Quote a text on one line, shortened to what a message can hold."""
    shortened = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return repr(shortened)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
