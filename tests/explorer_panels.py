"""Reads the explorer's page for tests: rows of trees and their values, the timeline and what it shows."""

from __future__ import annotations

from typing import Any


def item(page: Any, tree: str, name: str) -> Any:
    """The first row of a tree whose name is exactly this."""
    rows = page.get_by_role("tree", name=tree, exact=True).get_by_role("treeitem")
    return rows.filter(has=page.get_by_text(name, exact=True)).first


def value(page: Any, tree: str, name: str) -> float:
    """What a row shows, in the unit of its metric."""
    return float(item(page, tree, name).get_attribute("data-value"))


def timeline(page: Any) -> Any:
    """The timeline's canvas, once it has drawn what it asked for."""
    canvas = page.locator("canvas.timeline")
    page.wait_for_function(
        "() => Number(document.querySelector('canvas.timeline')?.dataset.lines) > 0"
    )
    page.wait_for_timeout(300)
    return canvas


def shown(page: Any) -> tuple[float, float]:
    """The stretch that the timeline shows, in seconds."""
    words = page.locator("canvas.timeline").get_attribute("aria-label").split()
    return float(words[2]), float(words[4])
