"""Claims about the three panes: what they show, and how one moves in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer_panels import item, value
from explorer_samples import HOSTILE, write_sample

from haloscope.scope.analysis.result import FILE, Result
from haloscope.scope.trace.measurement import Location, Node, Region

Show = Callable[..., Any]


def _mode(page: Any, mode: str) -> None:
    page.get_by_role("combobox", name="Values of all panes").select_option(mode)


def _node(result: Result, *names: str) -> int:
    return next(n for n in range(len(result.nodes)) if result.path_of(n) == names)


def _ready(page: Any) -> None:
    """Values by location come a moment later."""
    page.wait_for_timeout(150)
    page.wait_for_load_state("networkidle")


GATHER = ("program", "timestep", "gmres", "gather", "MPI_Sendrecv")
LINK = "m=late_sender&c=" + "/".join(GATHER)


def test_page_shows_three_trees_and_a_search_box(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0])
    for name in ("Metrics", "Call paths", "System"):
        tree = page.get_by_role("tree", name=name, exact=True)
        assert tree.is_visible()
        assert tree.get_by_role("treeitem").count() > 1
    assert page.get_by_role("searchbox").is_visible()
    assert page.title() == "before · Haloscope explorer"


def test_closed_rows_are_inclusive_and_open_ones_exclusive(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    page = show(folder, link="m=time&c=program")
    inclusive = result.inclusive(result.value("time")).sum(axis=1)
    assert value(page, "Call paths", "program") == pytest.approx(inclusive[0])
    item(page, "Call paths", "program").dblclick()
    own = result.value("time").sum(axis=1)
    assert value(page, "Call paths", "program") == pytest.approx(own[0])
    step = _node(result, "program", "timestep")
    assert value(page, "Call paths", "timestep") == pytest.approx(inclusive[step])
    assert value(page, "Metrics", "Time") == pytest.approx(result.total("time"))
    item(page, "Metrics", "Time").locator(".twisty").click()
    assert value(page, "Metrics", "Time") == pytest.approx(result.exclusive("time").sum(), abs=1e-9)
    assert value(page, "Metrics", "Execution") == pytest.approx(result.total("execution"))


@pytest.mark.parametrize("mode", ["absolute", "root", "selection"])
def test_numbers_of_every_mode_equal_numpy(
    show: Show, before: tuple[Path, Result], mode: str
) -> None:
    folder, result = before
    page = show(folder, link=LINK)
    _mode(page, mode)
    _ready(page)
    node = _node(result, *GATHER)
    late = result.value("late_sender")
    root, metric, here = result.total("time"), late.sum(), late[node].sum()
    metrics = {"absolute": 1.0, "root": 100 / root, "selection": 100 / metric}[mode]
    paths = {"absolute": 1.0, "root": 100 / root, "selection": 100 / metric}[mode]
    system = {"absolute": 1.0, "root": 100 / root, "selection": 100 / here}[mode]
    assert value(page, "Metrics", "Late Sender") == pytest.approx(metric * metrics)
    assert value(page, "Metrics", "Computation") == pytest.approx(
        result.total("computation") * metrics
    )
    assert value(page, "Call paths", "MPI_Sendrecv") == pytest.approx(here * paths)
    by_rank = np.bincount([place.rank for place in result.locations], late[node])
    for rank in range(9):
        assert value(page, "System", f"rank {rank}") == pytest.approx(by_rank[rank] * system)


def test_panes_can_have_modes_of_their_own(show: Show, before: tuple[Path, Result]) -> None:
    folder, result = before
    page = show(folder, link=LINK)
    page.get_by_role("combobox", name="Values of Call paths").select_option("root")
    node = _node(result, *GATHER)
    share = 100 * result.value("late_sender")[node].sum() / result.total("time")
    assert value(page, "Call paths", "MPI_Sendrecv") == pytest.approx(share)
    assert value(page, "Metrics", "Late Sender") == pytest.approx(result.total("late_sender"))
    assert page.get_by_role("combobox", name="Values of all panes").input_value() == "own"


def test_path_of_the_greatest_values_opens_from_any_selection(
    show: Show, before: tuple[Path, Result]
) -> None:
    """From a call path where the metric is nothing one comes to the greatest values, too."""
    page = show(before[0], link="m=late_sender&c=program/MPI_Init")
    hottest = page.get_by_role("button", name="Open the path with the largest values")
    assert value(page, "Call paths", "MPI_Init") == 0
    hottest.click()
    chosen = page.get_by_role("tree", name="Call paths", exact=True).locator("[aria-selected=true]")
    assert "MPI_Sendrecv" in chosen.inner_text()
    assert float(chosen.get_attribute("data-value")) > 0


def test_system_pane_shows_the_selected_metric_and_call_path(
    show: Show, before: tuple[Path, Result]
) -> None:
    folder, result = before
    page = show(folder, link="m=time&c=program")
    item(page, "Call paths", "program").locator(".twisty").click()
    item(page, "Call paths", "read_mesh").click()
    item(page, "Metrics", "Visits").click()
    _ready(page)
    visits = result.value("visits")[_node(result, "program", "read_mesh")]
    for rank in range(9):
        assert value(page, "System", f"rank {rank}") == visits[2 * rank : 2 * rank + 2].sum()
    # A rank with a thread and a stream opens into both.
    item(page, "System", "rank 4").locator(".twisty").click()
    assert item(page, "System", "GPU 0 stream 7").is_visible()


def test_spread_over_ranks_equals_numpy(show: Show, before: tuple[Path, Result]) -> None:
    folder, result = before
    page = show(folder, link=LINK)
    _ready(page)
    values = result.value("late_sender")[_node(result, *GATHER)]
    ranks = np.bincount([place.rank for place in result.locations], values)
    numbers = page.get_by_role("group", name="Spread over ranks")
    for name, expected in (
        ("mean", ranks.mean()), ("deviation", ranks.std()), ("least", ranks.min()),
        ("most", ranks.max()),
    ):  # fmt: skip
        assert float(numbers.get_attribute(f"data-{name}")) == pytest.approx(expected)
    page.get_by_role("button", name=f"Select rank {ranks.argmax()}, the one with the most").click()
    assert item(page, "System", f"rank {ranks.argmax()}").get_attribute("aria-selected") == "true"
    for tab in ("Spread", "Topology"):
        page.get_by_role("tab", name=tab).click()
        picture = page.get_by_role("tabpanel", name=tab).get_by_role("img")
        assert picture.is_visible()
        page.wait_for_timeout(150)
        painted = picture.evaluate(
            "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0)"
        )
        assert painted
    label = page.get_by_role("tabpanel", name="Topology").get_by_role("img")
    assert "3 × 3" in label.get_attribute("aria-label")


def test_ranks_are_chosen_on_the_topology(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0], link=LINK + "&st=topology")
    _ready(page)
    grid = page.get_by_role("tabpanel", name="Topology").get_by_role("img")
    box = grid.bounding_box()
    size = min(64, (box["width"] - 12) / 3, (box["height"] - 22) / 3)
    grid.click(position={"x": 6 + 2.5 * size, "y": 6 + 1.5 * size})
    page.get_by_role("tab", name="Tree", exact=True).click()
    assert item(page, "System", "rank 5").get_attribute("aria-selected") == "true"


def test_trees_are_used_with_keys_alone(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0], link="m=time&c=program")
    page.keyboard.press("1")
    tree = page.get_by_role("tree", name="Metrics", exact=True)
    assert tree.evaluate("t => t === document.activeElement")
    page.keyboard.press("ArrowRight")
    assert item(page, "Metrics", "Time").get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert item(page, "Metrics", "Computation").get_attribute("aria-selected") == "true"
    active = tree.get_attribute("aria-activedescendant")
    assert page.locator(f"#{active}").get_attribute("aria-level") == "3"
    page.keyboard.press("ArrowLeft")
    assert item(page, "Metrics", "Execution").get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowLeft")
    assert item(page, "Metrics", "Execution").get_attribute("aria-expanded") == "false"
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert item(page, "Metrics", "Time").get_attribute("aria-selected") == "true"
    page.keyboard.press("2")
    page.keyboard.press("*")
    assert item(page, "Call paths", "timestep").is_visible()


def test_search_finds_metrics_call_paths_and_ranks(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0])
    page.keyboard.press("/")
    page.keyboard.type("barr")
    options = page.get_by_role("listbox", name="Matches").get_by_role("option")
    texts = options.all_inner_texts()
    assert any("Wait at Barrier" in text for text in texts)
    assert any("MPI_Barrier" in text and "timestep › update" in text for text in texts)
    options.filter(has_text="MPI_Barrier").click()
    chosen = item(page, "Call paths", "MPI_Barrier")
    assert chosen.get_attribute("aria-selected") == "true"
    page.get_by_role("searchbox").fill("wait at barrier")
    page.keyboard.press("Enter")
    assert item(page, "Metrics", "Wait at Barrier").get_attribute("aria-selected") == "true"
    page.get_by_role("searchbox").fill("rank 7")
    page.keyboard.press("Enter")
    assert item(page, "System", "rank 7").get_attribute("aria-selected") == "true"
    page.get_by_role("searchbox").fill("no such thing")
    assert page.get_by_text("no matches").is_visible()


def test_every_metric_has_its_help(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0], link=LINK)
    text = page.get_by_role("region", name="About the selected metric").inner_text()
    assert "min(enter of send, leave of receive)" in text
    assert "Send earlier, receive later" in text
    assert "enters the call" not in text
    # Formulas with B and E come with what these stand for.
    page = show(before[0], link="m=wait_at_barrier")
    text = page.get_by_role("region", name="About the selected metric").inner_text()
    assert "min(max B, E) - B" in text
    assert "B: time at which a rank enters the call, E: time at which it leaves it" in text


def test_scale_of_nothing_is_in_the_units_of_people(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], link="m=mpi_io&c=program")
    scale = page.locator("#pane-paths").get_by_role("img")
    assert scale.get_attribute("aria-label") == "Scale of Call paths: 0 to 0 to 0 s"


def test_values_that_are_alike_are_one_bar_in_the_middle(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], link="m=visits&c=program/read_mesh&st=distribution")
    _ready(page)
    picture = page.get_by_role("tabpanel", name="Spread").get_by_role("img")
    box = picture.bounding_box()
    picture.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
    assert page.get_by_role("tooltip").inner_text().startswith("9 ranks")
    picture.hover(position={"x": box["width"] / 4, "y": box["height"] / 2})
    assert page.get_by_role("tooltip").inner_text().startswith("0 ranks")


def test_about_tells_what_was_run_and_how_efficient_it_was(show: Show, tmp_path: Path) -> None:
    result = write_sample(tmp_path / "run", ranks=4, steps=1)
    result.about.update(
        command=["mpiexec", "-n", "4", "./solver"], options={"mode": "trace", "filter": []},
        pop={"parallel_efficiency": 0.72, "load_balance": 0.9, "transfer_efficiency": 0.8},
    )  # fmt: skip
    result.save(tmp_path / "run" / FILE)
    page = show(tmp_path / "run", link="d=about")
    text = page.get_by_role("tabpanel", name="About").inner_text().replace("\u202f", " ")
    assert "mpiexec -n 4 ./solver" in text
    assert "parallel efficiency 72.0 % = load balance 90.0 % × transfer 80.0 %" in text
    assert "mode trace" in text
    assert "{" not in text


def test_link_restores_the_view(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0], link=LINK)
    item(page, "Metrics", "Late Sender").locator(".twisty").click()
    page.get_by_role("combobox", name="Values of System").select_option("selection")
    item(page, "System", "rank 2").click()
    page.get_by_role("tab", name="Communication").click()
    page.get_by_role("combobox", name="Quantity of the map").select_option("seconds")
    page.get_by_role("button", name="Hide rows that are zero everywhere").click()
    page.wait_for_timeout(400)
    link = page.evaluate("location.hash").lstrip("#")

    other = show(before[0], link=link)
    _ready(other)
    for tree, name in (
        ("Metrics", "Late Sender"), ("Call paths", "MPI_Sendrecv"), ("System", "rank 2"),
    ):  # fmt: skip
        assert item(other, tree, name).get_attribute("aria-selected") == "true"
    assert item(other, "Metrics", "Late Sender").get_attribute("aria-expanded") == "false" or (
        value(other, "Metrics", "Late Sender") == value(page, "Metrics", "Late Sender")
    )
    assert other.get_by_role("combobox", name="Values of System").input_value() == "selection"
    assert other.get_by_role("combobox", name="Quantity of the map").input_value() == "seconds"
    zeros = other.get_by_role("button", name="Hide rows that are zero everywhere")
    assert zeros.get_attribute("aria-pressed") == "true"
    other.wait_for_timeout(400)
    assert other.evaluate("location.hash").lstrip("#") == link


@pytest.mark.parametrize(
    "link", ["m=nothing", "c=%E0%A4%A", "c=../..&t=1_0&k=9_1_0_0&p=xyz&co=zz-0", "&&&=", "m=time&r=zzzz"]
)  # fmt: skip
def test_broken_link_shows_the_page_all_the_same(
    show: Show, before: tuple[Path, Result], link: str
) -> None:
    page = show(before[0], link=link)
    assert item(page, "Metrics", "Time").is_visible()


def test_names_from_a_hostile_trace_are_text(show: Show, tmp_path: Path) -> None:
    write_sample(tmp_path / "run", ranks=4, steps=1, streams=True, hostile=True)
    page = show(tmp_path / "run", link="m=time&c=program&co=0")
    page.get_by_role("button", name="Open all call paths").click()
    name = item(page, "Call paths", HOSTILE)
    assert name.is_visible()
    name.hover()
    name.click()
    assert page.get_by_role("tooltip").inner_text().startswith(HOSTILE)
    # What would turn the direction of writing or ring a bell is shown as a sign for it.
    assert item(page, "Call paths", "evil\ufffdname\ufffd\ufffd").is_visible()
    for tab in ("Findings", "Timeline", "Communication", "About"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(200)
    page.get_by_role("tab", name="Findings").click()
    page.locator(".finding").first.click()
    page.keyboard.press("/")
    page.keyboard.type("img src")
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1


def test_dark_and_light_follow_the_system_until_one_is_chosen(
    show: Show, before: tuple[Path, Result]
) -> None:
    page = show(before[0], dark=True)

    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(",")[:3])

    assert brightness() < 120
    choice = page.get_by_role("combobox", name="Light or dark")
    choice.select_option("light")
    assert brightness() > 600
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert brightness() > 600
    choice.select_option("system")
    assert brightness() < 120


def test_everything_fits_a_small_screen(show: Show, before: tuple[Path, Result]) -> None:
    page = show(before[0])
    for tab in ("Findings", "Timeline", "Communication", "About"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(100)
        wide, tall = page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        assert (wide, tall) == (1280, 720)
    bar = page.locator("#bar > *")
    edges = [bar.nth(n).bounding_box() for n in range(bar.count())]
    edges = [box for box in edges if box["width"] > 0]
    for left, right in itertools.pairwise(edges):
        assert left["x"] + left["width"] <= right["x"] + 1


def test_tree_of_thousands_makes_only_the_rows_in_sight(show: Show, tmp_path: Path) -> None:
    ranks, nodes = 3000, 800
    result = Result(
        {}, ranks, [Region("p"), Region("f")],
        [Node(-1, 0)] + [Node(0, 1, str(site)) for site in range(nodes - 1)], [],
        [Location(rank, 0) for rank in range(ranks)],
        {"time": np.random.default_rng(1).random((nodes, ranks))},
    )  # fmt: skip
    result.save(tmp_path / FILE)
    page = show(tmp_path)
    tree = page.get_by_role("tree", name="System", exact=True)
    assert tree.get_by_role("treeitem").count() < 100
    page.keyboard.press("3")
    page.keyboard.press("End")
    last = item(page, "System", "rank 2999")
    assert last.is_visible()
    assert last.get_attribute("aria-setsize") == "3000"
    _ready(page)
    assert value(page, "System", "rank 2999") == pytest.approx(result.value("time")[:, 2999].sum())
