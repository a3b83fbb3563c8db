"""Claims about `haloscope show`: content of the page, foreign text in it, and files that are served."""

from __future__ import annotations

import base64
import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from explorer_samples import HOSTILE, HOSTILE_RIGHT
from finished_runs import png, write_finished_run
from refusals import refused

from haloscope.commands.results_server import ResultsServer
from haloscope.run import results_page as pages
from haloscope.run.finished import read_summary

Call = Callable[..., tuple[int, str, str]]


def _page(folder: Path, *, embedded: bool = True) -> str:
    files = pages.list_files(folder)
    return pages.results_page(folder, read_summary(folder), files, embedded=embedded)


def test_html_file_holds_pictures_numbers_and_tables(tmp_path: Path, call: Call) -> None:
    folder = write_finished_run(tmp_path / "run")
    path = tmp_path / "page.html"
    code, out, error = call("show", folder, "--html", path)
    assert (code, error) == (0, "")
    assert out.startswith(f"{path}: ")
    text = path.read_text()
    assert f'<img src="data:image/png;base64,{base64.b64encode(png()).decode()}"' in text
    for part in (
        "<h1>Warm box</h1>",
        "mean Nusselt number 4.5\nlargest velocity 3.25",
        '<p class="warning">warning: not steady: the numbers are not final</p>',
        "<li>a plain notice</li>",
        "<td>12.5 Mcells/s</td>",
        "<td>value 4.5, reference 4.519</td>",
        "<td>9.8.7</td>",
        "<th>step</th><th>T</th>",
        "<tr><td>10</td><td>0.010</td></tr>",
        "The first 10 rows.",
    ):
        assert part in text
    assert "<td>11</td>" not in text
    assert not re.search(r"""(src|href)=["'](?!data:)""", text)


class _Tags(HTMLParser):
    """Names of elements, and attributes that start scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def test_foreign_text_is_text(tmp_path: Path) -> None:
    texts = dict.fromkeys(("title", "case", "solver", "device", "stopped_by"), HOSTILE)
    folder = write_finished_run(
        tmp_path / "run",
        **texts,
        ranks=HOSTILE,
        headline=[HOSTILE, HOSTILE_RIGHT],
        notices=[HOSTILE, f"warning: {HOSTILE}"],
        rate={"value": HOSTILE, "unit": HOSTILE},
        checks={HOSTILE: HOSTILE},
        derived={HOSTILE: {HOSTILE: HOSTILE}},
        bandwidth={"achieved_gb_s": HOSTILE},
        energy={"joules": 1.0, "source": HOSTILE},
        provenance={"versions": {HOSTILE: HOSTILE}, "mpi": HOSTILE},
    )
    name = '"><script>x<'
    (folder / f"{name}.png").write_bytes(png())
    (folder / f"{name}.csv").write_text(f'"{HOSTILE.replace(chr(34), chr(34) * 2)}"\n<b>\n')
    text = _page(folder)
    plain = _Tags(_page(write_finished_run(tmp_path / "plain")))
    page = _Tags(text)
    assert page.names == plain.names
    assert page.handlers == []
    assert "&lt;img src=x" in text
    assert "evil\\u202ename\\x07\\x00" in text


@pytest.mark.parametrize("value", [None, 3, "text", ["a"], {"a": {"b": None}}])
def test_summary_of_another_shape_is_shown(tmp_path: Path, value: object) -> None:
    names = [
        "headline",
        "notices",
        "rate",
        "checks",
        "derived",
        "bandwidth",
        "energy",
        "provenance",
        "ranks",
        "seconds",
    ]
    folder = write_finished_run(tmp_path / "run", **dict.fromkeys(names, value))
    assert "<h1>Warm box</h1>" in _page(folder)


def test_links_out_of_the_folder_are_left_out(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "run")
    for name in ("secret.png", "secret.csv"):
        (tmp_path / name).write_text("secret words")
        (folder / name).symlink_to(tmp_path / name)
    os.mkfifo(folder / "pipe.csv")
    text = _page(folder)
    assert "secret words" not in text
    assert base64.b64encode(b"secret words").decode() not in text
    for name in ("secret.png", "secret.csv", "pipe.csv"):
        assert f"<li>{name}: a link or no file</li>" in text


def test_picture_replaced_by_a_link_is_not_read(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "run")
    picture = pages.list_files(folder).pictures["picture-1.png"]
    (tmp_path / "secret").write_text("secret words")
    picture.path.unlink()
    picture.path.symlink_to(tmp_path / "secret")
    with refused(location=str(picture.path), problem="the picture cannot be read"):
        picture.read()


def test_large_files_are_read_in_part_or_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_finished_run(tmp_path / "run")
    monkeypatch.setattr(pages, "MOST_BYTES", 10)
    (folder / "wide.csv").write_text("a" * (1 << 20))
    (folder / "long.csv").write_text("step\n" + "7\n" * (1 << 20))
    text = _page(folder)
    assert "<li>overview.png: 0 MB</li>" in text
    assert len(text) < 20_000
    assert "<td>7</td>" in text


def test_folder_without_a_run_is_one_clear_error(tmp_path: Path, call: Call) -> None:
    code, _, error = call("show", tmp_path / "none")
    assert code == 2
    assert "the folder does not exist; give the folder of a run that has ended" in error
    code, _, error = call("show", tmp_path)
    assert code == 2
    assert "it holds no summary.json" in error


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ResultsServer]:
    folder = write_finished_run(tmp_path / "run")
    (tmp_path / "outside.png").write_bytes(b"outside")
    (folder / "picture-2.png").mkdir()
    files = pages.list_files(folder)
    with ResultsServer(_page(folder, embedded=False), files.pictures) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _get(server: ResultsServer, path: str, **headers: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()
    finally:
        connection.close()


def test_server_gives_the_page_and_its_pictures(server: ResultsServer) -> None:
    status, kind, page = _get(server, f"/{server.token}/")
    assert (status, kind) == (200, "text/html; charset=utf-8")
    assert b'<img src="picture-1.png"' in page
    status, kind, data = _get(server, f"/{server.token}/picture-1.png")
    assert (status, kind, data) == (200, "image/png", png())


@pytest.mark.parametrize(
    "path",
    ["summary.json", "overview.png", "residuals.csv", "../outside.png", "..%2foutside.png", "picture-2.png", ""],
)  # fmt: skip
def test_no_other_file_is_served(server: ResultsServer, path: str) -> None:
    status, _, data = _get(server, f"/{server.token}/{path or 'picture-1.png/../x'}")
    assert status in (400, 404)
    assert b"outside" not in data
    assert b"cavity" not in data


def test_pictures_need_the_token_and_this_machines_name(server: ResultsServer) -> None:
    assert _get(server, "/picture-1.png")[0] == 403
    assert _get(server, "/x/picture-1.png")[0] == 403
    path = f"/{server.token}/picture-1.png"
    assert _get(server, path, Host="evil.example")[0] == 403
    assert _get(server, path, **{"Sec-Fetch-Site": "cross-site"})[0] == 403


def test_session_prints_its_address_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    folder = write_finished_run(tmp_path / "run")
    process = subprocess.Popen(
        [sys.executable, "-m", "haloscope", "show", str(folder), "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        match = re.match(
            r"results: http://127\.0\.0\.1:(\d+)(/[\w-]{32,}/)", process.stderr.readline()
        )
        assert match is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=20)
        connection.request("GET", match[2])
        assert b"Warm box" in connection.getresponse().read()
        connection.close()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
