"""Claims about the panel of findings: answer, headings, notes, and what measuring took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from explorer_samples import write_sample

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import answer
from haloscope.scope.diagnosis import findings as wording
from haloscope.scope.diagnosis.conditions import Intrusion
from haloscope.scope.diagnosis.findings import SPENT_ONCE

Show = Callable[..., Any]


def _diagnose(folder: Path, result: Result, recording: float) -> tuple[str, str]:
    """Give a measurement a diagnosis that finds nothing; its answer, and what measuring took."""
    intrusion = replace(Intrusion.of(result), writing=0.0, preparing=0.0, is_at_least=False)
    intrusion = replace(intrusion, recording=recording * intrusion.time)
    sentences = answer(result, [])
    (folder / "findings.json").write_text(
        json.dumps({"answer": sentences, "measuring": intrusion.as_json(), "findings": []})
    )
    return " ".join(sentences), intrusion.sentence


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
    sentence, _ = _diagnose(tmp_path / "run", result, 0.0)
    page = show(tmp_path / "run")
    assert "No cause loses" in sentence
    assert page.get_by_text(sentence, exact=True).is_visible()
    assert page.get_by_text("There is no diagnosis").count() == 0
    # Neither does the page name anything to be changed.
    assert page.locator(".finding").count() == 0


@pytest.mark.parametrize(("share", "is_large"), [(0.02, False), (0.07, True)])
def test_what_measuring_took_stands_below_the_answer_as_in_the_terminal(
    show: Show, tmp_path: Path, share: float, is_large: bool
) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1, trace=False)
    sentences, took = _diagnose(tmp_path / "run", result, share)
    assert ("; " in took) == is_large  # what to do about it
    page = show(tmp_path / "run")
    lines = page.locator(".findings > *").all_inner_texts()
    assert lines == [sentences, took]
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
    lines_of_options = page.evaluate(lines_at_each_width, took)
    assert len(lines_of_options) == took.count("--") > 1
    assert {lines for option in lines_of_options for lines in option} == {1}


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
    document = json.loads(path.read_text())
    older = [{key: one[key] for key in one if key != "once"} for one in document["findings"]]
    path.write_text(json.dumps({"answer": document["answer"], "findings": older}))
    page = show(tmp_path / "run")
    assert page.locator(".finding").count() == len(older)
    assert _headings(page) == []
    assert page.locator(".findings .warn").count() == 0


def test_notes_of_the_terminal_stand_below_what_measuring_took(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, _ = before
    document = json.loads((folder / "findings.json").read_text())
    (note,) = document["notes"]
    page = show(folder)
    lines = page.locator(".findings > p").all_inner_texts()
    assert lines == [
        " ".join(document["answer"]).replace("`", ""),
        document["measuring"]["text"],
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
    sentences = []
    for name, share in (("first", 0.02), ("second", 0.07)):
        result = write_sample(tmp_path / name, ranks=4, steps=1, trace=False)
        sentences.append(_diagnose(tmp_path / name, result, share)[1])
    page = show(tmp_path / "first", tmp_path / "second")
    lines = page.locator(".findings > *").all_inner_texts()
    assert lines.index(sentences[0]) == lines.index("First: first") + 2
    assert lines.index(sentences[1]) == lines.index("Second: second") + 2
