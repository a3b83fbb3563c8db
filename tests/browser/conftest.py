"""Lets tests look at the explorer in headless Chromium; without one they are skipped."""

from __future__ import annotations

import importlib.util
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from explorer_samples import write_sample

from haloscope.scope.analysis.result import Result
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.server import Server, Service

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CHROMIUM = next((path for name in _NAMES if (path := shutil.which(name))), None)
_LACKS = (
    "no Chromium here: install it (Debian: apt install chromium)"
    if _CHROMIUM is None
    else "no playwright here: pip install playwright"
    if importlib.util.find_spec("playwright") is None
    else ""
)
_SIZE = {"width": 1280, "height": 720}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a browser, and skip it where there is none."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if _LACKS:
                item.add_marker(pytest.mark.skip(reason=_LACKS))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser for all tests."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


class Opened:
    """A page and all that went wrong on it."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.address = address
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("dialog", lambda dialog: (self.errors.append(dialog.message), dialog.dismiss()))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def check(self) -> None:
        """Nothing failed, and nothing was asked of anyone else."""
        assert self.errors == []
        own = self.address.split("#")[0]
        assert [url for url in self.asked if not url.startswith((own, "data:", "blob:"))] == []


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Show measurements, ``show(folder)`` or ``show(folder, other, link="m=time")``.

    Gives a page that has started. At the end of the test it must not have had any error, nor have
    asked anything of another place.
    """
    with ExitStack() as stack:
        opened: list[Opened] = []

        def at(
            address: str,
            *,
            dark: bool = False,
            offline: bool = False,
            ready: str = "html[data-ready]",
        ) -> Any:
            context = chromium.new_context(
                viewport=_SIZE, color_scheme="dark" if dark else "light", offline=offline
            )
            stack.callback(context.close)
            context.set_default_timeout(30_000)
            one = Opened(context.new_page(), address)
            opened.append(one)
            one.page.goto(address)
            one.page.wait_for_selector(ready)
            return one.page

        def served(*folders: Path, link: str = "", dark: bool = False) -> Any:
            service = Service(Report(*folders))
            stack.callback(service.close)
            server = stack.enter_context(Server(service))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return at(server.url + (f"#{link}" if link else ""), dark=dark)

        served.at = at  # type: ignore[attr-defined]
        yield served
        for one in opened:
            one.check()


@pytest.fixture(scope="session")
def before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """A solver on nine ranks that sends to all others, with GPU streams and a trace."""
    folder = tmp_path_factory.mktemp("measured") / "before"
    return folder, write_sample(folder, ranks=9, steps=3, streams=True)


@pytest.fixture(scope="session")
def after(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """The same, sending to neighbours only."""
    folder = tmp_path_factory.mktemp("measured") / "after"
    return folder, write_sample(folder, ranks=9, steps=3, streams=True, neighbours_only=True)
