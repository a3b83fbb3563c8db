"""Packs numbers for the page: a few words of JSON and arrays as they lie in memory.

A page that parsed a million numbers from text would keep its reader waiting. A pack is

    bytes 0..3    length of the JSON text, little-endian
    bytes 4..7    zero
    then          the JSON text, {"meta": ..., "arrays": {name: [type, offset, count]}}
    then          the arrays, little-endian, each at a multiple of 8 bytes from their first byte

Types are f8, f4, i4, u4, u2 and u1; integers of 64 bits become f8, which is exact up to 2^53.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {"f8", "f4", "i4", "u4", "u2", "u1"}
_ALIGNMENT = 8  # bytes
_MOST_TEXT = 4000  # characters of one name or remark
_MOST_DEPTH = 12  # of nested objects in what a measurement says of itself


def pack(meta: Any, arrays: Mapping[str, NDArray[Any]] | None = None) -> bytes:
    """Put a JSON value and named arrays into one piece."""
    table: dict[str, list[Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, values in (arrays or {}).items():
        plain = _plain(np.ascontiguousarray(values))
        table[name] = [plain.dtype.str[1:], offset, int(plain.size)]
        data = plain.tobytes()
        padding = -len(data) % _ALIGNMENT
        parts += [data, b"\0" * padding]
        offset += len(data) + padding
    text = json.dumps(
        {"meta": cleaned(meta), "arrays": table}, separators=(",", ":"), allow_nan=False
    ).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return b"".join([struct.pack("<II", len(text), 0), text, *parts])


def compressed(data: bytes, level: int = 6) -> bytes:
    """A pack as the browser's own gzip reads it, the same bytes for the same data."""
    return gzip.compress(data, compresslevel=level, mtime=0)


def cleaned(value: Any, depth: int = 0) -> Any:
    """A JSON value that any reader takes: finite numbers, text without lone surrogates, not deep."""
    if isinstance(value, str):
        return value[:_MOST_TEXT].encode("utf-8", "replace").decode()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 1 << 53 else float(value) if abs(value) < 1 << 1000 else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, np.generic):
        return cleaned(value.item(), depth)
    if depth >= _MOST_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {cleaned(str(key)): cleaned(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item, depth + 1) for item in value]
    return cleaned(str(value))


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Values in one of the types of a pack; what is not a number counts as zero."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        values = values.astype(np.float64)
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    if little.dtype.str[1:] not in _TYPES:
        raise TypeError(f"arrays of {values.dtype} have no place in a pack")
    return little
