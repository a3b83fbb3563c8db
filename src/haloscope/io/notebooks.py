"""Notebooks: whether Python runs in one, and short HTML tables, in which no text is markup."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence

from haloscope.errors import counted, message_line

_MOST_ROWS = 20
_LONGEST = 200  # characters of a cell


def in_notebook() -> bool:
    """Whether a kernel of Jupyter runs this; loads nothing."""
    ipython = sys.modules.get("IPython")
    shell = getattr(ipython, "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def html_table(title: str, rows: Sequence[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A table with a caption; names and values may come from anywhere and are escaped."""
    lines = [_row("th", head)] if head else []
    lines += [_row("td", row) for row in rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines.append(_row("td", [f"and {counted(len(rows) - _MOST_ROWS, 'more row')}"]))
    return f"<table><caption>{_text(title)}</caption>{''.join(lines)}</table>"


def _row(tag: str, values: Sequence[object]) -> str:
    cells = (f'<{tag} style="text-align: left">{_text(value)}</{tag}>' for value in values)
    return f"<tr>{''.join(cells)}</tr>"


def _text(value: object) -> str:
    if isinstance(value, float):
        value = f"{value:.4g}"
    return html.escape(message_line(str(value), _LONGEST))
