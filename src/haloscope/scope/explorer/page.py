"""Puts the page together: one HTML text that holds its style, its script and, if wanted, its data.

The script is written as modules that import each other; a page without a network cannot load
them one by one, so each becomes a function here, in the order in which they need each other.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

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
    """What the page may do: run its own script, and ask the server that it comes from."""
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
        raise ValueError(f"{name!r} cannot name a pack")
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
            raise ValueError(f"{' -> '.join([*under_way, name])} import each other in a circle")
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
        raise ValueError(f"{name} imports or exports in a way that is not known here")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}})();'
