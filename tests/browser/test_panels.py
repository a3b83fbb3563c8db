"""Claims about the lower panels: where findings lead, communication; and about comparing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_panels import item, shown, timeline, value
from explorer_samples import write_sample

from haloscope.scope.analysis.metrics import BY_NAME, METRICS
from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.trace import Kind, iterate, read_events

Show = Callable[..., Any]


def _ranks(result: Result, values: Any) -> Any:
    return np.bincount([place.rank for place in result.locations], values, result.size)


# -- findings -------------------------------------------------------------------------------------


def test_finding_selects_metric_call_path_and_ranks_and_goes_to_an_instance(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    number = next(n for n, one in enumerate(findings) if one["metric"] == "late_sender")
    page = show(folder)
    buttons = page.get_by_role("list", name="Findings").get_by_role("button")
    assert buttons.count() == len(findings)
    assert findings[number]["title"] in buttons.nth(number).inner_text()
    buttons.nth(number).click()
    chosen = item(page, "Metrics", BY_NAME["late_sender"].title)
    assert chosen.get_attribute("aria-selected") == "true"
    assert item(page, "Call paths", "MPI_Sendrecv").get_attribute("aria-selected") == "true"
    for rank in findings[number]["ranks"]:
        assert item(page, "System", f"rank {rank}").get_attribute("aria-selected") == "true"
    timeline(page)
    # The longest wait of these ranks, whether they wait or keep others waiting.
    waits = result.waits
    node = result.path_of(int(waits["node"][0]))
    assert node
    wanted = [
        wait for wait in waits
        if _is_below(METRICS[wait["metric"]].name, "late_sender")
        and list(result.path_of(int(wait["node"]))) == findings[number]["call_path"]
        and {result.locations[wait["location"]].rank, result.locations[wait["cause"]].rank}
        & set(findings[number]["ranks"])
    ]  # fmt: skip
    longest = max(wanted, key=lambda wait: wait["end"] - wait["begin"])
    zero = result.about["begin"]
    begin, end = shown(page)
    assert begin < longest["begin"] - zero < longest["end"] - zero < end
    assert end - begin < 4 * (longest["end"] - longest["begin"])
    assert f"1 of {len(wanted)}:" in page.locator(".timeline-panel .strip").inner_text()
    page.keyboard.press("n")
    assert f"2 of {len(wanted)}:" in page.locator(".timeline-panel .strip").inner_text()


def test_finding_with_an_instance_goes_exactly_there(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=2)
    longest = np.argsort(result.waits["begin"] - result.waits["end"], kind="stable")
    wait = result.waits[longest[1]]  # not the one that is shown without an instance
    finding = {
        "metric": METRICS[wait["metric"]].name, "seconds": 1.0, "ranks": [0, 1, 2, 3],
        "call_path": ["program"], "node": int(wait["node"]), "title": "Ranks wait in `here`",
        "figure": "3 ms", "cause": "because", "remedy": "Do not.", "text": "t",
        "instance": {"location": int(wait["location"]), "begin": float(wait["begin"]),
                     "end": float(wait["end"])},
    }  # fmt: skip
    (tmp_path / "run" / "findings.json").write_text(
        json.dumps({"answer": ["All is slow.", "Begin with `here`."], "findings": [finding]})
    )
    page = show(tmp_path / "run")
    assert page.get_by_text("All is slow. Begin with here.").is_visible()
    assert page.locator(".finding code").inner_text() == "here"
    page.locator(".finding").click()
    timeline(page)
    begin, end = shown(page)
    middle = (wait["begin"] + wait["end"]) / 2 - result.about["begin"]
    assert (begin + end) / 2 == pytest.approx(middle, abs=1e-7)
    # Of all ranks none is selected: none of them stands out.
    assert page.locator("#pane-system .row.selected").count() == 0


def test_finding_without_a_wait_goes_to_its_call_path(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=2)
    path = ["program", "read_mesh"]
    wait = result.waits[0]
    finding = {
        "metric": "computation", "seconds": 1.0, "ranks": [2], "call_path": path,
        "title": "Reading takes long", "figure": "1 s", "cause": "", "remedy": "", "text": "t",
        # An instance elsewhere does not show it.
        "instance": {"location": int(wait["location"]), "begin": float(wait["begin"]),
                     "end": float(wait["end"])},
    }  # fmt: skip
    (tmp_path / "run" / "findings.json").write_text(json.dumps([finding]))
    page = show(tmp_path / "run")
    page.locator(".finding").click()
    page.get_by_text("no wait state; read_mesh for").wait_for()
    begin, end = shown(page)
    visit = [
        tick / 1e9 - result.about["begin"]
        for tick, kind, payload, _ in iterate(read_events(tmp_path / "run" / "rank-00002.0.events"))
        if kind in (Kind.ENTER, Kind.LEAVE) and list(result.path_of(payload)) == path
    ]
    assert begin <= visit[0] < visit[1] <= end
    assert end - begin < 4 * (visit[1] - visit[0])


def test_delay_costs_show_the_waits_that_a_call_path_causes(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    waits = result.waits
    names = [result.path_of(int(node))[-1:] for node in waits["delay_node"]]
    charged = [wait for wait, name in zip(waits, names, strict=True) if name == ("form_matrix",)]
    # Those who end the waits are in MPI by then: what they do there is not what is to blame.
    assert {result.role_of(int(wait["cause_node"])) for wait in charged} & {"sendrecv", "barrier"}
    page = show(folder, link="m=delay&c=program/timestep/form_matrix&d=timeline")
    timeline(page)
    strip = page.locator(".timeline-panel .strip")
    assert len(charged) > 1
    assert f"{len(charged)} wait states of the selection" in strip.inner_text()
    page.keyboard.press("n")
    longest = max(charged, key=lambda wait: wait["end"] - wait["begin"])
    begin, end = shown(page)
    zero = result.about["begin"]
    assert begin < longest["begin"] - zero < longest["end"] - zero < end
    assert ", because of form_matrix" in strip.inner_text()


def test_waits_for_messages_in_wrong_order_are_told_from_others(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    names = [METRICS[wait["metric"]].name for wait in result.waits]
    wrong = sum(_is_below(name, "late_sender_wrong_order") for name in names)
    late = sum(_is_below(name, "late_sender") for name in names)
    assert 0 < wrong < late
    strip = ".timeline-panel .strip"
    page = show(folder, link="m=late_sender_wrong_order&c=program&d=timeline")
    timeline(page)
    assert f"{wrong} wait states of the selection" in page.locator(strip).inner_text()
    page.keyboard.press("n")
    assert f"1 of {wrong}: Wrong order, " in page.locator(strip).inner_text()
    item(page, "Metrics", "Late Sender").click()
    page.get_by_text(f"{late} wait states of the selection").wait_for()


def test_without_findings_the_greatest_losses_are_listed(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1, findings=False, trace=False)
    page = show(tmp_path / "run")
    first = page.get_by_role("list", name="Findings").get_by_role("button").first
    names = [m.name for m in METRICS if m.remedy and m.unit == "s"]
    in_time = [n for n in names if _root(n) == "time"]
    greatest = max(in_time, key=result.total)
    assert BY_NAME[greatest].title in first.inner_text()
    first.click()
    assert item(page, "Metrics", BY_NAME[greatest].title).get_attribute("aria-selected") == "true"


def _is_below(name: str, above: str) -> bool:
    while name and name != above:
        name = BY_NAME[name].parent
    return bool(name)


def _root(name: str) -> str:
    while BY_NAME[name].parent:
        name = BY_NAME[name].parent
    return name


# -- communication --------------------------------------------------------------------------------


def test_map_and_receivers_equal_numpy(show: Show, before: tuple[Path, Result]) -> None:
    folder, result = before
    page = show(folder, link="m=time&c=program&d=messages")
    table = page.get_by_role("table", name="Messages of a receiver")
    table.locator("tbody tr").first.wait_for()
    pairs = result.pairs
    for name in ("messages", "empty", "bytes", "seconds", "receive_seconds"):
        by_rank = np.bincount(pairs["receiver"], pairs[name].astype(float), 9)
        row = table.locator(f"tr[data-name='{name}']")
        assert float(row.get_attribute("data-mean")) == pytest.approx(by_rank.mean())
        assert float(row.get_attribute("data-most")) == pytest.approx(by_rank.max())
    # The cell under the pointer: sender 3, receiver 4.
    canvas = page.locator("canvas.map")
    box = canvas.bounding_box()
    size = min((box["width"] - 58) / 9, (box["height"] - 22) / 9)
    canvas.hover(position={"x": 54 + 3.5 * size, "y": 18 + 4.5 * size})
    tip = page.get_by_role("tooltip").inner_text()
    chosen = pairs[(pairs["sender"] == 3) & (pairs["receiver"] == 4)]
    assert tip.startswith("3 → 4\n")
    assert f"messages: {chosen['messages'].sum()}" in tip.replace("\u202f", "")
    assert f"empty messages: {chosen['empty'].sum()}" in tip
    share = 100 * 18 / 72
    about = page.locator(".map-numbers").inner_text().replace("\u202f", " ")
    assert f"whole program: {share:.1f} % of 72 pairs exchange data" in about


def test_map_of_a_call_path_shows_its_messages_only(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    page = show(folder, link="m=time&c=program/timestep/gmres/gather&d=messages")
    row = page.locator("tr[data-name='messages']")
    row.wait_for()
    node = next(
        n for n in range(len(result.nodes)) if result.path_of(n)[-2:] == ("gather", "MPI_Sendrecv")
    )
    here = result.pairs[result.pairs["node"] == node]
    assert float(row.get_attribute("data-mean")) == here["messages"].sum() / 9
    item(page, "Call paths", "read_mesh").click()
    page.get_by_text("read_mesh sends no messages.").wait_for()
    page.get_by_role("button", name="Select the whole program").click()
    assert item(page, "Call paths", "program").get_attribute("aria-selected") == "true"


def test_map_zooms_to_a_few_ranks_and_back(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0], link="m=time&c=program&d=messages")
    canvas = page.locator("canvas.map")
    page.locator("tr[data-name='messages']").wait_for()
    box = canvas.bounding_box()
    size = min((box["width"] - 58) / 9, (box["height"] - 22) / 9)
    corner = (box["x"] + 54, box["y"] + 18)
    page.mouse.move(corner[0] + 2.2 * size, corner[1] + 3.2 * size)
    page.mouse.down()
    page.mouse.move(corner[0] + 4.8 * size, corner[1] + 5.8 * size, steps=4)
    page.mouse.up()
    page.wait_for_timeout(400)
    label = canvas.get_attribute("aria-label")
    assert label.endswith("senders 2 to 4, receivers 3 to 5")
    assert "k=2_5_3_6" in page.evaluate("location.hash")
    page.get_by_role("button", name="Show all ranks").click()
    page.wait_for_timeout(200)
    assert canvas.get_attribute("aria-label").endswith("senders 0 to 8, receivers 0 to 8")


# -- comparison -----------------------------------------------------------------------------------


def test_comparison_shows_differences_by_metric_call_path_and_rank(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result]
) -> None:
    (folder, first), (other, second) = before, after
    page = show(folder, other, link="m=p2p_synchronisation&c=program/timestep/gmres/gather")
    page.wait_for_load_state("networkidle")
    name = "p2p_synchronisation"
    title = BY_NAME[name].title
    assert second.total(name) < first.total(name) / 10
    assert value(page, "Metrics", title) == pytest.approx(second.total(name) - first.total(name))

    def whole(result: Result) -> Any:
        node = next(n for n in range(len(result.nodes)) if result.path_of(n)[-1] == "gather")
        return result.inclusive(result.value(name))[node]

    assert value(page, "Call paths", "gather") == pytest.approx(
        whole(second).sum() - whole(first).sum()
    )
    page.wait_for_timeout(300)
    by_rank = _ranks(second, whole(second)) - _ranks(first, whole(first))
    for rank in range(9):
        assert value(page, "System", f"rank {rank}") == pytest.approx(by_rank[rank])
    # As a share of the first measurement, and each of the two alone.
    page.get_by_role("combobox", name="Values of Metrics").select_option("root")
    share = 100 * (second.total(name) - first.total(name)) / first.total("time")
    assert value(page, "Metrics", title) == pytest.approx(share)
    page.get_by_role("combobox", name="Values of Metrics").select_option("absolute")
    for view, result in (("0", first), ("1", second)):
        page.get_by_role("combobox", name="Measurement").select_option(view)
        assert value(page, "Metrics", title) == pytest.approx(result.total(name))


def test_comparison_has_both_timelines_and_the_difference_of_the_maps(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result]
) -> None:
    (folder, first), (other, second) = before, after
    page = show(folder, other, link="d=timeline&m=time&c=program")
    timeline(page)
    assert shown(page)[1] == pytest.approx(second.about["span"], abs=1e-6)
    page.get_by_role("combobox", name="Timeline of").select_option("0")
    page.wait_for_timeout(500)
    timeline(page)
    assert shown(page)[1] == pytest.approx(first.about["span"], abs=1e-6)
    page.get_by_role("tab", name="Communication").click()
    row = page.locator("tr[data-name='empty']")
    row.wait_for()
    change = second.pairs["empty"].sum() - first.pairs["empty"].sum()
    assert float(row.get_attribute("data-mean")) == pytest.approx(change / 9)


def test_comparison_lists_what_changed_most_and_goes_there(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result]
) -> None:
    (folder, first), (other, second) = before, after
    page = show(folder, other)
    changes = page.get_by_role("list", name="Changes").get_by_role("button")
    inside = [metric.name for metric in METRICS if _root(metric.name) == "time"]
    change = {name: (second.exclusive(name) - first.exclusive(name)).sum() for name in inside}
    greatest = max(change, key=lambda name: abs(change[name]))
    assert BY_NAME[greatest].title in changes.first.inner_text()
    # The two numbers are those of the whole metric, and stand before the place of the greatest part.
    line = changes.first.inner_text().replace("\u202f", " ")
    assert re.search(r" → [^·]* · mainly in ", line)
    changes.first.click()
    chosen = item(page, "Metrics", BY_NAME[greatest].title)
    assert chosen.get_attribute("aria-selected") == "true"
    assert value(page, "Metrics", BY_NAME[greatest].title) == pytest.approx(change[greatest])
    # Both diagnoses follow, and keys go on from where the click was.
    assert page.get_by_role("list", name="Findings of the first").first.is_visible()
    assert changes.first.evaluate("button => button === document.activeElement")
    page.get_by_role("combobox", name="Measurement").select_option("0")
    assert page.get_by_role("list", name="Changes").count() == 0
