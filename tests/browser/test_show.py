"""Claims about the page of a finished run in a browser: its picture is seen, foreign text is text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from explorer_samples import HOSTILE
from finished_runs import HEIGHT, WIDTH, write_finished_run

from haloscope.commands.results_server import ResultsServer
from haloscope.run.finished import read_summary
from haloscope.run.results_page import list_files, results_page

_LOADED = "image => image.decode().then(() => [image.naturalWidth, image.naturalHeight])"
_BORDER = "line => getComputedStyle(line).borderLeftWidth"


@pytest.mark.parametrize("served", [True, False])
def test_picture_is_seen(show: Callable[..., Any], tmp_path: Path, served: bool) -> None:
    folder = write_finished_run(tmp_path / "run", title=HOSTILE)
    files = list_files(folder)
    page = results_page(folder, read_summary(folder), files, embedded=not served)
    file = tmp_path / "page.html"
    file.write_text(page)
    with ResultsServer(page, files.pictures) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            address = server.url if served else file.as_uri()
            opened = show.at(address, offline=not served, ready="img")  # type: ignore[attr-defined]
            assert opened.locator("img").evaluate(_LOADED) == [WIDTH, HEIGHT]
            assert opened.locator("h1").inner_text() == HOSTILE
            assert opened.evaluate("window.hacked") is None
            # The policy of the page lets its own style pass.
            assert opened.locator(".warning").first.evaluate(_BORDER) == "4px"
        finally:
            server.shutdown()
            thread.join()
