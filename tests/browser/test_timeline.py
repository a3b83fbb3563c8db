"""Claims about the panel of the timeline: zooming, the pointer, keys, links; and what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from explorer_panels import item, shown, timeline
from explorer_samples import write_sample

from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import Kind, iterate, read_events

Show = Callable[..., Any]

LABELS, RULER, SLIDER = 104, 18, 12  # of the timeline's canvas, in CSS pixels


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
    canvas = timeline(page)
    begin, end = shown(page)
    assert begin == 0
    assert end == pytest.approx(result.about["span"], abs=1e-6)
    sent, received, sender, size = _message_in_the_middle(folder, 4)
    zero = result.about["begin"]
    sent, received = sent - zero, received - zero
    box = canvas.bounding_box()

    def x_of(time: float) -> float:
        begin, end = shown(page)
        return float(LABELS + (time - begin) / (end - begin) * (box["width"] - LABELS))

    page.keyboard.down("Control")
    for _ in range(30):
        page.mouse.move(box["x"] + x_of((sent + received) / 2), box["y"] + 60)
        label = canvas.get_attribute("aria-label")
        page.mouse.wheel(0, -300)
        page.wait_for_function(
            "label => document.querySelector('canvas.timeline').ariaLabel !== label", arg=label
        )
        begin, end = shown(page)
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
    canvas = timeline(page)
    box = canvas.bounding_box()
    first = next(
        (tick / 1e9, payload)
        for tick, kind, payload, _ in iterate(read_events(folder / "rank-00000.0.events"))
        if kind is Kind.ENTER and result.path_of(payload)[-1] == "read_mesh"
    )
    begin, end = shown(page)
    moment = first[0] - result.about["begin"] + 2e-4
    x = LABELS + (moment - begin) / (end - begin) * (box["width"] - LABELS)
    canvas.hover(position={"x": x, "y": RULER + 4})
    tip = page.get_by_role("tooltip").inner_text()
    assert tip.startswith("read_mesh\nrank 0 · program")
    canvas.click(position={"x": x, "y": RULER + 4})
    assert item(page, "Call paths", "read_mesh").get_attribute("aria-selected") == "true"


def test_rows_without_room_are_scrolled_to(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=64, steps=1)
    page = show(tmp_path / "run", link="d=timeline")
    canvas = timeline(page)
    box = canvas.bounding_box()
    bottom = {"x": LABELS / 2, "y": box["height"] - SLIDER - 3}
    canvas.hover(position=bottom)
    assert page.get_by_role("tooltip").inner_text() != "rank 63"
    canvas.click(position={"x": box["width"] - 4, "y": box["height"] - SLIDER - 3})
    canvas.hover(position=bottom)
    assert page.get_by_role("tooltip").inner_text() == "rank 63"


def test_timeline_moves_with_keys_and_its_window_is_in_the_link(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], link="d=timeline")
    canvas = timeline(page)
    canvas.focus()
    whole = shown(page)
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(400)
    part = shown(page)
    assert part[1] - part[0] == pytest.approx(0.6 * (whole[1] - whole[0]), rel=0.01)
    link = page.evaluate("location.hash").lstrip("#")
    other = show(before[0], link=link)
    timeline(other)
    assert shown(other) == pytest.approx(part)
    page.keyboard.press("Home")
    page.wait_for_timeout(200)
    assert shown(page) == whole


def test_link_restores_the_timeline_and_how_panels_are_arranged(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], link="m=late_sender&c=program&d=timeline")
    timeline(page)
    for name in ("Show callers above each other", "Draw messages as lines", "Shade wait states"):
        page.get_by_role("button", name=name).click()
    page.get_by_role("button", name="Dim everything outside the selected call path").click()
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
        state = [one.locator(".which").inner_text(), canvas.bounding_box(), shown(one)]
        pressed = "buttons => buttons.map(one => one.getAttribute('aria-pressed'))"
        state.append(one.locator(".timeline-panel .strip button").evaluate_all(pressed))
        state.append(one.evaluate("location.hash").lstrip("#"))
        pictures.append((state, canvas.screenshot()))
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
    timeline(page)
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
    timeline(page)
    assert len(open_measurement(tmp_path / "run").ranks) == 3
    assert "have no counterpart" in page.locator(".note").inner_text()
