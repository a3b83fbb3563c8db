"""Claims about large reports: they fit into a file, and the page stays usable; times are printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_traces import events_of, write_synthetic

from haloscope.scope.analysis.metrics import BY_NAME, METRICS, children
from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.explorer.page import write_page
from haloscope.scope.explorer.report import Report
from haloscope.scope.replay import analyse
from haloscope.scope.trace.measurement import Communicator, Location, Node, Region, open_measurement

Show = Callable[..., Any]

RANKS, NODES = 2048, 1000
MOST_BYTES = 30_000_000

_CLICK = """async (selector) => {
    const numbers = document.querySelector('.numbers');
    const [before, begun] = [numbers.dataset.mean, performance.now()];
    document.querySelector(selector).click();
    while (numbers.dataset.mean === before && performance.now() - begun < 5000) {
        await new Promise(requestAnimationFrame);
    }
    return performance.now() - begun;
}"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,048 ranks, 1,000 call paths, all metrics; each call path has the metrics of its kind."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(1)
    leaves = [metric.name for metric in METRICS if not children(metric.name)]
    values: dict[str, Any] = {
        metric.name: np.zeros((NODES, RANKS)) for metric in METRICS
    }  # fmt: skip
    for node in range(NODES):
        chosen = ["computation", "visits", *random.choice(leaves, 5, replace=False)]
        for leaf in dict.fromkeys(chosen):
            row = random.exponential(1 / (1 + node % 17), RANKS)
            name = leaf
            while name:
                values[name][node] += row
                name = BY_NAME[name].parent
    nodes = [Node(-1, 0)]
    nodes += [
        Node(int(random.integers(max(0, n - 40), n)), n % 50, str(n)) for n in range(1, NODES)
    ]
    Result(
        {}, RANKS, [Region(f"function {n}", "function") for n in range(50)], nodes,
        [Communicator("0" * 16, tuple(range(RANKS)), (), "", (8, 16, 16), (1, 1, 1))],
        [Location(rank, 0) for rank in range(RANKS)], values,
    ).save(folder / FILE)  # fmt: skip
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_large_report_is_one_file_below_its_limit_and_clicks_are_answered(
    show: Show, large: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _look(show, large, "served")
    size, _ = write_page(Report(large), tmp_path / "page.html")
    assert size < MOST_BYTES
    begun = time.perf_counter()
    page = show.at((tmp_path / "page.html").as_uri(), offline=True)  # type: ignore[attr-defined]
    print(f"file of {size / 1e6:.1f} MB: open after {time.perf_counter() - begun:.2f} s")
    _clicks(page, "file")
    with capsys.disabled():
        print("\n" + capsys.readouterr().out)


def _look(show: Show, folder: Path, label: str) -> None:
    begun = time.perf_counter()
    page = show(folder)
    print(f"{label}: open after {time.perf_counter() - begun:.2f} s")
    _clicks(page, label)


def _clicks(page: Any, label: str) -> None:
    page.get_by_role("button", name="Open all call paths").click()
    page.wait_for_timeout(300)
    rows = page.locator("#pane-paths .row").evaluate_all("rows => rows.slice(2, 14).map(r => r.id)")
    taken = sorted(page.evaluate(_CLICK, f"#{row}") for row in rows)
    print(
        f"{label}: click on a call path {taken[len(taken) // 2]:.0f} ms, at most {taken[-1]:.0f} ms"
    )
    # A call path with many below it, whose values are summed up.
    page.get_by_role("button", name="Close all call paths").click()
    page.locator("#pane-paths .twisty").first.click()
    page.locator("#pane-paths .row").nth(1).click()
    page.wait_for_timeout(1000)
    rows = page.locator("#pane-metrics .row").evaluate_all(
        "rows => rows.slice(1, 9).map(r => r.id)"
    )
    taken = sorted(page.evaluate(_CLICK, f"#{row}") for row in rows)
    print(f"{label}: click on a metric {taken[len(taken) // 2]:.0f} ms, at most {taken[-1]:.0f} ms")


_FRAMES = """async (steps) => {
    const canvas = document.querySelector('canvas.timeline');
    const box = canvas.getBoundingClientRect();
    const [x, y] = [box.left + 0.6 * box.width, box.top + 0.5 * box.height];
    const taken = [];
    let last = await new Promise(requestAnimationFrame);
    for (let step = 0; step < steps; step++) {
        const deltaY = step < steps / 2 ? -120 : 120;
        canvas.dispatchEvent(new WheelEvent('wheel',
            {deltaY, clientX: x, clientY: y, bubbles: true, cancelable: true}));
        const now = await new Promise(requestAnimationFrame);
        taken.push(now - last);
        last = now;
    }
    return taken;
}"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_timeline_of_ten_million_events_can_be_zoomed(
    show: Show, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "trace"
    events_per_iteration = events_of(64, functions=4)
    write_synthetic(folder, 64, round(1e7 / events_per_iteration), functions=4)
    analyse(open_measurement(folder)).save(folder / FILE)
    begun = time.perf_counter()
    page = show(folder, link="d=timeline")
    page.wait_for_function(
        "() => Number(document.querySelector('canvas.timeline')?.dataset.lines) > 0", timeout=60_000
    )
    first = time.perf_counter() - begun
    label = page.locator("canvas.timeline").get_attribute("aria-label")
    taken = sorted(page.evaluate(_FRAMES, 120))
    assert len(taken) == 120
    page.wait_for_timeout(1000)
    assert page.locator("canvas.timeline").get_attribute("aria-label") == label
    print(
        f"timeline after {first:.1f} s; a frame while zooming takes {taken[60]:.0f} ms in the "
        f"median, {taken[113]:.0f} ms for 95 %, {taken[-1]:.0f} ms at most"
    )
    with capsys.disabled():
        print("\n" + capsys.readouterr().out)
