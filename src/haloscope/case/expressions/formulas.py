"""Expressions that are evaluated at points, from the text of a case file or from a number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from haloscope.case.expressions.grammar import (
    MAXIMUM_TEXT_CHARACTERS,
    Comparison,
    Number,
    Parser,
    Variable,
)
from haloscope.case.expressions.operations import (
    CONSTANTS,
    FUNCTIONS,
    OPERATIONS,
    FloatArray,
    compared,
)
from haloscope.case.expressions.quoting import listed, shown
from haloscope.errors import InputError

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
    value: float | int | str, key: str, variables: Iterable[str] = SPACE_AND_TIME
) -> Expression:
    """Read a case-file entry that may be a number or an expression."""
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
        raise error.within(key) from None
