"""Claims about the explorer's page: its packs, its script and policy, and the page as one file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from explorer_samples import write_sample
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import NUMBER
from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.explorer import page as pages
from haloscope.scope.explorer.page import compressed, pack, write_page
from haloscope.scope.explorer.report import Report
from haloscope.scope.trace.measurement import Location, Node, Region

STATIC = Path(pages.__file__).with_name("static")


def _unpack(data: bytes) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A pack as the page reads it."""
    length = struct.unpack("<I", data[:4])[0]
    head = json.loads(data[8 : 8 + length])
    arrays = {
        name: np.frombuffer(data, f"<{kind}", count, 8 + length + offset)
        for name, (kind, offset, count) in head["arrays"].items()
    }
    return head["meta"], arrays


def _packs(text: str) -> dict[str, bytes]:
    """The packs in a page, decompressed."""
    packs = re.findall(r'<script type="text/plain" data-pack="([\w-]+)">([^<]*)</script>', text)
    return {name: gzip.decompress(base64.b64decode(data)) for name, data in packs}


# -- packs ----------------------------------------------------------------------------------------


def test_packs_hold_what_was_put_in() -> None:
    arrays = {
        "f": np.array([1.5, -2.0]),
        "i": np.array([1, 2, 3], np.int32),
        "b": np.array([7, 255], np.uint8),
        "l": np.array([1 << 40, -1]),
        "t": np.array([[True, False]]),
    }
    meta, unpacked = _unpack(pack({"a": ["ä", 1]}, arrays))
    assert meta == {"a": ["ä", 1]}
    for name, values in arrays.items():
        assert np.array_equal(unpacked[name], values.ravel())


def test_what_json_cannot_say_does_not_reach_the_page() -> None:
    meta, unpacked = _unpack(
        pack(
            {
                "nan": float("nan"),
                "lone": "\ud800x",
                "big": 10**400,
                "deep": [[[[[[[[[[[[[1]]]]]]]]]]]]],
            },
            {"values": np.array([np.nan, np.inf, 1.0])},
        )
    )
    assert meta["nan"] is None
    assert meta["lone"] == "?x"
    assert meta["big"] is None
    assert unpacked["values"].tolist() == [0.0, 0.0, 1.0]


def test_compression_gives_the_same_bytes_again() -> None:
    assert compressed(b"haloscope" * 100) == compressed(b"haloscope" * 100)


# -- page -----------------------------------------------------------------------------------------


def test_policy_allows_the_page_its_own_script_and_nothing_else() -> None:
    text = pages.page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1
    wanted = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{wanted}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    assert "connect-src 'self'" in policy[1]
    assert "connect-src 'none'" in pages.page({})


def test_page_names_no_other_machine() -> None:
    assert not re.findall(r"(?:https?:)?//[a-z]+\.[a-z]+", pages.page())


def test_script_never_makes_markup_of_data() -> None:
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        assert text.startswith("// "), f"{path.name} does not say why it exists"
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text, path.name


def test_every_module_is_part_of_the_page() -> None:
    text = pages.page()
    for path in STATIC.glob("*.js"):
        assert f'modules["{path.name}"] =' in text


def test_modules_in_a_circle_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "main.js").write_text('import { a } from "./other.js";\n')
    (tmp_path / "other.js").write_text('import { b } from "./main.js";\n')
    monkeypatch.setattr(pages, "_STATIC", tmp_path)
    with pytest.raises(ValueError, match="circular import"):
        pages._linked()


def test_style_or_script_that_would_end_its_element_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "main.js").write_text('const text = "</script>";\n')
    monkeypatch.setattr(pages, "_STATIC", tmp_path)
    with pytest.raises(ValueError, match="holds"):
        pages._linked()


