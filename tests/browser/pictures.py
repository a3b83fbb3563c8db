"""Makes the pictures of the explorer in docs/images: ``python tests/browser/pictures.py``.

Most show a solver that is played through (``explorer_samples.py``), the same each time. Those of
the tutorial show its program, measured by the tutorial's own commands; they are left as they are
where that program cannot be compiled, or with ``--played``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "mpi"))

import tutorial
from explorer_samples import write_sample

from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.server import Server
from haloscope.scope.explorer.service import Service

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SIZE = {"width": 1280, "height": 720}


def _findings(page: Any) -> None:
    page.locator(".finding").first.click()
    page.wait_for_timeout(1500)
    page.get_by_role("tab", name="Findings").click()
    page.get_by_role("tab", name="Topology").click()


def _timeline(page: Any) -> None:
    page.locator(".finding").nth(1).click()
    page.wait_for_timeout(1500)
    page.get_by_role("button", name="Larger or smaller (m)").click()
    page.wait_for_timeout(300)
    page.get_by_role("button", name="Show callers above each other").click()


def _communication(page: Any) -> None:
    path = "program/timestep/gmres/gather/MPI_Sendrecv"
    page.evaluate(f"location.hash = 'm=late_sender&c={path}&st=distribution&d=messages&q=messages'")


def _first_finding(page: Any) -> None:
    page.locator(".finding").first.click()
    page.wait_for_timeout(1500)
    page.get_by_role("tab", name="Findings").click()
    page.get_by_role("tab", name="Topology").click()


def _map_of_it(page: Any) -> None:
    _first_finding(page)
    page.get_by_role("tab", name="Communication").click()


def _first_change(page: Any) -> None:
    page.get_by_role("list", name="Changes").get_by_role("button").first.click()
    page.get_by_role("tab", name="Spread").click()


Pictures = dict[str, tuple[Callable[[Any], None], bool, bool]]

# What to do on the page, dark, compare.
PLAYED: Pictures = {
    "explorer-findings": (_findings, False, False),
    "explorer-timeline": (_timeline, True, False),
    "explorer-compare": (_communication, False, True),
}
TUTORIAL: Pictures = {
    "explorer-tutorial-findings": (_first_finding, False, False),
    "explorer-tutorial-map": (_map_of_it, False, False),
    "explorer-tutorial-compare": (_first_change, False, True),
}


def _browse(browser: Any, before: Path, after: Path, pictures: Pictures, into: Path) -> None:
    for name, (act, dark, compare) in pictures.items():
        service = Service(Report(before, after) if compare else Report(before))
        with Server(service) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            page = browser.new_page(viewport=SIZE, color_scheme="dark" if dark else "light")
            page.goto(server.url)
            page.wait_for_selector("html[data-ready]")
            act(page)
            page.wait_for_timeout(1500)
            page.screenshot(path=into / f"{name}.png")
            page.close()
            server.shutdown()
        service.close()


def make(into: Path, *, measured: bool) -> None:
    """Write all pictures into a folder, those of the measured program if wanted."""
    from playwright.sync_api import sync_playwright

    chromium = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        before, after = Path(folder) / "original", Path(folder) / "revised"
        write_sample(before, streams=True)
        write_sample(after, streams=True, neighbours_only=True)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        _browse(browser, before, after, PLAYED, into)
        if measured:
            _browse(
                browser, *tutorial.follow(Path(folder) / "tutorial", told=print), TUTORIAL, into
            )
        browser.close()


if __name__ == "__main__":
    make(IMAGES, measured="--played" not in sys.argv[1:] and not tutorial.lacks())
