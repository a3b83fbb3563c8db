"""The explorer's server on the loopback interface: a session, and answers to the questions of the page."""

from __future__ import annotations

import gzip
import hmac
import os
import re
import secrets
import socket
import sys
import threading
import urllib.parse
import webbrowser
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import MachineError
from haloscope.io.interrupts import Interrupted
from haloscope.scope.analysis.metrics import METRICS
from haloscope.scope.explorer import lines
from haloscope.scope.explorer.page import pack, page
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.view import Preparing, check_tiles

_MOST_LINES = 20_000
_MOST_RANKS_TEXT = 8192


class QuestionError(Exception):
    """A question that makes no sense."""


class Service:
    """Knows a report and its timelines."""

    def __init__(self, report: Report, log: Callable[[str], None] = lambda text: None) -> None:
        self.report = report
        self.timelines = [Preparing(report, side, log) for side in range(len(report.sides))]
        self._answers: dict[str, Callable[[Mapping[str, str]], bytes]] = {
            "head": self._head,
            "row": self._row,
            "map": self._map,
            "receivers": self._receivers,
            "waits": self._waits,
            "timeline": self._timeline,
            "tiles": self._tiles,
            "lines": self._lines,
        }

    def close(self) -> None:
        """Close files and remove what was temporary."""
        for timeline in self.timelines:
            timeline.close()
        self.report.close()

    def answer(self, question: str, options: Mapping[str, str]) -> bytes:
        """Answer with a pack."""
        if question not in self._answers:
            raise QuestionError("unknown query")
        return self._answers[question](options)

    def _head(self, _: Mapping[str, str]) -> bytes:
        return pack(self.report.meta(), self.report.arrays())

    def _row(self, options: Mapping[str, str]) -> bytes:
        metric = METRICS[_integer(options, "metric", len(METRICS))].name
        exclusive = _integer(options, "exclusive", 2) == 1
        nodes = self._nodes(options)
        return pack(
            {},
            {
                f"row{side}": self.report.row(side, metric, nodes, exclusive)
                for side in range(len(self.report.sides))
            },
        )

    def _nodes(self, options: Mapping[str, str]) -> NDArray[np.bool_]:
        node = _integer(options, "node", len(self.report.parents))
        return self.report.chosen(node, _integer(options, "own", 2) == 1)

    def _side(self, options: Mapping[str, str]) -> int:
        return _integer(options, "side", len(self.report.sides))

    def _pairs(self, options: Mapping[str, str]) -> NDArray[Any]:
        return lines.of_nodes(self.report, self._side(options), self._nodes(options))

    def _map(self, options: Mapping[str, str]) -> bytes:
        size = self.report.size
        window = []
        for name in ("senders", "receivers"):
            first = _integer(options, f"{name}_first", size)
            window.append((first, first + 1 + _integer(options, f"{name}_more", size - first)))
        most = 1 + _integer(options, "most", lines.MOST_CELLS)
        return pack({}, lines.cells(self._pairs(options), window[0], window[1], most))

    def _receivers(self, options: Mapping[str, str]) -> bytes:
        return pack({}, lines.by_receiver(self._pairs(options), self.report.size))

    def _waits(self, options: Mapping[str, str]) -> bytes:
        total, columns = self.report.waits(self._side(options))
        return pack({"total": total}, columns)

    def _timeline(self, options: Mapping[str, str]) -> bytes:
        return pack(self.timelines[self._side(options)].meta())

    def _view(self, options: Mapping[str, str]) -> Any:
        view = self.timelines[self._side(options)].view
        if view is None:
            raise QuestionError("the timeline is not ready")
        return view

    def _tiles(self, options: Mapping[str, str]) -> bytes:
        view = self._view(options)
        level = _integer(options, "level", 64)
        first, last = (_integer(options, name, 1 << 40) for name in ("first", "last"))
        rows = _rows(options.get("rows", ""), len(view.places))
        try:
            check_tiles(level, first, last, rows, len(view.places))
        except ValueError as error:
            raise QuestionError(str(error)) from error
        meta, arrays = view.tiles(level, first, last, rows)
        return pack(meta, arrays)

    def _lines(self, options: Mapping[str, str]) -> bytes:
        view = self._view(options)
        begin, end = (_number(options, name) for name in ("begin", "end"))
        rows = _rows(options.get("rows", ""), len(view.places))
        most = _integer(options, "most", _MOST_LINES)
        total, arrays = view.lines(begin, end, rows, most)
        return pack({"total": total}, arrays)


def _integer(options: Mapping[str, str], name: str, limit: int) -> int:
    """An option from 0 to below a limit."""
    text = options.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 15 and int(text) < limit):
        raise QuestionError(f"{name} is not a number from 0 to {limit - 1}")
    return int(text)


def _number(options: Mapping[str, str], name: str) -> float:
    try:
        number = float(options.get(name, ""))
    except ValueError:
        number = np.nan
    if not np.isfinite(number):
        raise QuestionError(f"{name} is not a number")
    return number


def _rows(text: str, known: int) -> list[int]:
    """Rows from text such as ``0-63`` or ``1,5,7-9``, ascending, each once."""
    if len(text) > _MOST_RANKS_TEXT:
        raise QuestionError("the list of rows is too long")
    rows: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        bounds = {"first": first, "last": last if dash else first}
        rows.update(range(_integer(bounds, "first", known), _integer(bounds, "last", known) + 1))
    return sorted(rows)


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
    finally:
        service.close()


def has_screen() -> bool:
    """Whether a browser would open on a screen, rather than in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


ADDRESS = "127.0.0.1"
_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_SECONDS_OF_SILENCE = 30.0
_COMPRESSED_FROM = 1400  # bytes; less fits into one packet as it is
_KEPT_BYTES = 64 << 20  # of answers
_LEVEL = 1  # of compression: a tunnel is slower than this, a local browser hardly notices


class Server(ThreadingHTTPServer):
    """A server for one session."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, service: Service, port: int = 0) -> None:
        self.service = service
        self.token = secrets.token_urlsafe(24)
        self.text = page().encode()
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
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

    def answer(self, question: str, query: str) -> bytes:
        """A pack from the service; answers that cannot change are kept."""
        key = f"{question}?{query}"
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        options = dict(urllib.parse.parse_qsl(query, max_num_fields=20))
        data = self.service.answer(question, options)
        if question != "timeline":
            with self._lock:
                self._kept[key] = data
                while sum(map(len, self._kept.values())) > _KEPT_BYTES and len(self._kept) > 1:
                    self._kept.popitem(last=False)
        return data

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that goes away is no error, and the rest is answered."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS_OF_SILENCE
    disable_nagle_algorithm = True  # else a body waits for the headers to be acknowledged: 40 ms
    server: Server

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
            self._send(200, self.server.text, "text/html; charset=utf-8")
            return
        try:
            data = self.server.answer(rest[0], query)
        except (QuestionError, ValueError) as error:
            self._send(400, str(error).encode(), "text/plain")
            return
        except Exception as error:
            # One question that fails must not end a session; the page shows what it was.
            problem = f"{type(error).__name__}: {error}"
            self._send(500, problem.encode("utf-8", "replace"), "text/plain")
            return
        self._send(200, data, "application/octet-stream")

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
