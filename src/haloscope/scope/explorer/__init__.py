"""Shows a measurement in a browser: the server, and the page as one file.

static/ is the page; :class:`LoopbackServer` serves any page of one session. Imported by commands; imports
analysis, diagnosis, gpu, replay and trace.
"""

from __future__ import annotations

import gzip
import hmac
import os
import re
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from haloscope.errors import MachineError
from haloscope.io.interrupts import Interrupted

ADDRESS = "127.0.0.1"
PACK = "application/octet-stream"
"""Media type of an answer that only the script of the page reads."""
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_SECONDS_OF_SILENCE = 30.0
_COMPRESSED_FROM = 1400  # bytes; less fits into one packet as it is
_LEVEL = 1  # of compression: a tunnel is slower than this, a local browser hardly notices


class QuestionError(Exception):
    """A question that makes no sense."""


class LoopbackServer(ThreadingHTTPServer):
    """A server of a page (HTML) and of answers to its questions; port 0: a free one."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, page: str, port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self.page = page.encode("utf-8", "replace")
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise MachineError(
                f"port {port} cannot be used ({getattr(error, 'strerror', None) or error})",
                location="--port",
                remedy="give another port, or omit --port for a free one",
            ) from error

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        """Address of the page, token included."""
        return f"http://{ADDRESS}:{self.port}/{self.token}/"

    def answer(self, question: str, query: str) -> tuple[bytes, str]:
        """Data and media type of an answer; QuestionError where there is none."""
        raise QuestionError("unknown query")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that goes away is no error, and the rest is answered."""


def serve_session(
    server: LoopbackServer, name: str, *, browser: bool, log: Callable[[str], None]
) -> None:
    """Serve until the user ends it with Ctrl-C.

    `name`: word before the address in the log; `browser`: whether to open one if there is a screen.
    """
    log(f"{name}: {server.url}")
    log(
        "on another machine, first forward the port: "
        f"ssh -L {server.port}:{ADDRESS}:{server.port} {socket.gethostname()}"
    )
    log("stop with Ctrl-C")
    if browser and has_screen():
        webbrowser.open(server.url)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt as stop:
        if isinstance(stop, Interrupted):
            stop.answered = True
        log("stopped")


def has_screen() -> bool:
    """Whether a browser would open on a screen, rather than in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS_OF_SILENCE
    disable_nagle_algorithm = True  # else a body waits for the headers to be acknowledged: 40 ms
    server: LoopbackServer

    def do_GET(self) -> None:
        if not _HOST.fullmatch(self.headers.get("Host", "")):
            # A name that leads to 127.0.0.1 could let a page from elsewhere read along.
            self._send(403, b"forbidden", "text/plain")
            return
        path, _, query = self.path.partition("?")
        _, token, *rest = [*path.split("/"), ""]
        right = hmac.compare_digest(token.encode(), self.server.token.encode())
        foreign = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        if not right or (foreign and rest[0]):
            self._send(403, b"forbidden", "text/plain")
            return
        if len(rest) == 1:
            # Questions are asked beside the page: its address ends with a slash.
            self._send(301, b"", "text/plain", location=f"/{token}/")
            return
        if len(rest) > 2:
            self._send(404, b"not found", "text/plain")
            return
        if not rest[0]:
            self._send(200, self.server.page, "text/html; charset=utf-8")
            return
        try:
            data, kind = self.server.answer(rest[0], query)
        except (QuestionError, ValueError) as error:
            self._send(400, str(error).encode(), "text/plain")
            return
        except Exception as error:
            # One question that fails must not end a session; the page shows what it was.
            problem = f"{type(error).__name__}: {error}"
            self._send(500, problem.encode("utf-8", "replace"), "text/plain")
            return
        self._send(200, data, kind)

    def _send(self, status: int, data: bytes, kind: str, location: str = "") -> None:
        encoding = None
        if len(data) >= _COMPRESSED_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            data, encoding = gzip.compress(data, _LEVEL), "gzip"
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if location:
            self.send_header("Location", location)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        return "haloscope"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep the terminal quiet."""
