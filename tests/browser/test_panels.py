"""Claims about the lower panels: findings, timeline, communication; and about comparing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_samples import write_sample

from haloscope.scope.diagnosis import answer, wording
from haloscope.scope.diagnosis.findings import SPENT_ONCE
from haloscope.scope.diagnosis.intrusion import Intrusion
from haloscope.scope.measurement import open_measurement
from haloscope.scope.metrics import BY_NAME, METRICS
from haloscope.scope.result import Result
from haloscope.scope.trace import Kind, iterate, read_events

Show = Callable[..., Any]

LABELS, RULER, SLIDER = 104, 18, 12  # of the timeline's canvas, in CSS pixels


def _item(page: Any, tree: str, name: str) -> Any:
    rows = page.get_by_role("tree", name=tree, exact=True).get_by_role("treeitem")
    return rows.filter(has=page.get_by_text(name, exact=True)).first


def _value(page: Any, tree: str, name: str) -> float:
    return float(_item(page, tree, name).get_attribute("data-value"))


def _timeline(page: Any) -> Any:
    """The timeline's canvas, once it has drawn what it asked for."""
    canvas = page.locator("canvas.timeline")
    page.wait_for_function(
        "() => Number(document.querySelector('canvas.timeline')?.dataset.lines) > 0"
    )
    page.wait_for_timeout(300)
    return canvas


def _shown(page: Any) -> tuple[float, float]:
    """The stretch that the timeline shows, in seconds."""
    words = page.locator("canvas.timeline").get_attribute("aria-label").split()
    return float(words[2]), float(words[4])


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
    chosen = _item(page, "Metrics", BY_NAME["late_sender"].title)
    assert chosen.get_attribute("aria-selected") == "true"
    assert _item(page, "Call paths", "MPI_Sendrecv").get_attribute("aria-selected") == "true"
    for rank in findings[number]["ranks"]:
        assert _item(page, "System", f"rank {rank}").get_attribute("aria-selected") == "true"
    _timeline(page)
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
    begin, end = _shown(page)
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
    _timeline(page)
    begin, end = _shown(page)
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
    begin, end = _shown(page)
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
    _timeline(page)
    strip = page.locator(".timeline-panel .strip")
    assert len(charged) > 1
    assert f"{len(charged)} wait states of the selection" in strip.inner_text()
    page.keyboard.press("n")
    longest = max(charged, key=lambda wait: wait["end"] - wait["begin"])
    begin, end = _shown(page)
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
    _timeline(page)
    assert f"{wrong} wait states of the selection" in page.locator(strip).inner_text()
    page.keyboard.press("n")
    assert f"1 of {wrong}: Wrong order, " in page.locator(strip).inner_text()
    _item(page, "Metrics", "Late Sender").click()
    page.get_by_text(f"{late} wait states of the selection").wait_for()


def test_rows_without_room_are_scrolled_to(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=64, steps=1)
    page = show(tmp_path / "run", link="d=timeline")
    canvas = _timeline(page)
    box = canvas.bounding_box()
    bottom = {"x": LABELS / 2, "y": box["height"] - SLIDER - 3}
    canvas.hover(position=bottom)
    assert page.get_by_role("tooltip").inner_text() != "rank 63"
    canvas.click(position={"x": box["width"] - 4, "y": box["height"] - SLIDER - 3})
    canvas.hover(position=bottom)
    assert page.get_by_role("tooltip").inner_text() == "rank 63"


def test_without_findings_the_greatest_losses_are_listed(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1, findings=False, trace=False)
    page = show(tmp_path / "run")
    first = page.get_by_role("list", name="Findings").get_by_role("button").first
    names = [m.name for m in METRICS if m.remedy and m.unit == "s"]
    in_time = [n for n in names if _root(n) == "time"]
    greatest = max(in_time, key=result.total)
    assert BY_NAME[greatest].title in first.inner_text()
    first.click()
    assert _item(page, "Metrics", BY_NAME[greatest].title).get_attribute("aria-selected") == "true"


def _diagnose(folder: Path, result: Result, recording: float) -> tuple[str, str]:
    """Give a measurement a diagnosis that finds nothing; its answer, and what measuring took."""
    told = replace(Intrusion.of(result), writing=0.0, preparing=0.0, is_at_least=False)
    told = replace(told, recording=recording * told.time)
    sentences = answer(result, [])
    (folder / "findings.json").write_text(
        json.dumps({"answer": sentences, "measuring": told.as_json(), "findings": []})
    )
    return " ".join(sentences), told.sentence


