"""Reads the table of cells back, so that a restart goes on with it and loses no row in silence."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from haloscope.errors import InputError, MachineError

# Of a row, before its first comma; steps have up to 13 digits.
_STEP = re.compile(r"[0-9]{1,18}")
_MEND = "put a whole copy in its place, or move it elsewhere to begin a new table; then restart"


def rows_up_to(path: Path, header: str, step: int) -> tuple[list[str], list[int]]:
    """Rows of a table up to a step, in the order of their steps.

    What follows is left out, and so is a last row that was cut off as a run was killed.
    """
    rows: list[str] = []
    steps: list[int] = []
    if not path.exists():
        return rows, steps
    if not path.is_file():
        raise InputError(
            f"{path} is no file, and the table of cells belongs there; move it elsewhere, then restart"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(
            f"{path}, the table of cells, cannot be read ({error.strerror}); make it readable, or "
            "move it elsewhere to begin a new table; then restart"
        ) from error
    *lines, _cut_off = _text(content, path).split("\n")
    if not lines or lines[0] != header:
        raise InputError(f"{path} does not begin as a table of cells of this version; {_MEND}")
    for number, line in enumerate(lines[1:], 2):
        first = line.partition(",")[0]
        whole = line.count(",") == header.count(",") and _STEP.fullmatch(first)
        if not whole or (steps and int(first) < steps[-1]):
            raise InputError(
                f"{path} is damaged: line {number} is no row of the table of cells; {_MEND}"
            )
        if int(first) > step:
            break
        rows.append(line)
        steps.append(int(first))
    return rows, steps


def _text(content: bytes, path: Path) -> str:
    try:
        # A kill may have cut a character off, too.
        return codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is damaged: byte {error.start + 1} is not UTF-8, as which tables are written; "
            f"{_MEND}"
        ) from None
