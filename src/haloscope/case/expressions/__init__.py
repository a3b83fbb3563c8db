"""Functions of position and time that a case file gives as text or as a two-column table.

Imported by solvers; imports errors. An expression such as ``300 + 5*sin(pi*x/0.05)*exp(-t)`` is
parsed once into a list of the operations of ``grammar.py``: no text of a case file is ever run as
Python.

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

from haloscope.case.expressions.formulas import (
    MAXIMUM_TABLE_BYTES,
    SPACE_AND_TIME,
    Expression,
    Table,
    parse_quantity_or_expression,
    times_in_milliseconds,
)
from haloscope.case.expressions.grammar import (
    CONSTANTS,
    MAXIMUM_CONSTANT_EXPONENT,
    MAXIMUM_NESTING_DEPTH,
    MAXIMUM_TEXT_CHARACTERS,
)

__all__ = [
    "CONSTANTS",
    "MAXIMUM_CONSTANT_EXPONENT",
    "MAXIMUM_NESTING_DEPTH",
    "MAXIMUM_TABLE_BYTES",
    "MAXIMUM_TEXT_CHARACTERS",
    "SPACE_AND_TIME",
    "Expression",
    "Table",
    "parse_quantity_or_expression",
    "times_in_milliseconds",
]
