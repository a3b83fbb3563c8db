"""Tables of a page of Markdown, whatever the names in them hold."""

from __future__ import annotations

from collections.abc import Sequence

from haloscope.scope.diagnosis import wording


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table and an empty one; columns after the first `left` are aligned to the right.

    Without rows there is no table.
    """
    if not rows:
        return []
    rule = ["---" if number < left else "---:" for number in range(len(header))]
    lines = [header, rule, *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines] + [""]


def cell(name: str, most: int = 120) -> str:
    """A name as code within a table, where a bar would end the cell."""
    return wording.code(name, most).replace("|", "\\|")
