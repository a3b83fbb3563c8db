"""The page of the explorer: HTML with its style and script, and numbers packed as JSON and arrays."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A page that parsed a million numbers from text would keep its reader waiting. A pack is
#
#     bytes 0..3    length of the JSON text, little-endian
#     bytes 4..7    zero
#     then          the JSON text, {"meta": ..., "arrays": {name: [type, offset, count]}}
#     then          the arrays, little-endian, each at a multiple of 8 bytes from their first byte
#
# Types are f8, f4, i4, u4, u2 and u1; integers of 64 bits become f8, which is exact up to 2^53.

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
        raise TypeError(f"a pack cannot hold arrays of {values.dtype}")
    return little


# The script is written as modules that import each other; a page without a network cannot load
# them one by one, so each becomes a function here, in the order in which they need each other.

_STATIC = Path(__file__).with_name("static")
_MAIN = "main.js"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


def page(packs: Mapping[str, bytes] | None = None) -> str:
    """The page as text."""
    style = _read("style.css")
    script = _linked()
    data = "\n".join(
        f'<script type="text/plain" data-pack="{_name(name)}">'
        f"{base64.b64encode(content).decode()}</script>"
        for name, content in (packs or {}).items()
    )
    parts = {
        "policy": _policy(style, script, alone=packs is not None),
        "style": style,
        "data": data,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _read("page.html"))


def _policy(style: str, script: str, *, alone: bool) -> str:
    """Permissions of the page: its own script, and requests to its own server."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src 'sha256-{_hash(script)}'",
            f"style-src 'sha256-{_hash(style)}'",
            "img-src data:",
            f"connect-src {chr(39)}none{chr(39)}" if alone else "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _name(name: str) -> str:
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"{name!r} is not a valid name of a pack")
    return name


def _read(name: str) -> str:
    text = (_STATIC / name).read_text(encoding="utf-8")
    if name != "page.html" and "</" in text.replace("</>", ""):
        # It would end the element that holds it.
        raise ValueError(f"{name} holds '</'")
    return text


def _linked() -> str:
    """All modules that the main one needs, in one text."""
    order: list[str] = []
    under_way: list[str] = []
    parts: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        if name in under_way:
            raise ValueError(f"circular import: {' -> '.join([*under_way, name])}")
        under_way.append(name)
        text = _read(name)
        for _, needed in _IMPORT.findall(text):
            add(needed)
        under_way.pop()
        order.append(name)
        parts.append(_as_function(name, text))

    add(_MAIN)
    return '"use strict";\nconst modules = {};\n' + "\n".join(parts)


def _as_function(name: str, text: str) -> str:
    body = _IMPORT.sub(lambda m: f'const {{{m[1]}}} = modules["{m[2]}"];\n', text)
    exported = [match[1] for match in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1 \2", body)
    if re.search(r"^(?:import|export)\b", body, re.MULTILINE):
        raise ValueError(f"{name} has an unsupported form of import or export")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}})();'