def _looks(page: Any, text: str) -> tuple[str, str]:
    """Colour of a line, and the style sheet's of warnings as the browser writes it."""
    line = page.get_by_text(text, exact=True)
    assert line.is_visible()
    colour = "line => getComputedStyle(line).color"
    warning = """line => {
        const one = Object.assign(document.createElement("p"), { className: "warn" });
        const colour = getComputedStyle(line.parentNode.appendChild(one)).color;
        one.remove();
        return colour;
    }"""
    return line.evaluate(colour), line.evaluate(warning)


def test_diagnosis_that_finds_nothing_shows_its_answer(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    told, _ = _diagnose(tmp_path / "run", result, 0.0)
    page = show(tmp_path / "run")
    assert "Nothing stands out" in told
    assert page.get_by_text(told, exact=True).is_visible()
    assert page.get_by_text("There is no diagnosis").count() == 0
    # Neither does the page name anything to be changed.
    assert page.locator(".finding").count() == 0


@pytest.mark.parametrize(("share", "is_large"), [(0.02, False), (0.07, True)])
def test_what_measuring_took_stands_below_the_answer_as_in_the_terminal(
    show: Show, tmp_path: Path, share: float, is_large: bool
) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    told, took = _diagnose(tmp_path / "run", result, share)
    assert ("; " in took) == is_large  # what to do about it
    page = show(tmp_path / "run")
    lines = page.locator(".findings > *").all_inner_texts()
    assert lines == [told, took]
    colour, warning = _looks(page, took)
    assert (colour == warning) == is_large


def test_no_line_ends_within_an_option_of_a_command(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    _, took = _diagnose(tmp_path / "run", result, 0.07)
    page = show(tmp_path / "run")
    lines_at_each_width = """text => {
        const panel = document.querySelector(".findings");
        const line = [...panel.children].find(one => one.textContent === text);
        const walk = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
        const ranges = [];
        for (let node = walk.nextNode(); node; node = walk.nextNode()) {
            for (const { 0: option, index } of node.data.matchAll(/--[a-z]+/g)) {
                const range = new Range();
                range.setStart(node, index);
                range.setEnd(node, index + option.length);
                ranges.push(range);
            }
        }
        const widths = Array.from({ length: 60 }, (_, step) => 300 + 10 * step);
        return ranges.map(range => widths.map(width => {
            line.style.width = `${width}px`;
            return new Set([...range.getClientRects()].map(one => one.top)).size;
        }));
    }"""
    found = page.evaluate(lines_at_each_width, took)
    assert len(found) == took.count("--") > 1
    assert {lines for option in found for lines in option} == {1}


def _headings(page: Any) -> list[str]:
    return page.locator(".findings").get_by_role("heading").all_inner_texts()


def test_what_is_spent_once_stands_below_the_heading_of_the_terminal(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, _ = before
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    costly, last = findings[-2:]
    # By seconds it would stand before.
    assert (costly["once"], last["once"]) == (False, True)
    assert last["seconds"] > costly["seconds"]
    page = show(folder)
    assert _headings(page) == [SPENT_ONCE]
    above, below = page.get_by_role("list", name="Findings").all()
    assert above.get_by_role("button").count() == len(findings) - 1
    assert last["title"] in below.get_by_role("button").inner_text()
    assert below.locator(".number").inner_text() == str(len(findings))
    # Between the two, in reading order as on the screen.
    heading = page.get_by_role("heading", name=SPENT_ONCE)
    heading.scroll_into_view_if_needed()
    tops = [one.bounding_box()["y"] for one in (above, heading, below)]
    assert tops == sorted(tops)


def test_microseconds_are_spelled_as_in_the_terminal(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    cost = wording.seconds(result.total("wait_at_nxn"))
    assert cost.endswith(" us")
    page = show(folder)
    text = page.locator(".finding", has_text="Wait at N x N").inner_text().replace("\u202f", " ")
    assert re.search(r"\d us · ", text)
    assert "µ" not in text


def test_findings_of_older_analyses_have_no_heading(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    path = tmp_path / "run" / "findings.json"
    told = json.loads(path.read_text())
    older = [{key: one[key] for key in one if key != "once"} for one in told["findings"]]
    path.write_text(json.dumps({"answer": told["answer"], "findings": older}))
    page = show(tmp_path / "run")
    assert page.locator(".finding").count() == len(older)
    assert _headings(page) == []
    assert page.locator(".findings .warn").count() == 0


def test_notes_of_the_terminal_stand_below_what_measuring_took(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, _ = before
    told = json.loads((folder / "findings.json").read_text())
    (note,) = told["notes"]
    page = show(folder)
    lines = page.locator(".findings > p").all_inner_texts()
    assert lines == [
        " ".join(told["answer"]).replace("`", ""),
        told["measuring"]["text"],
        f"Note: {note}.",
    ]
    colour, warning = _looks(page, lines[2])
    assert colour == warning


def test_notes_are_shown_without_any_finding(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    (tmp_path / "run" / "findings.json").write_text(json.dumps({"notes": ["one <b>", "two"]}))
    page = show(tmp_path / "run")
    assert page.locator(".findings .warn").all_inner_texts() == ["Note: one <b>.", "Note: two."]


def test_both_of_a_comparison_tell_their_notes_and_what_is_spent_once(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result]
) -> None:
    folders = before[0], after[0]
    notes = [json.loads((one / "findings.json").read_text())["notes"][0] for one in folders]
    page = show(*folders)
    assert _headings(page) == ["Second: after", SPENT_ONCE, "First: before", SPENT_ONCE]
    assert page.get_by_role("heading", name=SPENT_ONCE, level=4).count() == 2
    shown = page.locator(".findings .warn").all_inner_texts()
    assert shown == [f"Note: {note}." for note in reversed(notes)]


def test_both_of_a_comparison_tell_what_measuring_took(show: Show, tmp_path: Path) -> None:
    told = []
    for name, share in (("first", 0.02), ("second", 0.07)):
        result = write_sample(tmp_path / name, ranks=4, steps=1, trace=False)
        told.append(_diagnose(tmp_path / name, result, share)[1])
    page = show(tmp_path / "first", tmp_path / "second")
    lines = page.locator(".findings > *").all_inner_texts()
    assert lines.index(told[0]) == lines.index("First: first") + 2
    assert lines.index(told[1]) == lines.index("Second: second") + 2


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
    table = page.get_by_role("table", name="What a receiver gets")
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
    _item(page, "Call paths", "read_mesh").click()
    page.get_by_text("read_mesh sends nothing here.").wait_for()
    page.get_by_role("button", name="Select the whole program").click()
    assert _item(page, "Call paths", "program").get_attribute("aria-selected") == "true"


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


# -- timeline -------------------------------------------------------------------------------------


def _message_in_the_middle(folder: Path, rank: int) -> tuple[float, float, int, int]:
    """Seconds of sending and receiving, sender and bytes of a message that a rank receives."""

    def events(of: int, kind: Kind) -> list[tuple[int, int, int]]:
        read = iterate(read_events(folder / f"rank-{of:05d}.0.events"))
        return [(tick, peer, int(words[1])) for tick, one, peer, words in read if one is kind]

    receives = events(rank, Kind.RECV)
    full = [place for place, (_, _, size) in enumerate(receives) if size]
    place = full[len(full) // 2]
    tick, sender, size = receives[place]
    # The n-th message between two ranks is the n-th for both.
    number = sum(peer == sender for _, peer, _ in receives[:place])
    sends = [tick for tick, peer, _ in events(sender, Kind.SEND) if peer == rank]
    return sends[number] / 1e9, tick / 1e9, sender, size


def test_timeline_zooms_from_the_run_to_one_message(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    page = show(folder, link="d=timeline")
    canvas = _timeline(page)
    begin, end = _shown(page)
    assert begin == 0
    assert end == pytest.approx(result.about["span"], abs=1e-6)
    sent, received, sender, size = _message_in_the_middle(folder, 4)
    zero = result.about["begin"]
    sent, received = sent - zero, received - zero
    box = canvas.bounding_box()

    def x_of(time: float) -> float:
        begin, end = _shown(page)
        return float(LABELS + (time - begin) / (end - begin) * (box["width"] - LABELS))

    page.keyboard.down("Control")
    for _ in range(30):
        page.mouse.move(box["x"] + x_of((sent + received) / 2), box["y"] + 60)
        label = canvas.get_attribute("aria-label")
        page.mouse.wheel(0, -300)
        page.wait_for_function(
            "label => document.querySelector('canvas.timeline').ariaLabel !== label", arg=label
        )
        begin, end = _shown(page)
        if end - begin < 3 * (received - sent):
            break
    page.keyboard.up("Control")
    assert begin < sent < received < end
    page.wait_for_timeout(500)
    page.wait_for_load_state("networkidle")
    # Rows of a rank and its stream follow each other.
    room = box["height"] - RULER - SLIDER
    row = min(26, max(7, room / 18))
    y = RULER + row * (2 * sender + 0.5), RULER + row * (2 * 4 + 0.5)
    canvas.hover(position={"x": (x_of(sent) + x_of(received)) / 2, "y": sum(y) / 2})
    tip = page.get_by_role("tooltip").inner_text().replace("\u202f", "")
    assert tip.startswith(f"message rank {sender} → rank 4")
    assert (f"{size}B" if size < 10_000 else f"{size / 1000:.2f}kB") in tip
    assert f"sent at {sent:.9f} s, received at {received:.9f} s" in tip


def test_timeline_says_what_is_under_the_pointer_and_selects_it(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    page = show(folder, link="d=timeline")
    canvas = _timeline(page)
    box = canvas.bounding_box()
    first = next(
        (tick / 1e9, payload)
        for tick, kind, payload, _ in iterate(read_events(folder / "rank-00000.0.events"))
        if kind is Kind.ENTER and result.path_of(payload)[-1] == "read_mesh"
    )
    begin, end = _shown(page)
    moment = first[0] - result.about["begin"] + 2e-4
    x = LABELS + (moment - begin) / (end - begin) * (box["width"] - LABELS)
    canvas.hover(position={"x": x, "y": RULER + 4})
    tip = page.get_by_role("tooltip").inner_text()
    assert tip.startswith("read_mesh\nrank 0 · program")
    canvas.click(position={"x": x, "y": RULER + 4})
    assert _item(page, "Call paths", "read_mesh").get_attribute("aria-selected") == "true"


def test_timeline_moves_with_keys_and_its_window_is_in_the_link(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], link="d=timeline")
    canvas = _timeline(page)
    canvas.focus()
    whole = _shown(page)
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(400)
    part = _shown(page)
    assert part[1] - part[0] == pytest.approx(0.6 * (whole[1] - whole[0]), rel=0.01)
    link = page.evaluate("location.hash").lstrip("#")
    other = show(before[0], link=link)
    _timeline(other)
    assert _shown(other) == pytest.approx(part)
    page.keyboard.press("Home")
    page.wait_for_timeout(200)
    assert _shown(page) == whole


def test_link_restores_the_timeline_and_how_panels_are_arranged(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], link="m=late_sender&c=program&d=timeline")
    _timeline(page)
    for name in ("Show callers above each other", "Draw messages as lines", "Shade wait states"):
        page.get_by_role("button", name=name).click()
    page.get_by_role("button", name="Dim what is not below the selected call path").click()
    for _ in range(4):
        page.keyboard.press("n")
    page.get_by_role("button", name="Higher rows (alt-wheel)").click()
    page.locator("#split-dock").press("ArrowUp")
    page.locator("#split-1").press("ArrowRight")
    page.locator("#split-2").press("ArrowLeft")
    canvas = page.locator("canvas.timeline")
    canvas.press("PageDown")
    canvas.press("ArrowUp")
    page.wait_for_timeout(400)
    before_large = page.locator("#pane-paths").bounding_box()
    page.get_by_role("button", name="Larger or smaller (m)").click()
    page.wait_for_timeout(400)
    link = page.evaluate("location.hash").lstrip("#")
    assert len(link) < 400
    assert {part[0] for part in link.split("&") if part[1] == "="} >= set("leyibx")
    pictures = []
    for one in (page, show(before[0], link=link)):
        one.wait_for_function("document.querySelector('.which').textContent.startsWith('4 of ')")
        one.wait_for_timeout(700)
        canvas = one.locator("canvas.timeline")
        told = [one.locator(".which").inner_text(), canvas.bounding_box(), _shown(one)]
        pressed = "buttons => buttons.map(one => one.getAttribute('aria-pressed'))"
        told.append(one.locator(".timeline-panel .strip button").evaluate_all(pressed))
        told.append(one.evaluate("location.hash").lstrip("#"))
        pictures.append((told, canvas.screenshot()))
    assert pictures[0][0] == pictures[1][0]
    # The same frame around the instance, the same rows, the same bars.
    assert pictures[0][1] == pictures[1][1]
    one.get_by_role("button", name="Larger or smaller (m)").click()
    one.wait_for_timeout(200)
    assert one.locator("#pane-paths").bounding_box() == before_large


@pytest.mark.parametrize(
    "link",
    [
        "l=zzzz&e=99&y=1e9&i=999999_0_1&b=2&x=1_2_3",
        "l=ssssssss&e=-1&y=-1&i=0_2_1&b=&x=500_505_420",
        "l=&e=0&y=NaN&i=0_Infinity_NaN&x=295_645_999",
        "y=9999999&i=1_1e308_1e308&x=" + "9" * 5000,
        "i=" + "_".join("1" * 900),
    ],
)
def test_arrangement_that_does_not_fit_is_left_as_usual(
    show: Show, before: tuple[Path, Result], link: str
) -> None:
    usual = "m=late_sender&c=program&d=timeline"
    page = show(before[0], link=f"{usual}&{link}")
    _timeline(page)
    kept = page.evaluate("location.hash")
    assert not {part[0] for part in kept.split("&") if part[1] == "="} & set("lebx")
    page.keyboard.press("n")
    page.wait_for_function("document.querySelector('.which').textContent.startsWith('1 of ')")


def test_measurement_without_a_trace_says_so(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    page = show(tmp_path / "run", link="d=timeline")
    page.get_by_text("holds no trace").wait_for()


def test_missing_rank_leaves_the_others_in_the_timeline(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1)
    (tmp_path / "run" / "rank-00002.0.events").unlink()
    (tmp_path / "run" / "rank-00002.def").unlink()
    page = show(tmp_path / "run", link="d=timeline")
    _timeline(page)
    assert len(open_measurement(tmp_path / "run").ranks) == 3
    assert "have no other end" in page.locator(".note").inner_text()


# -- comparison -------------------------------------------------------------------------------------


def test_comparison_shows_differences_by_metric_call_path_and_rank(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result]
) -> None:
    (folder, first), (other, second) = before, after
    page = show(folder, other, link="m=p2p_synchronisation&c=program/timestep/gmres/gather")
    page.wait_for_load_state("networkidle")
    name = "p2p_synchronisation"
    title = BY_NAME[name].title
    assert second.total(name) < first.total(name) / 10
    assert _value(page, "Metrics", title) == pytest.approx(second.total(name) - first.total(name))

    def whole(result: Result) -> Any:
        node = next(n for n in range(len(result.nodes)) if result.path_of(n)[-1] == "gather")
        return result.inclusive(result.value(name))[node]

    assert _value(page, "Call paths", "gather") == pytest.approx(
        whole(second).sum() - whole(first).sum()
    )
    page.wait_for_timeout(300)
    by_rank = _ranks(second, whole(second)) - _ranks(first, whole(first))
    for rank in range(9):
        assert _value(page, "System", f"rank {rank}") == pytest.approx(by_rank[rank])
    # As a share of the first measurement, and each of the two alone.
    page.get_by_role("combobox", name="Values of Metrics").select_option("root")
    share = 100 * (second.total(name) - first.total(name)) / first.total("time")
    assert _value(page, "Metrics", title) == pytest.approx(share)
    page.get_by_role("combobox", name="Values of Metrics").select_option("absolute")
    for view, result in (("0", first), ("1", second)):
        page.get_by_role("combobox", name="Measurement").select_option(view)
        assert _value(page, "Metrics", title) == pytest.approx(result.total(name))


def test_comparison_has_both_timelines_and_the_difference_of_the_maps(
    show: Show, before: tuple[Path, Result], after: tuple[Path, Result]
) -> None:
    (folder, first), (other, second) = before, after
    page = show(folder, other, link="d=timeline&m=time&c=program")
    _timeline(page)
    assert _shown(page)[1] == pytest.approx(second.about["span"], abs=1e-6)
    page.get_by_role("combobox", name="Timeline of").select_option("0")
    page.wait_for_timeout(500)
    _timeline(page)
    assert _shown(page)[1] == pytest.approx(first.about["span"], abs=1e-6)
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
    told = changes.first.inner_text().replace("\u202f", " ")
    assert re.search(r" → [^·]* · most in ", told)
    changes.first.click()
    chosen = _item(page, "Metrics", BY_NAME[greatest].title)
    assert chosen.get_attribute("aria-selected") == "true"
    assert _value(page, "Metrics", BY_NAME[greatest].title) == pytest.approx(change[greatest])
    # Both diagnoses follow, and keys go on from where the click was.
    assert page.get_by_role("list", name="Findings of the first").first.is_visible()
    assert changes.first.evaluate("button => button === document.activeElement")
    page.get_by_role("combobox", name="Measurement").select_option("0")
    assert page.get_by_role("list", name="Changes").count() == 0
