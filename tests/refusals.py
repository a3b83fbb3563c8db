"""Errors with fields in tests: `with refused(location=..., problem=...)`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from haloscope.errors import FIELDS, InputError


class Refusal:
    """The error that a block raised; there is none before the block has ended."""

    error: Any = None

    @property
    def text(self) -> str:
        """The line of the error."""
        return str(self.error)


@contextmanager
def refused(
    kind: type[Exception] = InputError,
    *,
    location: str | None = None,
    problem: str | None = None,
    allowed: str | None = None,
    remedy: str | None = None,
) -> Iterator[Refusal]:
    """Assert that a block raises an error of a kind, or of one below it, with such fields.

    Each pattern is searched in the field of its name; a field without a pattern is not compared.
    """
    refusal = Refusal()
    try:
        yield refusal
    except kind as error:
        refusal.error = error
    if refusal.error is None:
        raise AssertionError(f"nothing was refused; {kind.__name__} was expected")
    patterns = {"location": location, "problem": problem, "allowed": allowed, "remedy": remedy}
    wrong = {
        field: pattern
        for field, pattern in patterns.items()
        if pattern is not None and not re.search(pattern, getattr(refusal.error, field))
    }
    if wrong:
        lines = [f"{field}: {getattr(refusal.error, field)!r}" for field in FIELDS]
        lines += [f"no match of {pattern!r} in {field}" for field, pattern in wrong.items()]
        raise AssertionError("\n".join([f"{type(refusal.error).__name__}", *lines]))
