"""Grammar of expressions: functions and operators, and the reading of a text into a list of operations.

An expression such as ``300 + 5*sin(pi*x/0.05)*exp(-t)`` is parsed once: no text of a case file is
ever run as Python.

The grammar (all arithmetic in 64-bit floats):

- numbers, the constants ``pi`` and ``e``, and the allowed variables;
- ``+ - * / **``, unary ``+ -`` and parentheses;
- comparisons ``< <= > >= == !=``, which give 1 or 0 and may be chained (``0.1 < x < 0.2``);
- the conditional ``a if x < 0.1 else b``;
- ``sin cos tan asin acos atan atan2 sinh cosh tanh exp log log10 sqrt abs min max floor ceil
  step``, where ``log`` is the natural logarithm, ``min`` and ``max`` take two values or more, and
  ``step(x)`` is 0 for x < 0 and 1 otherwise.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted

FloatArray: TypeAlias = NDArray[np.float64]

CONSTANTS = {"pi": math.pi, "e": math.e}


def _step(x: FloatArray) -> FloatArray:
    return np.heaviside(x, 1.0)


def _select(condition: FloatArray, chosen: FloatArray, other: FloatArray) -> FloatArray:
    # A condition that is not a number must not quietly pick a branch.
    return np.where(np.isnan(condition), np.nan, np.where(condition != 0.0, chosen, other))


class Function(NamedTuple):
    """A function and how many values it takes."""

    apply: Callable[..., Any]
    fewest: int
    most: int | None  # None: any number


FUNCTIONS: dict[str, Function] = {
    "sin": Function(np.sin, 1, 1),
    "cos": Function(np.cos, 1, 1),
    "tan": Function(np.tan, 1, 1),
    "asin": Function(np.arcsin, 1, 1),
    "acos": Function(np.arccos, 1, 1),
    "atan": Function(np.arctan, 1, 1),
    "atan2": Function(np.arctan2, 2, 2),
    "sinh": Function(np.sinh, 1, 1),
    "cosh": Function(np.cosh, 1, 1),
    "tanh": Function(np.tanh, 1, 1),
    "exp": Function(np.exp, 1, 1),
    "log": Function(np.log, 1, 1),
    "log10": Function(np.log10, 1, 1),
    "sqrt": Function(np.sqrt, 1, 1),
    "abs": Function(np.abs, 1, 1),
    "floor": Function(np.floor, 1, 1),
    "ceil": Function(np.ceil, 1, 1),
    "step": Function(_step, 1, 1),
    "min": Function(np.minimum, 2, None),
    "max": Function(np.maximum, 2, None),
}

OPERATIONS: dict[str, Callable[..., Any]] = {
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
    **{name: function.apply for name, function in FUNCTIONS.items()},
}


def compared(links: tuple[str, ...], sides: list[Any]) -> FloatArray:
    """Give 1 where every link of a chain of comparisons holds, 0 where not, nan where a side is."""
    holds: Any = 1.0
    for link, left, right in zip(links, sides, sides[1:], strict=False):
        known = ~(np.isnan(left) | np.isnan(right))
        holds = holds * np.where(known, OPERATIONS[link](left, right), np.nan)
    return np.asarray(holds)


_SHOWN_CHARACTERS = 100


def shown(text: str) -> str:
    """Quote a text on one line, shortened to what a message can hold."""
    shortened = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return repr(shortened)


def listed(names: Iterable[str]) -> str:
    """Names with commas between them."""
    return ", ".join(names) or "none"


MAXIMUM_TEXT_CHARACTERS = 2000
MAXIMUM_NESTING_DEPTH = 50
MAXIMUM_CONSTANT_EXPONENT = 1000.0

_FOREIGN_CHARACTER = re.compile(r"[^A-Za-z0-9_+\-*/().,<>=! ]")

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

# What the user may have meant by a character or a piece of Python that the grammar lacks.
_CHARACTER_ADVICE = {"^": "write ** for a power", "%": "write a - b*floor(a/b) for a remainder"}
_ADVICE: dict[type[ast.AST], str] = {
    ast.FloorDiv: "write floor(a/b)",
    ast.And: "chain comparisons (0.1 < x < 0.2) or multiply them",
    ast.Or: "write max(a, b) of two comparisons",
    ast.Not: "write 1 - a for the opposite of a comparison",
    ast.Tuple: "write decimals with a point, not a comma",
}


class Number(NamedTuple):
    """Puts a number on the stack."""

    value: float


class Variable(NamedTuple):
    """Puts the value of a variable on the stack."""

    name: str


class Operation(NamedTuple):
    """Takes its operands from the stack and puts its result there."""

    name: str
    operands: int


class Comparison(NamedTuple):
    """Takes the sides of a chain of comparisons and puts 1 or 0 there."""

    links: tuple[str, ...]  # a < b <= c has the links < and <=


Instruction: TypeAlias = Number | Variable | Operation | Comparison


class Parser:
    """Turns one text into instructions in postfix order, or says why it cannot."""

    def __init__(self, text: str, variables: tuple[str, ...]) -> None:
        self.text = text
        self.variables = variables
        self.instructions: list[Instruction] = []

    def program(self) -> tuple[Instruction, ...]:
        """Instructions that leave the value of the text on the stack."""
        self._visit(self._tree(), depth=1)
        return tuple(self.instructions)

    def _tree(self) -> ast.expr:
        if not self.text:
            raise self._error("it is empty", "write a number or a formula")
        foreign = _FOREIGN_CHARACTER.search(self.text)
        if foreign:
            advice = _CHARACTER_ADVICE.get(foreign.group(), "remove it")
            raise self._error(
                f"{foreign.group()!r} at character {foreign.start() + 1} is not part of an expression",
                advice,
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # style advice for Python programs, not for cases
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            # Python gives no place where the text ends too early.
            place = error.offset if error.offset and error.offset > 0 else len(self.text)
            raise self._error(
                f"it cannot be read at character {place} ({error.msg})", "correct it there"
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
        self.instructions.append(Number(self._float(node)))

    def _float(self, node: ast.Constant) -> float:
        try:
            value = float(node.value)  # type: ignore[arg-type]
        except OverflowError:
            value = math.inf
        if math.isinf(value):
            raise self._error(
                f"the number {shown(self._source(node))} is above the largest 64-bit float",
                "give a smaller one",
                allowed="numbers below 1.8e308",
            )
        return value

    def _name(self, node: ast.Name) -> None:
        if node.id in self.variables:
            self.instructions.append(Variable(node.id))
        elif node.id in CONSTANTS:
            self.instructions.append(Number(CONSTANTS[node.id]))
        elif node.id in FUNCTIONS:
            raise self._error(f"the function {node.id!r} has no arguments", f"write {node.id}(...)")
        else:
            allowed = [*self.variables, *CONSTANTS]
            raise self._unknown("name", node.id, allowed)

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
                f"the exponent {shown(self._source(node))} is too large",
                "use a smaller one",
                allowed=f"constant exponents of at most {MAXIMUM_CONSTANT_EXPONENT:g} in magnitude",
            )

    def _comparison(self, node: ast.Compare, depth: int) -> None:
        links = tuple(_COMPARISONS.get(type(link), "") for link in node.ops)
        if "" in links:
            raise self._foreign(node)
        for side in (node.left, *node.comparators):
            self._visit(side, depth + 1)
        self.instructions.append(Comparison(links))

    def _call(self, node: ast.Call, depth: int) -> None:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self._foreign(node)
        name = node.func.id
        if name not in FUNCTIONS:
            if name in self.variables or name in CONSTANTS:
                raise self._error(
                    f"{name!r} is not a function", f"write {name}*(...) for a product"
                )
            raise self._unknown("function", name, list(FUNCTIONS))
        _, fewest, most = FUNCTIONS[name]
        count = len(node.args)
        if count < fewest or (most is not None and count > most):
            raise self._error(
                f"{name} has {counted(count, 'argument')}",
                "correct the call",
                allowed=f"{fewest}{' or more' if most is None else ''}",
            )
        # min and max of many values fold from the left, two at a time.
        for position, argument in enumerate(node.args):
            self._visit(argument, depth + 1)
            if most is None and position > 0:
                self._emit(name, 2)
        if most is not None:
            self._emit(name, count)

    def _emit(self, name: str, operands: int) -> None:
        self.instructions.append(Operation(name, operands))

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.text, node) or self.text

    def _error(self, problem: str, remedy: str, *, allowed: str = "") -> InputError:
        return InputError(
            problem, location=f"expression {shown(self.text)}", allowed=allowed, remedy=remedy
        )

    def _too_deep(self) -> InputError:
        return self._error(
            "it is nested too deeply",
            "simplify it or give a table",
            allowed=f"nesting at most {MAXIMUM_NESTING_DEPTH} deep",
        )

    def _unknown(self, kind: str, name: str, candidates: list[str]) -> InputError:
        nearest = difflib.get_close_matches(name, candidates, n=1, cutoff=0.0)[0]
        return self._error(
            f"unknown {kind} {shown(name)}",
            f"did you mean {nearest!r}?",
            allowed=listed(candidates),
        )

    def _foreign(self, node: ast.expr) -> InputError:
        kind = node.op if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) else node
        advice = _ADVICE.get(
            type(kind), "use numbers, + - * / **, comparisons, a if c else b, and functions"
        )
        return self._error(f"{shown(self._source(node))} is not part of the grammar", advice)
