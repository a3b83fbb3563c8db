"""Claims about the page as one file: it opens from disk, alone, and shows the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_panels import item, value
from explorer_samples import HOSTILE, write_sample

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis.findings import SPENT_ONCE
from haloscope.scope.explorer.page import write_page
from haloscope.scope.explorer.report import Report

Show = Callable[..., Any]

GATHER = ("program", "timestep", "gmres", "gather", "MPI_Sendrecv")


@pytest.fixture(scope="module")
def file(before: tuple[Path, Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(Report(before[0]), path)
    return path


def test_file_opens_from_disk_without_any_network(
    show: Show, file: Path, before: tuple[Path, Result]
) -> None:
    _, result = before
    page = show.at(f"{file.as_uri()}#m=late_sender&c={'/'.join(GATHER)}", offline=True)  # type: ignore[attr-defined]
    assert value(page, "Metrics", "Late Sender") == pytest.approx(result.total("late_sender"))
    page.wait_for_timeout(400)
    node = next(n for n in range(len(result.nodes)) if result.path_of(n) == GATHER)
    values = result.value("late_sender")[node]
    ranks = np.bincount([place.rank for place in result.locations], values)
    for rank in range(9):
        step = values.max() / 65535
        assert value(page, "System", f"rank {rank}") == pytest.approx(ranks[rank], abs=2 * step)


def test_file_has_the_timeline_with_its_messages(show: Show, file: Path) -> None:
    page = show.at(f"{file.as_uri()}#d=timeline", offline=True)  # type: ignore[attr-defined]
    page.wait_for_function(
        "() => Number(document.querySelector('canvas.timeline')?.dataset.lines) > 0"
    )
    canvas = page.locator("canvas.timeline")
    for _ in range(8):
        page.get_by_role("button", name="Zoom in (+)").click()
    page.wait_for_timeout(300)
    box = canvas.bounding_box()
    named = 0
    for part in range(1, 20):
        canvas.hover(position={"x": 104 + (box["width"] - 104) * part / 20, "y": 22})
        lines = page.get_by_role("tooltip").inner_text().split("\n")
        named += any(line.startswith(("from ", "sent at ")) for line in lines)
    assert named >= 15


def test_file_has_the_messages_of_each_call_path(
    show: Show, file: Path, before: tuple[Path, Result]
) -> None:
    _, result = before
    page = show.at(f"{file.as_uri()}#m=time&c=program&d=messages", offline=True)  # type: ignore[attr-defined]
    row = page.locator("tr[data-name='bytes']")
    row.wait_for()
    assert float(row.get_attribute("data-mean")) == pytest.approx(result.pairs["bytes"].sum() / 9)
    item(page, "Call paths", "program").locator(".twisty").click()
    for name in ("timestep", "gmres"):
        item(page, "Call paths", name).locator(".twisty").click()
    item(page, "Call paths", "scatter").click()
    node = next(
        n for n in range(len(result.nodes)) if result.path_of(n)[-2:] == ("scatter", "MPI_Sendrecv")
    )
    here = result.pairs[result.pairs["node"] == node]["bytes"].sum() / 9
    page.wait_for_timeout(300)
    assert float(row.get_attribute("data-mean")) == pytest.approx(here)


def test_link_within_a_file_restores_the_view(show: Show, file: Path) -> None:
    page = show.at(file.as_uri(), offline=True)  # type: ignore[attr-defined]
    item(page, "Metrics", "Visits").click()
    page.get_by_role("tab", name="Topology").click()
    page.wait_for_timeout(400)
    link = page.evaluate("location.href")
    other = show.at(link, offline=True)  # type: ignore[attr-defined]
    assert item(other, "Metrics", "Visits").get_attribute("aria-selected") == "true"
    assert other.get_by_role("tab", name="Topology").get_attribute("aria-selected") == "true"


def test_names_in_a_file_are_text(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, hostile=True)
    write_page(Report(tmp_path / "run"), tmp_path / "page.html")
    page = show.at(f"{(tmp_path / 'page.html').as_uri()}#m=time&c=program", offline=True)  # type: ignore[attr-defined]
    page.get_by_role("button", name="Open all call paths").click()
    assert item(page, "Call paths", HOSTILE).is_visible()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0


def test_file_has_the_answer_and_what_measuring_took(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    measuring = {"share": 0.07, "text": "The measurement took about 7 %."}
    (tmp_path / "run" / "findings.json").write_text(
        json.dumps({"answer": ["Nothing stands out."], "measuring": measuring, "findings": []})
    )
    write_page(Report(tmp_path / "run"), tmp_path / "page.html")
    page = show.at((tmp_path / "page.html").as_uri(), offline=True)  # type: ignore[attr-defined]
    lines = page.locator(".findings > *").all_inner_texts()
    assert lines == ["Nothing stands out.", "The measurement took about 7 %."]


def test_file_has_notes_and_the_heading_of_what_is_spent_once(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=9, steps=3, trace=False)
    (note,) = json.loads((tmp_path / "run" / "findings.json").read_text())["notes"]
    write_page(Report(tmp_path / "run"), tmp_path / "page.html")
    page = show.at((tmp_path / "page.html").as_uri(), offline=True)  # type: ignore[attr-defined]
    assert page.locator(".findings .warn").all_inner_texts() == [f"Note: {note}."]
    assert page.locator(".findings").get_by_role("heading").all_inner_texts() == [SPENT_ONCE]


def test_what_a_file_leaves_out_is_told_on_its_page(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=9, steps=2, trace=False)
    report = Report(tmp_path / "run")
    full, _ = write_page(report, tmp_path / "full.html")
    _, left_out = write_page(report, tmp_path / "page.html", full - 6000)
    assert left_out
    page = show.at(f"{(tmp_path / 'page.html').as_uri()}#m=time&c=program&d=about", offline=True)  # type: ignore[attr-defined]
    assert page.get_by_text(left_out[0]).is_visible()
    assert "leaves out data" in page.locator("#status").inner_text()
    # Sums are exact all the same; what is spread evenly is said where it is seen.
    page.get_by_role("button", name="Open all call paths").click()
    page.wait_for_timeout(300)
    item(page, "Call paths", "MPI_Finalize").click()
    page.wait_for_timeout(300)
    assert "spread evenly" in page.get_by_role("group", name="Spread over ranks").inner_text()


def test_comparison_fits_into_a_file(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result], tmp_path: Path
) -> None:
    write_page(Report(before[0], after[0]), tmp_path / "page.html")
    page = show.at(f"{(tmp_path / 'page.html').as_uri()}#m=time&c=program", offline=True)  # type: ignore[attr-defined]
    change = after[1].total("time") - before[1].total("time")
    assert value(page, "Metrics", "Time") == pytest.approx(change)
    page.get_by_role("tab", name="Timeline").click()
    page.get_by_role("combobox", name="Timeline of").select_option("0")
    page.wait_for_function(
        "() => Number(document.querySelector('canvas.timeline')?.dataset.lines) > 0"
    )
