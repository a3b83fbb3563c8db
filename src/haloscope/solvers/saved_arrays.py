"""Arrays of checkpoints as restarts take them over: only if they are what can have been written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError

# Whole numbers up to here have a float of their own.
_LARGEST_WHOLE = 2.0**53


def saved_numbers(
    saved: Mapping[str, NDArray[np.generic]],
    name: str,
    shape: Sequence[int | None],
    *,
    least: float = -math.inf,
    most: float = math.inf,
    finite: bool = True,
) -> NDArray[np.float64]:
    """Numbers that a checkpoint holds under a name."""
    array = saved.get(name)
    if array is None:
        raise _damaged(name, "is not there")
    if array.dtype.kind not in "biuf":
        raise _damaged(name, "holds no numbers")
    if array.ndim != len(shape) or any(
        n is not None and n != size for n, size in zip(shape, array.shape, strict=True)
    ):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise _damaged(name, f"has the shape {list(array.shape)}, and [{wanted}] is allowed")
    values = np.asarray(array, np.float64)
    if finite and not np.isfinite(values).all():
        raise _damaged(name, "holds values that are not finite")
    if ((values < least) | (values > most)).any():
        raise _damaged(name, f"holds values outside of {least:g} to {most:g}")
    return values


def saved_counts(
    saved: Mapping[str, NDArray[np.generic]],
    name: str,
    shape: Sequence[int | None],
    *,
    least: float = 0,
    most: float = _LARGEST_WHOLE,
) -> NDArray[np.int64]:
    """As :func:`saved_numbers`, whole numbers, not negative by default."""
    values = saved_numbers(saved, name, shape, least=least, most=most)
    if (values != np.floor(values)).any():
        raise _damaged(name, "holds values that are not whole")
    return values.astype(np.int64)


def _damaged(name: str, fault: str) -> InputError:
    return InputError(
        f"the checkpoint is damaged or of another case: its {name!r} {fault}; restart from an earlier "
        "one, or with the case it is from"
    )
