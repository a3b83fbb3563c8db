"""What expressions can compute: functions, operators, comparisons and the conditional."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

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
