"""Claims about the explorer's server: who gets an answer, to what, and what it survives."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from explorer_samples import write_sample
from refusals import refused

from haloscope.errors import MachineError
from haloscope.scope.explorer import QuestionError
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.server import Server, Service

RIGHT = {"side": "0", "node": "0", "own": "0", "metric": "0", "exclusive": "0"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("served")
    write_sample(folder, ranks=4, steps=1)
    service = Service(Report(folder))
    service.timelines[0].wait()
    yield service
    service.close()


@pytest.fixture(scope="module")
def server(service: Service) -> Iterator[Server]:
    with Server(service) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _get(
    server: Server, path: str, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_page_comes_with_the_token_only(server: Server) -> None:
    status, headers, page = _get(server, f"/{server.token}/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"<title>Haloscope explorer</title>" in page
    for path in ("/", "/head", "//", f"/{server.token[:-1]}/", f"/{server.token}x/head", "/x/head"):
        assert _get(server, path)[0] == 403
    assert _get(server, f"/{server.token}")[0] == 301


def test_server_listens_on_this_machine_only(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.url.startswith("http://127.0.0.1:")


def test_tokens_are_long_and_new_each_time(service: Service) -> None:
    tokens = set()
    for _ in range(3):
        with Server(service) as other:
            tokens.add(other.token)
    assert len(tokens) == 3
    assert all(len(token) >= 32 for token in tokens)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:x"])
def test_another_name_for_this_machine_is_refused(server: Server, host: str) -> None:
    assert _get(server, f"/{server.token}/", Host=host)[0] == 403
    assert _get(server, f"/{server.token}/head", Host=host)[0] == 403


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1:8080", "LOCALHOST"])
def test_forwarded_port_is_welcome(server: Server, host: str) -> None:
    assert _get(server, f"/{server.token}/head", Host=host)[0] == 200


def test_other_pages_cannot_ask(server: Server) -> None:
    assert _get(server, f"/{server.token}/head", Sec_Fetch_Site="cross-site")[0] == 403
    _, headers, _ = _get(server, f"/{server.token}/head")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "../analysis.h5", "analysis.h5", "rank-00000.def", "..%2f..%2fetc%2fpasswd", "%2e%2e/",
        "static/main.js", "head/x", "a/b/c", "__init__", "_head", "close", "\u00e4".encode("latin-1").decode("latin-1"),
    ],
)  # fmt: skip
def test_nothing_but_questions_is_answered(server: Server, path: str) -> None:
    status, _, body = _get(server, f"/{server.token}/{path}".replace("\u00e4", "%E4"))
    assert status in (400, 404)
    assert b"rank" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"])
def test_only_get_is_known(server: Server, method: str) -> None:
    assert _get(server, f"/{server.token}/head", method)[0] == 501


@pytest.mark.parametrize(
    ("question", "options"),
    [
        ("row", {}),
        ("row", {"metric": "-1"}),
        ("row", {"metric": "9" * 400}),
        ("row", {"metric": "1e3"}),
        ("row", {"metric": "\u0663"}),
        ("row", {"node": "100000"}),
        ("row", {"own": "2"}),
        ("map", {"senders_first": "0", "senders_more": "4"}),
        ("map", {"side": "1"}),
        ("receivers", {"side": "x"}),
        ("waits", {"side": "1"}),
        ("tiles", {"level": "0", "first": "0", "last": "1", "rows": "0"}),
        ("tiles", {"level": "60", "first": "0", "last": "0", "rows": "0"}),
        ("tiles", {"level": "9", "first": "0", "last": "262143", "rows": "0-3"}),
        ("tiles", {"level": "0", "first": "0", "last": "0", "rows": "0-99"}),
        ("tiles", {"level": "0", "first": "0", "last": "0", "rows": "," * 9000}),
        ("tiles", {"level": "0", "first": "0", "last": "0", "rows": ""}),
        ("lines", {"begin": "nan", "end": "1", "rows": "0", "most": "5"}),
        ("lines", {"begin": "0", "end": "x", "rows": "0", "most": "5"}),
        ("lines", {"begin": "0", "end": "1", "rows": "0", "most": "99999999"}),
        ("timeline", {"side": ""}),
        ("nothing", {}),
        ("", {}),
        ("__class__", {}),
    ],
)
def test_question_that_makes_no_sense_is_refused(
    service: Service, question: str, options: dict[str, str]
) -> None:
    parameters = {**RIGHT, **options} if options else {}
    with pytest.raises(QuestionError):
        service.answer(question, parameters)


def test_failing_question_does_not_end_the_session(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(options: object) -> bytes:
        raise RuntimeError("broken \u2014 on purpose")

    monkeypatch.setitem(server.service._answers, "waits", fail)
    status, _, body = _get(server, f"/{server.token}/waits?side=0")
    assert status == 500
    assert b"on purpose" in body
    assert _get(server, f"/{server.token}/head")[0] == 200


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"/x" * 40000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: " + b"\xff" * 100 + b"\r\n\r\n",
        b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n\r\n\r\n\0\0\0\0",
        b"",
    ],
)
def test_malformed_requests_are_survived(server: Server, request_: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        answer = b""
        # A server that has heard enough hangs up.
        with contextlib.suppress(ConnectionError, OSError):
            connection.sendall(request_)
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(65536):
                answer += more
    assert b"<title>Haloscope" not in answer
    assert _get(server, f"/{server.token}/head")[0] == 200


def test_answers_are_compressed_for_those_who_can_read_it(server: Server) -> None:
    _, plain, data = _get(server, f"/{server.token}/head")
    _, small, packed = _get(server, f"/{server.token}/head", Accept_Encoding="gzip")
    assert "Content-Encoding" not in plain
    assert small["Content-Encoding"] == "gzip"
    assert len(packed) < len(data)


def test_port_that_is_taken_is_one_clear_error(service: Service, server: Server) -> None:
    # The same port cannot be listened on twice, however it was left.
    with refused(MachineError, location="--port", problem=f"port {server.port} cannot be used"):
        Server(service, server.port)


def test_session_prints_address_and_tunnel_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    process = subprocess.Popen(
        [sys.executable, "-m", "haloscope", "explore", str(tmp_path), "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "DISPLAY"},
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        address = process.stderr.readline()
        tunnel = process.stderr.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32,}/", address)
        assert match is not None
        assert f"ssh -L {match[1]}:127.0.0.1:{match[1]} {socket.gethostname()}" in tunnel
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=20)
        connection.request("GET", "/")
        assert connection.getresponse().status == 403
        connection.close()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_folder_that_cannot_be_written_gets_a_timeline_for_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample(tmp_path / "run", ranks=2, steps=1)
    mkdir = Path.mkdir

    def refuse(path: Path, *arguments: object, **more: object) -> None:
        if path.is_relative_to(tmp_path):
            raise PermissionError(13, "Permission denied")
        mkdir(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", refuse)
    lines: list[str] = []
    service = Service(Report(tmp_path / "run"), lines.append)
    service.timelines[0].wait()
    assert service.timelines[0].meta()["state"] == "ready"
    assert len(lines) == 1
    assert "for this session only" in lines[0]
    kept = service.timelines[0]._temporary
    assert kept is not None
    service.close()
    assert not kept.exists()
