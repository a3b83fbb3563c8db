"""Claims about what people read: the answer first, evidence after it, whatever names may hold."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haloscope.scope import maps, report
from haloscope.scope.analysis.metrics import NUMBER, with_ancestors
from haloscope.scope.analysis.result import PAIRS, WAITS, Result
from haloscope.scope.diagnosis import diagnose, findings
from haloscope.scope.diagnosis.findings import SPENT_ONCE
from haloscope.scope.maps.placement import suggest
from haloscope.scope.report import Analysis, comparison
from haloscope.scope.trace.measurement import Communicator, Location, Node, Region

RANKS = 4
WORK, EXCHANGE, SENDRECV, BARRIER = 1, 2, 3, 4


def _result(
    empty_seconds: float = 3.0, work: str = "work", ranks: int = RANKS, **about: Any
) -> Result:
    """Rank 3 works longer; an exchange of all pairs of which only the neighbours have data."""
    regions = [
        Region("program", "program"),
        Region(work, "function"),
        Region("exchange", "function"),
        Region("MPI_Sendrecv", "mpi", "sendrecv"),
        Region("MPI_Barrier", "mpi", "barrier"),
    ]
    nodes = [Node(-1, 0), Node(0, 1), Node(0, 2), Node(2, 3), Node(2, 4)]
    values: dict[str, np.ndarray[Any, np.dtype[np.float64]]] = {}

    def put(metric: str, node: int, rank: int, value: float) -> None:
        for name in with_ancestors(metric):
            values.setdefault(name, np.zeros((len(nodes), ranks)))[node, rank] += value

    waits, pairs = [], []
    for rank in range(ranks):
        last = rank == ranks - 1
        put("computation", WORK, rank, 6.0 if last else 4.0)
        put("visits", WORK, rank, 10)
        if empty_seconds:
            put("p2p_synchronisation", SENDRECV, rank, empty_seconds)
        put("p2p_communication", SENDRECV, rank, 0.5)
        if not last:
            put("wait_at_barrier", BARRIER, rank, 2.0)
            waits.append(
                (NUMBER["wait_at_barrier"], BARRIER, rank, ranks - 1, BARRIER, WORK, 1.0, 3.0)
            )
        for other in range(ranks):
            near = abs(rank - other) == 1
            if other == rank or not (near or empty_seconds):
                continue
            put("messages_sent" if near else "empty_messages_sent", SENDRECV, rank, 10)
            put("bytes_sent", SENDRECV, rank, 8000 if near else 0)
            pairs.append((SENDRECV, rank, other, 10, 0 if near else 10, 8000 * near, 0.1, 0.1))
    put("delay_short", WORK, ranks - 1, 2.0 * (ranks - 1))
    sizes = np.zeros((len(nodes), 66), np.int64)
    sizes[SENDRECV, [0, 10]] = 60, 60
    about = {
        "mode": "trace",
        "span": 9.5,
        "events": 1234,
        "pop": {"parallel_efficiency": 0.5, "load_balance": 0.8, "communication_efficiency": 0.6},
        "command": ["mpiexec", "-n", str(ranks), "./a.out"],
        **about,
    }
    return Result(
        about,
        ranks,
        regions,
        nodes,
        [Communicator("k", tuple(range(ranks)), (), "grid", (2, ranks // 2), (0, 0))],
        [Location(rank, 0) for rank in range(ranks)],
        values,
        np.array(pairs, PAIRS),
        sizes,
        np.array(waits, WAITS),
    )


def _analysis(result: Result, hosts: tuple[str, ...] = ("n0", "n1", "n0", "n1")) -> Analysis:
    traffic = maps.whole_run(result)
    return Analysis(
        "mpiexec -n 4 ./a.out",
        result,
        diagnose(result),
        hosts,
        traffic,
        maps.routines(result),
        maps.distances(traffic, hosts, result.comms),
        suggest(traffic, hosts),
        [("whole run", "map", "maps/map.png"), ("whole run", "receivers", "maps/receivers.png")],
        files={"result": "analysis.h5"},
    )


def _section(page: str, title: str) -> str:
    return page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_report_begins_with_the_answer_and_goes_on_with_the_findings() -> None:
    analysis = _analysis(_result())
    page = report.page(analysis)
    lines = page.splitlines()
    assert lines[0] == "# Where `mpiexec -n 4 ./a.out` spends its time"
    assert lines[2] == " ".join(analysis.answer)
    assert lines[4] == analysis.intrusion.sentence
    assert lines[6] == "## Findings"
    assert "### 1. 50 % of all messages are empty" in page
    assert "### 2. Rank 3 takes longer in `work` than other ranks" in page
    assert page.index("### 1.") < page.index("### 2.") < page.index("## Time by metric")


def test_report_has_the_tree_of_time_with_extremes_of_ranks() -> None:
    tree = _section(report.page(_analysis(_result())), "Time by metric")
    assert "| Time | 38 s | 100 % | 9.5 s (0) | 9.5 s (0) |" in tree
    assert "Point-to-point synchronisation | 12 s | 32 % | 3 s (0) | 3 s (0) |" in tree
    assert "Wait at Barrier | 6 s | 16 % | 0 s (3) | 2 s (0) |" in tree
    assert "File I/O" not in tree
    assert "| = load balance | 80 % |" in tree


def test_report_lists_call_paths_messages_ranks_and_measurement() -> None:
    page = report.page(_analysis(_result()))
    assert "| `work` | 18 s | 47 % | 40 | 6 s (3) |  | 6 s |" in _section(page, "Call paths")
    messages = _section(page, "Messages")
    assert "120 messages with 48 kB; 60 of them (50 %) are empty." in messages
    assert (
        "50 % of 12 pairs of ranks exchange no data; 50 % exchange only empty messages." in messages
    )
    assert "![communication matrix: whole run](maps/map.png)" in messages
    assert "| up to 512 B | 60 | 50 % |" in messages
    assert "| `exchange` | 120 | 50 % | 48 kB |" in messages
    assert "On the 2 x 2 grid of `grid`, a byte travels" in messages
    assert "| Computation | 4 s (0) | 4.5 s | 6 s (3) | 1.33 |" in _section(page, "Ranks")
    assert "- 4 ranks on 2 hosts" in _section(page, "The measurement")


def test_better_placement_is_told_with_the_commands_that_use_it() -> None:
    analysis = _analysis(_result())
    assert analysis.placement is not None
    page = report.page(analysis)
    assert "16 kB instead of 48 kB would cross hosts (67 % less)" in page
    assert "mpiexec -f maps/placement-hosts.txt" in page
    alone = report.page(_analysis(_result(), hosts=("n0",) * 4))
    assert "placement" not in alone


def test_partial_measurement_is_said_at_the_top_with_reasons_below() -> None:
    page = report.page(_analysis(_result(partial=True, warnings=["rank 7 is <missing>"])))
    assert "> **Partial.**" in page.split("## ")[0]
    assert "- rank 7 is &lt;missing&gt;" in _section(page, "The measurement")
    assert "Partial" not in report.page(_analysis(_result()))


def test_findings_without_waits_and_messages_leave_no_empty_tables() -> None:
    result = _result()
    result.values = {
        name: values
        for name, values in result.values.items()
        if name in ("time", "execution", "computation", "visits")
    }
    result.pairs, result.waits = np.zeros(0, PAIRS), np.zeros(0, WAITS)
    page = report.page(_analysis(result))
    assert "## Messages" not in page
    assert "waits in it" not in page


@pytest.mark.parametrize("colour", [False, True])
def test_terminal_has_80_columns_and_all_findings(colour: bool) -> None:
    analysis = _analysis(_result(partial=True, warnings=["rank 9 is missing"]))
    text = report.show(analysis, colour=colour)
    bare = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert ("\x1b" in text) == colour
    assert max(map(len, bare.splitlines()[:-1])) <= 80
    joined = " ".join(bare.split())
    for one in analysis.findings:
        assert one.title in joined
        assert one.remedy in joined
    assert "partial: rank 9 is missing" in bare
    assert "result: analysis.h5" in bare


EVIL = "f`x|y\x1b]0;owned\x07\n# <img src=x onerror=alert(1)> [a](javascript:b) [bold]"


def test_heading_stands_once_above_those_that_are_spent_once() -> None:
    analysis = _analysis(_result())
    assert len(analysis.findings) > 1
    for page in (report.page(analysis), report.show(analysis, colour=False)):
        assert SPENT_ONCE not in page
    analysis.findings[-1].once = True
    title = analysis.findings[-1].title
    for page in (report.page(analysis), report.show(analysis, colour=False)):
        below = page.split(f"\n\n{SPENT_ONCE}\n\n")[1]
        assert title in below.split("\n", 1)[0]


def test_names_of_a_hostile_trace_are_text_in_report_and_terminal() -> None:
    analysis = replace(_analysis(_result(work=EVIL)), name=EVIL)
    page = report.page(analysis)
    text = report.show(analysis, colour=False)
    assert "\x1b" not in page + text
    assert "\x07" not in page + text
    # Outside of code nothing of the name is left, and code ends where it began.
    outside = re.sub(r"`[^`\n]*`", "", page)
    assert "onerror" not in outside
    assert "javascript" not in outside
    assert "`" not in outside
    for line in page.splitlines():
        if line.startswith("| "):
            cells = len(re.findall(r"(?<!\\)\|", line))
            assert cells in (4, 5, 6, 7, 8), line
    assert "[bold]" in text


def test_comparison_tells_what_fell_what_rose_and_where() -> None:
    before, after = _result(3.0), _result(0.0, span=6.5)
    difference = comparison.compare(before, after, ("all pairs", "neighbours"))
    words = " ".join(comparison.sentences(difference))
    assert "6.5 s instead of 9.5 s: 1.46 times as fast as before" in words
    assert "Less: Point-to-point synchronisation (12 s to 0 s, -100 %)" in words
    assert "largest in `exchange` (20 s to 8 s)" in words
    assert "Empty messages: 60 before, 0 now." in words
    assert difference.paths[0].name == "exchange"
    page = comparison.page(difference)
    assert page.startswith("# `neighbours` compared with `all pairs`\n")
    assert "| `exchange` | 20 s | 8 s | -12 s | -60 % | Point-to-point synchronisation |" in page


def test_comparison_matches_routines_whose_mpi_functions_have_changed() -> None:
    before, after = _result(), _result()
    after.regions = [
        replace(region, name=region.name.replace("Sendrecv", "Isend")) for region in after.regions
    ]
    after.nodes = [*after.nodes, Node(0, 1, "elsewhere")]
    after.values = {
        name: np.vstack([values, np.zeros((1, RANKS))]) for name, values in after.values.items()
    }
    difference = comparison.compare(before, after, ("a", "b"))
    assert all(one.change == 0 for one in difference.paths)
    assert "No metric of time changed much." in comparison.sentences(difference)


def test_comparison_of_different_numbers_of_ranks_uses_means_of_a_rank() -> None:
    difference = comparison.compare(_result(), _result(ranks=8), ("4", "8"))
    assert difference.per_rank
    changes = {one.name: one for one in difference.metrics}
    assert changes["p2p_synchronisation"].before == pytest.approx(3.0)
    assert changes["p2p_synchronisation"].after == pytest.approx(3.0)
    assert "Ranks differ (4 and 8)" in " ".join(comparison.sentences(difference))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (3.2e-9, "3.2 ns"),
        (9.999e-7, "1 us"),
        (0.0123, "12.3 ms"),
        (0.9999, "1 s"),
        (47352.0, "47,352 s"),
        (float("nan"), "?"),
    ],
)
def test_seconds_are_spelled_with_three_digits_and_a_fitting_unit(value: float, text: str) -> None:
    assert findings.seconds(value) == text


@pytest.mark.parametrize(
    ("numbers", "of", "text"),
    [
        ([3], 8, "rank 3"),
        ([0, 1, 2, 3], 8, "ranks 0-3"),
        ([0, 1, 4], 8, "ranks 0, 1 and 4"),
        (range(8), 8, "all 8 ranks"),
        ([0], 1, "rank 0"),
        (range(0, 40, 2), 64, "20 ranks (0, 2, 4, ...)"),
        ([], 8, "no rank"),
    ],
)
def test_ranks_are_spelled_shortly(numbers: Any, of: int, text: str) -> None:
    assert findings.ranks(numbers, of) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.96, "96 %"), (0.9996, "99.96 %"), (1.0, "100 %"), (0.0004, "under 0.1 %"), (0.0, "0 %")],
)
def test_shares_are_never_rounded_to_all_or_nothing(share: float, text: str) -> None:
    assert findings.percent(share) == text


def test_sizes_of_messages_have_the_units_of_all_other_sizes() -> None:
    result = _result()
    result.sizes[SENDRECV, 11] = 60  # more than 512 bytes, at most 1024
    page = report.page(_analysis(result))
    assert "| up to 1.02 kB | 60 |" in page
    assert not re.search(r"\d [KMGT]iB", page)


def test_sizes_and_counts_are_shortened_with_units() -> None:
    assert findings.size(9.6e6) == "9.6 MB"
    assert findings.size(512) == "512 B"
    assert findings.count(27_000) == "27,000"
    assert findings.count(23e9) == "23 G"


def test_fewest_ranks_that_make_up_the_bulk_are_named() -> None:
    assert findings.most_of(np.array([1.0, 90.0, 1.0, 8.0])) == [1]
    assert findings.most_of(np.array([50.0, 0.0, 50.0])) == [0, 2]
    assert findings.most_of(np.zeros(3)) == []


def test_page_of_metrics_is_what_the_code_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "docs" / "generate_reference.py"
    specification = importlib.util.spec_from_file_location("generate_reference", path)
    assert specification is not None
    assert specification.loader is not None
    generator = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "generate_reference", generator)
    specification.loader.exec_module(generator)
    written = generator.METRICS_PAGE.read_text(encoding="utf-8")
    assert written == generator.metrics_page(), "run: python docs/generate_reference.py"
