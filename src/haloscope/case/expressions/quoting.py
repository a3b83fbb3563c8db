"""How texts and names of a case file stand in messages."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN_CHARACTERS = 100


def shown(text: str) -> str:
    """Quote a text on one line, shortened to what a message can hold."""
    shortened = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return repr(shortened)


def listed(names: Iterable[str]) -> str:
    """Names with commas between them."""
    return ", ".join(names) or "none"