@pytest.mark.parametrize("name", ["viridis", "cividis"])
def test_scales_are_those_of_matplotlib(name: str) -> None:
    text = (STATIC / "colours.js").read_text()
    block = re.search(rf"  {name}:\n((?:\s+\"[0-9a-f]+\"[ +,]*\n)+)", text)
    assert block is not None
    digits = "".join(re.findall(r'"([0-9a-f]+)"', block[1]))
    anchors = np.array([[int(digits[p + c : p + c + 2], 16) for c in (0, 2, 4)]
                        for p in range(0, len(digits), 6)])  # fmt: skip
    wanted = 255 * matplotlib.colormaps[name](np.linspace(0, 1, len(anchors)))[:, :3]
    assert np.abs(anchors - wanted).max() <= 0.5001
    between = np.stack(
        [np.interp(np.linspace(0, 32, 257), np.arange(33), anchors[:, c]) for c in range(3)], 1
    )
    exact = 255 * matplotlib.colormaps[name](np.linspace(0, 1, 257))[:, :3]
    assert np.abs(between - exact).max() < 6


# -- one file -------------------------------------------------------------------------------------


def _row_of(packs: dict[str, bytes], metric: str, nodes: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Values by location, exclusive along the metrics, as the page puts them together."""
    _, values = _unpack(packs["values0"])
    meta, _ = _unpack(packs["head"])
    places = len(meta["places"])
    total = np.zeros(places)
    high = low = 0
    for row, kind in enumerate(values["kind"].tolist()):
        numbers = np.zeros(places)
        if kind in (1, 2):
            numbers += values["high_bytes"][high : high + places]
            high += places
        if kind == 2:
            numbers = 256 * numbers + values["low_bytes"][low : low + places]
            low += places
        if values["metric"][row] == NUMBER[metric] and nodes[values["node"][row]]:
            total += values["low"][row] + values["step"][row] * numbers
    return total


def test_values_in_a_file_are_those_of_the_result_to_16_bits(
    sample: tuple[Path, Result], tmp_path: Path
) -> None:
    folder, result = sample
    size, left_out = write_page(Report(folder), tmp_path / "page.html")
    assert size == (tmp_path / "page.html").stat().st_size
    assert left_out == []
    packs = _packs((tmp_path / "page.html").read_text())
    for name in ("computation", "late_sender", "visits", "messages_sent", "wait_at_barrier"):
        for node in range(len(result.nodes)):
            nodes = np.arange(len(result.nodes)) == node
            expected = result.exclusive(name)[node]
            step = (expected.max() - expected.min()) / 65535
            assert np.abs(_row_of(packs, name, nodes) - expected).max() <= 0.5001 * step + 1e-12


def test_file_keeps_its_limit_by_leaving_small_values_out_and_says_so(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(2)
    nodes = [Node(-1, 0)] + [Node(0, 1, str(site)) for site in range(120)]
    weights = 10.0 ** -np.arange(0, 12.1, 0.1)
    time = random.random((121, 400)) * weights[:, None]
    Result(
        {}, 400, [Region("p"), Region("f")], nodes, [], [Location(r, 0) for r in range(400)],
        {"time": time},
    ).save(tmp_path / FILE)  # fmt: skip
    most = len(pages.page({})) + 60_000
    size, left_out = write_page(Report(tmp_path), tmp_path / "page.html", most)
    assert size <= most
    assert any("small values" in note for note in left_out)
    packs = _packs((tmp_path / "page.html").read_text())
    meta, arrays = _unpack(packs["head"])
    assert meta["left_out"] == left_out
    assert np.allclose(arrays["nodes0"], time.sum(axis=1))
    # The greatest rows are exact to 16 bits, the smallest keep their sums.
    first = np.arange(121) == 0
    assert np.abs(_row_of(packs, "time", first) - time[0]).max() < 1e-4
    assert _row_of(packs, "time", ~first).sum() == pytest.approx(time[1:].sum(), rel=1e-3)


def test_file_holds_no_markup_but_its_own(tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, hostile=True)
    write_page(Report(tmp_path / "run"), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "hacked" not in text
    assert "onerror" not in text


def test_command_writes_one_file(
    sample: tuple[Path, Result], tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, _ = call("explore", sample[0], "--html", tmp_path / "page.html")
    assert code == 0
    assert re.fullmatch(r".*page\.html: [\d.]+ MB\n", out)
    assert set(_packs((tmp_path / "page.html").read_text())) == {
        "head", "values0", "pairs0", "waits0",
    }  # fmt: skip
