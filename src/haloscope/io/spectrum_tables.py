"""Tables of spectra, resonances and radiation patterns as CSV, with numbers that read back exactly."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from haloscope.errors import InputError
from haloscope.io.atomic import write_text


def write_columns(path: str | Path, columns: Mapping[str, ArrayLike], note: str = "") -> None:
    """Write columns of equal length, atomically.

    A complex column becomes two, with ``.real`` and ``.imag`` after its name.
    """
    # `columns`: by name, with the unit: ``frequency_Hz``. Arrays of any shape, each of the same;
    # they are written element after element, the last index fastest. Texts stay as they are.
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    shapes = {values.shape for values in arrays.values()}
    if len(shapes) != 1:
        raise InputError(
            f"cannot write {path}: the columns have the shapes {sorted(shapes)}; allowed is one "
            f"shape for all: correct them"
        )
    plain: dict[str, Sequence[object]] = {}
    for name, values in arrays.items():
        if np.iscomplexobj(values):
            plain[f"{name}.real"] = values.real.ravel().tolist()
            plain[f"{name}.imag"] = values.imag.ravel().tolist()
        else:
            plain[name] = values.ravel().tolist()
    text = io.StringIO()
    for line in note.splitlines():
        text.write(f"# {line}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(plain)
    writer.writerows(zip(*plain.values(), strict=True))
    write_text(path, text.getvalue())
