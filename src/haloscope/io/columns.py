"""Reads tables (CSV with a line of names) back as columns."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Columns by name, of whole numbers, numbers or text; a last row that was cut off is left out."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            names, *rows = list(csv.reader(file)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the table cannot be read ({error})", location=str(path)) from error
    if not names:
        raise InputError("the table is empty", location=str(path))
    if rows and len(rows[-1]) != len(names):
        rows.pop()
    if any(len(row) != len(names) for row in rows):
        number = next(n for n, row in enumerate(rows, 2) if len(row) != len(names))
        raise InputError(
            "the row has another number of columns than the first line",
            location=f"{path}, line {number}",
        )
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return {name: _column(texts) for name, texts in zip(names, columns, strict=True)}


def _column(texts: Sequence[str]) -> NDArray[Any]:
    for convert, dtype in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([convert(text) for text in texts], dtype)
        except (ValueError, OverflowError):
            continue
    return np.array(texts, np.str_)


def structured(columns: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Columns as one structured array (rows,)."""
    rows = len(next(iter(columns.values()), ()))
    table = np.empty(rows, [(name, column.dtype) for name, column in columns.items()])
    for name, column in columns.items():
        table[name] = column
    return table
