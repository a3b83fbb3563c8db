"""Tables: columns of CSV files as structured arrays or pandas data frames."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError


def read_columns(path: Path) -> dict[str, NDArray[Any]]:
    """Columns by name, of whole numbers, numbers or text; a last row that was cut off is left out."""
    return {name: column_of(texts) for name, texts in read_texts(path).items()}


def read_texts(path: Path) -> dict[str, Sequence[str]]:
    """The cells of columns by name; a last row that was cut off is left out.

    Lines before the names that begin with ``#`` are comments, as in tables of spectra and far fields.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(file)
        comments = sum(1 for _ in takewhile(lambda line: line.startswith("#"), lines))
        names, *rows = list(csv.reader(lines[comments:])) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"the table cannot be read ({error})", location=str(path)) from error
    if not names:
        raise InputError("the table is empty", location=str(path))
    if rows and len(rows[-1]) != len(names):
        rows.pop()
    if any(len(row) != len(names) for row in rows):
        number = next(n for n, row in enumerate(rows, comments + 2) if len(row) != len(names))
        raise InputError(
            "the row has another number of columns than the first line",
            location=f"{path}, line {number}",
        )
    columns = zip(*rows, strict=True) if rows else ((),) * len(names)
    return dict(zip(names, columns, strict=True))


def column_of(texts: Sequence[str]) -> NDArray[Any]:
    """Cells as whole numbers if all are, else as numbers (nan where a cell is empty), else as text."""
    empty = "nan" if any(texts) else ""
    for convert, dtype in ((int, np.int64), (float, np.float64)):
        try:
            return np.array([convert(text or empty) for text in texts], dtype)
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


def data_frame(columns: Mapping[str, np.ndarray]) -> Any:
    """Columns as a data frame; None without pandas."""
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        return None
    return pandas.DataFrame(dict(columns))


def as_table(columns: Mapping[str, NDArray[Any]]) -> Any:
    """Columns as a data frame if pandas is installed, else as a structured array."""
    frame = data_frame(columns)
    return structured(columns) if frame is None else frame
