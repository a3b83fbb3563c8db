"""Checks a built site: links within it lead somewhere, and no page loads anything from the network.

``python docs/check_site.py FOLDER`` prints the faults and ends with exit code 1 if there are any.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements and attributes through which a page loads a file; links that a reader follows are others.
_LOADED = {
    ("audio", "src"),
    ("embed", "src"),
    ("iframe", "src"),
    ("img", "src"),
    ("link", "href"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("video", "src"),
}
_STYLE_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """Addresses and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses and the anchor of an element."""
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif name == "style":
                self.loaded += style_addresses(value)
            elif (tag, name) in _LOADED:
                self.loaded.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)


def style_addresses(text: str) -> list[str]:
    """Addresses of the files that a style sheet loads."""
    return [first or second for first, second in _STYLE_ADDRESS.findall(text)]


def is_outside(address: str) -> bool:
    """Whether an address leads out of the site."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def faults(folder: Path) -> Iterator[str]:
    """One line for each broken link and each file that is loaded from the network."""
    # _static holds templates of the theme, which are no pages.
    pages = {
        path.resolve(): Page(path.read_text(encoding="utf-8"))
        for path in folder.rglob("*.html")
        if path.relative_to(folder).parts[0] != "_static"
    }
    for path, page in sorted(pages.items()):
        name = path.relative_to(folder.resolve())
        for address in page.loaded:
            if is_outside(address):
                yield f"{name}: loads {address}"
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if is_outside(address) or parts.scheme == "data":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file():
                yield f"{name}: {address}: no such file"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name}: {address}: no such anchor"
    for path in sorted(folder.rglob("*.css")):
        for address in style_addresses(path.read_text(encoding="utf-8")):
            if is_outside(address):
                yield f"{path.relative_to(folder)}: loads {address}"


def main() -> int:
    """Print the faults of the folder on the command line."""
    lines = list(faults(Path(sys.argv[1])))
    print("\n".join(lines) or "links of the site: no faults")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
