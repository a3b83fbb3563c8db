"""Values of the whole-number expressions of the C preprocessor."""

from __future__ import annotations

import re
from collections.abc import Callable

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|\d+)[uUlL]*(?!\w)|([A-Za-z_]\w*)"
    r"|(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>!~&|^?:()]))"
)
# Binary operators, from those that bind least.
_LEVELS = (
    *(("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">=")),
    *(("<<", ">>"), ("+", "-"), ("*", "/", "%")),
)
_RESULTS: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "&": lambda a, b: a & b,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "<<": lambda a, b: a << min(b, 64),
    ">>": lambda a, b: a >> b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
}


def value(text: str, value_of: Callable[[str], int]) -> int:
    """Value of an expression by the rules of C; `value_of` gives that of a name, if it is needed.

    Raises ValueError for text that is no such expression, and ZeroDivisionError.
    """
    tokens, at = [], 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise ValueError(f"unexpected text: {stripped[at:]}")
        tokens.append((match[1] or "", match[2] or "", match[3] or ""))
        at = match.end()
    parser = _Parser(tokens, value_of)
    result = parser.choice(needed=True)
    if parser.left:
        raise ValueError("text after the end of the expression")
    return result


class _Parser:
    def __init__(self, tokens: list[tuple[str, str, str]], value_of: Callable[[str], int]) -> None:
        self.left, self._value_of = tokens, value_of

    def _take(self, *symbols: str) -> str:
        """The next token if it is one of these symbols."""
        if self.left and self.left[0][2] and self.left[0][2] in symbols:
            return self.left.pop(0)[2]
        return ""

    def choice(self, *, needed: bool) -> int:
        """``a ? b : c``, or anything that binds more."""
        condition = self._binary(0, needed)
        if not self._take("?"):
            return condition
        first = self.choice(needed=needed and condition != 0)
        if not self._take(":"):
            raise ValueError("? without :")
        second = self.choice(needed=needed and condition == 0)
        return first if condition else second

    def _binary(self, level: int, needed: bool) -> int:
        if level == len(_LEVELS):
            return self._unary(needed)
        result = self._binary(level + 1, needed)
        while symbol := self._take(*_LEVELS[level]):
            if symbol in ("&&", "||"):
                decided = (result == 0) == (symbol == "&&")
                other = self._binary(level + 1, needed and not decided)
                result = int(result != 0) if decided else int(other != 0)
            else:
                other = self._binary(level + 1, needed)
                result = _RESULTS[symbol](result, other) if needed else 0
        return result

    def _unary(self, needed: bool) -> int:
        if symbol := self._take("!", "~", "-", "+"):
            operand = self._unary(needed)
            return {"!": int(operand == 0), "~": ~operand, "-": -operand, "+": operand}[symbol]
        if self._take("("):
            result = self.choice(needed=needed)
            if not self._take(")"):
                raise ValueError("( without )")
            return result
        if not self.left or self.left[0][2]:
            raise ValueError("a number or a name is missing")
        number, name, _ = self.left.pop(0)
        if number:
            is_octal = number.startswith("0") and number.isdigit()
            return int(number, 8 if is_octal else 0)
        return self._value_of(name) if needed else 0
