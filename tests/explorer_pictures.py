"""Makes every picture of the explorer in docs/images: ``python tests/explorer_pictures.py``.

Pictures come from three sources. A solver that is played through (``explorer_samples.py``) is the
same each time. The tutorial's program is measured by the tutorial's own commands, here, or on a machine with
sixteen cores: give the folders of those runs with ``--tutorial BEFORE AFTER``. Those of GPUs show
the cavity, measured as docs/explanation/gpu-measurement.md says: give the folders of those runs with
``--gpus STAGED PEER``. Pictures whose source is not there are left as they are. A slow test makes
all of them in a folder of its own, with small traces in place of the runs on GPUs.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "mpi"))

import tutorial
from explorer_samples import write_sample

from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.server import Server, Service

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_LARGER = "Larger or smaller (m)"
_TWO_STEPS = (0.1985, 0.1998)  # of the 2,000 that the pictures of GPUs show


def _first_finding(page: Any) -> None:
    page.locator(".finding").first.click()
    page.wait_for_timeout(1500)
    page.get_by_role("tab", name="Findings").click()
    page.get_by_role("tab", name="Topology").click()


def _timeline(page: Any) -> None:
    page.locator(".finding").nth(1).click()
    page.wait_for_timeout(1500)
    page.get_by_role("button", name=_LARGER).click()
    page.wait_for_timeout(300)
    page.get_by_role("button", name="Show callers above each other").click()


def _communication(page: Any) -> None:
    path = "program/timestep/gmres/gather/MPI_Sendrecv"
    page.evaluate(f"location.hash = 'm=late_sender&c={path}&st=distribution&d=messages&q=messages'")


def _map_of_it(page: Any) -> None:
    _first_finding(page)
    page.get_by_role("tab", name="Communication").click()


def _first_change(page: Any) -> None:
    page.get_by_role("list", name="Changes").get_by_role("button").first.click()
    page.get_by_role("tab", name="Spread").click()


def _idle_devices(page: Any) -> None:
    page.get_by_role("tab", name="GPUs").click()
    page.get_by_role("button", name="Devices idle").click()
    page.get_by_role("button", name="Open the path with the largest values").click()


def _two_steps(page: Any) -> None:
    _idle_devices(page)
    page.get_by_role("tab", name="Timeline").click()
    page.get_by_role("combobox", name="Timeline of").select_option("0")
    # The timeline that is shown first is the other one.
    page.wait_for_timeout(1500)
    label = page.locator("canvas.timeline").get_attribute("aria-label")
    begin, end = (float(label.split()[place]) for place in (2, 4))
    page.wait_for_timeout(300)
    window = "_".join(str(begin + share * (end - begin)) for share in _TWO_STEPS)
    page.evaluate(f"location.hash += '&t={window}'")


@dataclass(frozen=True)
class Picture:
    """What to do on a page of one measurement of a source, or of two that are compared."""

    source: str
    act: Callable[[Any], None]
    compare: bool = False
    dark: bool = False
    height: int = 720


PICTURES = {
    "explorer-findings": Picture("played", _first_finding),
    "explorer-timeline": Picture("played", _timeline, dark=True),
    "explorer-compare": Picture("played", _communication, compare=True),
    "explorer-tutorial-findings": Picture("tutorial", _first_finding),
    "explorer-tutorial-map": Picture("tutorial", _map_of_it),
    "explorer-tutorial-compare": Picture("tutorial", _first_change, compare=True),
    "explorer-gpus": Picture("gpus", _idle_devices, compare=True, height=860),
    "explorer-gpu-timeline": Picture("gpus", _two_steps, compare=True),
}


def played(folder: Path) -> tuple[Path, Path]:
    """Measurements of the solver that is played through, before and after a cure."""
    before, after = folder / "original", folder / "revised"
    write_sample(before, streams=True)
    write_sample(after, streams=True, neighbours_only=True)
    return before, after


def make(browser: Any, sources: Mapping[str, tuple[Path, Path]], into: Path) -> list[str]:
    """Write the pictures of the sources that are there; gives what went wrong on their pages."""
    wrong: list[str] = []
    for name, picture in PICTURES.items():
        if picture.source not in sources:
            continue
        folders = sources[picture.source]
        service = Service(Report(*folders[: 1 + picture.compare]))
        with Server(service) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            size = {"width": 1280, "height": picture.height}
            page = browser.new_page(viewport=size, color_scheme="dark" if picture.dark else "light")
            page.on("pageerror", lambda error, name=name: wrong.append(f"{name}: {error}"))
            page.goto(server.url)
            page.wait_for_selector("html[data-ready]")
            picture.act(page)
            page.wait_for_timeout(1500)
            page.screenshot(path=into / f"{name}.png")
            page.close()
            server.shutdown()
        service.close()
    return wrong


def _main() -> None:
    from playwright.sync_api import sync_playwright

    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--gpus", nargs=2, type=Path, metavar=("STAGED", "PEER"))
    asked.add_argument("--played", action="store_true", help="leave those of the tutorial")
    asked.add_argument("--tutorial", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    options = asked.parse_args()
    chromium = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sources = {"played": played(Path(folder))}
        if options.tutorial:
            sources["tutorial"] = tuple(options.tutorial)
        elif not options.played and not tutorial.lacks():
            sources["tutorial"] = tutorial.follow(Path(folder) / "tutorial", show=print)
        if options.gpus:
            sources["gpus"] = tuple(options.gpus)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        wrong = make(browser, sources, IMAGES)
        browser.close()
    sys.exit("\n".join(wrong))


if __name__ == "__main__":
    _main()
