"""A session of the explorer: checks, the server, the browser, and what the terminal says."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path

from haloscope.io.interrupts import Interrupted
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.server import ADDRESS, Server
from haloscope.scope.explorer.service import Service


def explore(
    folders: list[Path],
    *,
    port: int = 0,
    browser: bool = True,
    log: Callable[[str], None],
) -> None:
    """Serve a report until the user ends it with Ctrl-C."""
    service = Service(Report(*folders), log)
    try:
        with Server(service, port) as server:
            log(f"explorer: {server.url}")
            log(
                "from another machine, first forward the port there: "
                f"ssh -L {server.port}:{ADDRESS}:{server.port} {socket.gethostname()}"
            )
            log("end with Ctrl-C")
            if browser and has_screen():
                webbrowser.open(server.url)
            try:
                server.serve_forever(poll_interval=0.2)
            except KeyboardInterrupt as stop:
                if isinstance(stop, Interrupted):
                    stop.answered = True
                log("ended")
    finally:
        service.close()


def has_screen() -> bool:
    """Whether a browser would open on a screen, rather than in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
