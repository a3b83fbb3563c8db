"""Claims about the timeline: what is innermost when, tiles against brute force, messages' ends."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from explorer_samples import write_sample
from numpy.typing import NDArray
from refusals import refused
from synthetic_traces import write_synthetic

from haloscope.scope.explorer import preparation
from haloscope.scope.explorer.preparation import Preparing, TimelineView, prepare
from haloscope.scope.explorer.report import Report
from haloscope.scope.explorer.timeline import (
    BINS,
    EXACT,
    FACTOR,
    Timeline,
    levels,
)
from haloscope.scope.replay import causal
from haloscope.scope.replay.causal import match_messages
from haloscope.scope.trace import measurement as clocks
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import (
    NOTHING,
    WORDS_OF_KIND,
    DefinitionsWriter,
    EventsWriter,
    Kind,
    Position,
    decode,
    iterate,
    read_events,
    read_pieces,
    segments,
)


def _by_hand(path: Path, table: list[int]) -> list[tuple[int, int]]:
    """Tick and innermost node after every change, one event after the other."""
    stack: list[int] = []
    changes = []
    for tick, kind, payload, _ in iterate(read_events(path)):
        if kind is Kind.ENTER:
            stack.append(table[payload] if payload < len(table) else NOTHING)
        elif kind is Kind.PAUSE:
            stack.append(NOTHING)
        elif kind in (Kind.LEAVE, Kind.RESUME):
            if stack:
                stack.pop()
        else:
            continue
        changes.append((tick, stack[-1] if stack else NOTHING))
    return changes


def _random_events(folder: Path, count: int, seed: int) -> Path:
    """Random nesting with messages between, long pauses of the clock, and a pause."""
    random = np.random.default_rng(seed)
    tick, depth, paused = 5_000, 0, False
    with EventsWriter(folder, 0, 0, 5_000) as writer:
        for number in range(count):
            tick += int(random.integers(0, 40)) if number % 97 else 1 << 30
            choice = random.random()
            if choice < 0.1:
                writer.write(tick, Kind.SEND, 0, (random.integers(1 << 40), 64 + number))
            elif choice < 0.2:
                writer.write(tick, Kind.IRECV_DONE, 0, (int(random.integers(1 << 63)), 9, 2))
            elif paused:
                writer.write(tick, Kind.RESUME)
                paused = False
            elif choice < 0.22:
                writer.write(tick, Kind.PAUSE)
                paused = True
            elif choice < 0.6 or depth == 0:
                writer.write(tick, Kind.ENTER, int(random.integers(0, 9)))
                depth += 1
            else:
                writer.write(tick, Kind.LEAVE, 0)
                depth -= 1
    return folder / "rank-00000.0.events"


# -- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("words", [1 << 20, 64, 7])
def test_innermost_nodes_are_those_of_a_stack(tmp_path: Path, seed: int, words: int) -> None:
    path = _random_events(tmp_path, 700, seed)
    table = [3, 1, 4, 1, 5, 9, 2, -1]  # the ninth node is not defined
    stack: list[int] = []
    changes: list[tuple[int, int]] = []
    for piece in read_pieces(path, words):
        ticks, nodes = segments(piece, stack, np.array(table))
        changes += zip(ticks.tolist(), nodes.tolist(), strict=True)
    assert changes == _by_hand(path, table)


def test_reading_can_begin_at_any_piece(tmp_path: Path) -> None:
    path = _random_events(tmp_path, 900, 11)
    table, stack = np.arange(9), []
    begun, whole = [], []
    for piece in read_pieces(path, 50):
        begun.append((piece.begin, list(stack), len(whole)))
        ticks, nodes = segments(piece, stack, table)
        whole += list(zip(ticks.tolist(), nodes.tolist(), strict=True))
    for begin, open_nodes, known in begun[:: len(begun) // 7]:
        rest: list[tuple[int, int]] = []
        for piece in read_pieces(path, 50, begin):
            ticks, nodes = segments(piece, open_nodes, table)
            rest += zip(ticks.tolist(), nodes.tolist(), strict=True)
        assert rest == whole[known:]


def test_more_left_than_entered_is_taken_as_nothing_open(tmp_path: Path) -> None:
    with EventsWriter(tmp_path, 0) as writer:
        for tick, kind, node in [
            (1, Kind.LEAVE, 3), (2, Kind.LEAVE, 2), (3, Kind.ENTER, 1), (4, Kind.LEAVE, 1),
            (5, Kind.LEAVE, 0), (6, Kind.ENTER, 4),
        ]:  # fmt: skip
            writer.write(tick, kind, node)
    path = tmp_path / "rank-00000.0.events"
    stack: list[int] = []
    innermost = [
        node
        for piece in read_pieces(path, 4)
        for node in segments(piece, stack, np.arange(9))[1].tolist()
    ]
    assert innermost == [NOTHING, NOTHING, 1, NOTHING, NOTHING, 4]
    assert stack == [4]


@pytest.mark.parametrize("seed", range(20))
def test_first_words_are_found_among_words_that_look_alike(seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = np.flatnonzero(WORDS_OF_KIND >= 0)[2:27]
    words: list[int] = []
    expected = []
    for kind in random.choice(kinds, 300).tolist():
        expected.append(len(words))
        words.append(int(kind) | int(random.integers(1, 1 << 50)) << 6)
        further = random.integers(0, 36, int(WORDS_OF_KIND[kind]))  # each looks like an event
        words += [int(word) for word in further]
    events = decode(np.array(words, np.uint64), 0, Position(0, 0))
    assert events.whole
    torn = WORDS_OF_KIND[words[expected[-1]] & 63]
    assert events.end.offset == len(words)
    assert events.starts.tolist() == expected
    # Without its last word, the last event waits for the next piece.
    events = decode(np.array(words[:-1], np.uint64), 0, Position(0, 0))
    assert events.whole == (not torn)
    assert events.end.offset == (expected[-1] if torn else len(words) - 1)


@pytest.mark.parametrize(
    "damage", [0, 64, 30, 40, 63, 1], ids=["zero", "end", "gap", "beyond", "last", "back in time"]
)
def test_stream_ends_at_a_word_that_is_no_event(damage: int) -> None:
    words = np.array([int(Kind.ENTER) | 64, int(Kind.LEAVE) | 64, damage, int(Kind.ENTER)], "<u8")
    events = decode(words, 0, Position(0, 0))
    assert events.starts.tolist() == [0, 1]
    assert events.whole == (damage == 0)
    assert events.end == Position(2, 2)


# -- tiles ----------------------------------------------------------------------------------------


def test_tiles_hold_what_takes_most_of_each_bin_and_what_comes_next() -> None:
    random = np.random.default_rng(4)
    # A dense stretch in the middle and a sparse end: levels differ from place to place.
    times = np.sort(np.concatenate([random.random(3000) * 100, 40 + random.random(9000) * 2]))
    times[0] = 0.0
    nodes = random.integers(-1, 6, len(times))
    ends = np.append(times[1:], 100.0)
    made = list(levels(times, nodes, 0.0, 100.0))
    assert [one.level for one in made] == list(range(len(made)))
    assert len(made) >= 3
    for one in made:
        width = 100.0 / FACTOR**one.level
        for row, number in enumerate(one.numbers.tolist()):
            begun = ((times >= number * width) & (times < (number + 1) * width)).sum()
            assert begun > EXACT
            for bin_ in random.integers(0, BINS, 12).tolist():
                low = (number + bin_ / BINS) * width
                high = low + width / BINS
                part = np.clip(np.minimum(ends, high) - np.maximum(times, low), 0, None)
                sums = np.bincount(nodes + 1, part, 8) / (high - low)
                order = np.argsort(-sums)
                assert sums[one.nodes[row, bin_] + 1] == pytest.approx(sums[order[0]], abs=1e-6)
                assert one.shares[row, bin_] / 255 == pytest.approx(sums[order[0]], abs=0.003)
                if sums[order[1]] > 1e-6:
                    next_share = sums[one.seconds[row, bin_] + 1]
                    assert next_share == pytest.approx(sums[order[1]], abs=1e-6)
                else:
                    assert one.seconds[row, bin_] == one.nodes[row, bin_]


def test_few_segments_need_no_tiles() -> None:
    times = np.linspace(0, 1, EXACT)
    assert list(levels(times, np.zeros(EXACT, np.int64), 0.0, 1.0)) == []


# -- prepared timelines -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of four ranks, some ten thousand events each."""
    folder = tmp_path_factory.mktemp("dense")
    write_synthetic(
        folder, 4, 900, pattern="all-pairs", imbalance=0.3, jitter=0.4, functions=1, work=4000
    )
    return folder


def _open(folder: Path) -> Timeline:
    return Timeline(folder, prepare(folder))


def _truth(folder: Path, rank: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """All segments of a rank's first thread, in seconds of the run's clock."""
    measurement = open_measurement(folder)
    table = measurement.ranks[rank].nodes.tolist()
    changes = np.array(_by_hand(folder / f"rank-{rank:05d}.0.events", table), np.int64)
    rate, zero = clocks.line_through(measurement, rank)
    return changes[:, 0] * rate + zero, changes[:, 1]


def test_any_stretch_reads_as_the_whole_file_does(dense: Path) -> None:
    timeline = _open(dense)
    random = np.random.default_rng(8)
    for rank in range(4):
        times, nodes = _truth(dense, rank)
        for _ in range(40):
            begin = timeline.begin + random.random() * timeline.span
            end = begin + 10 ** random.uniform(-7, -1) * timeline.span
            at, node = timeline.segments(rank, begin, end)
            lower = max(int(np.searchsorted(times, begin, "right")) - 1, 0)
            upper = int(np.searchsorted(times, end, "left"))
            assert np.allclose(at[: upper - lower], times[lower:upper], rtol=0, atol=2e-9)
            assert node[: upper - lower].tolist() == nodes[lower:upper].tolist()


def test_tile_of_few_segments_stands_for_all_below_it(dense: Path) -> None:
    timeline = _open(dense)
    assert len(timeline.keys) > 8
    for rank in range(4):
        times, _ = _truth(dense, rank)
        for level, number in [(0, 0), (2, 7), (5, 600), (9, 200_000), (15, 10**9)]:
            found_level, found_number, row = timeline.tile(rank, level, number)
            begin, end = timeline.times_of(found_level, found_number)
            inside = int(((times >= begin) & (times < end)).sum())
            assert found_number == number // FACTOR ** (level - found_level)
            assert (row >= 0) == (inside > EXACT)
            assert row < 0 or found_level == level


def test_bins_are_read_in_the_numbers_of_the_report(dense: Path) -> None:
    from haloscope.scope.analysis.result import FILE, Result

    measurement = open_measurement(dense)
    result = Result.empty(measurement)
    # A report whose nodes are numbered in another way than the trace's.
    order = [0, *range(len(result.nodes) - 1, 0, -1)]
    numbers = {old: new for new, old in enumerate(order)}
    parents = {old: numbers[result.nodes[old].parent] for old in order[1:]}
    swap = [node for node in order if node == 0 or parents[node] < numbers[node]]
    late = [node for node in order if node not in swap]
    order = swap + late
    numbers = {old: new for new, old in enumerate(order)}
    from haloscope.scope.trace.measurement import Node

    result.nodes = [
        Node(
            -1 if old == 0 else numbers[result.nodes[old].parent],
            result.nodes[old].region,
            result.nodes[old].site,
        )
        for old in order
    ]
    result.save(dense / FILE)
    report = Report(dense)
    timeline = _open(dense)
    view = TimelineView(report, 0, timeline)
    tiles, arrays = view.tiles(1, 0, 3, [0, 2])
    assert sorted(one[0] for one in tiles) == [0, 0, 0, 0, 2, 2, 2, 2]
    bins = [one for one in tiles if one[3] < 0]
    assert bins
    names = [name for _, name, _ in timeline.nodes]
    for place, (row, level, number, _) in enumerate(bins):
        stored = timeline.tile_nodes[timeline.tile(row, level, number)[2]]
        shown = arrays["nodes"][place * BINS : (place + 1) * BINS]
        for own, theirs in zip(stored.tolist(), shown.tolist(), strict=True):
            assert (own < 0 and theirs < 0) or names[own] == report.name_of(theirs)


def test_timeline_is_prepared_once_and_again_when_the_trace_has_changed(tmp_path: Path) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    first = prepare(tmp_path)
    written = (first / "timeline.json").stat().st_mtime_ns
    assert prepare(tmp_path) == first
    assert (first / "timeline.json").stat().st_mtime_ns == written
    write_sample(tmp_path, ranks=2, steps=2)
    prepare(tmp_path)
    assert (first / "timeline.json").stat().st_mtime_ns != written
    assert not list(tmp_path.glob(".explorer-cache*"))


@pytest.mark.parametrize("name", ["chunks.npy", "tile-keys.npy", "lines.npy", "tables.npy"])
def test_broken_preparation_is_one_clear_error(tmp_path: Path, name: str) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    prepared = prepare(tmp_path)
    (prepared / name).write_bytes(b"\x93NUMPY\x01\x00broken")
    with refused(problem="cannot be read", remedy="remove the folder"):
        Timeline(tmp_path, prepared)


# What a header of NumPy's that has lost a bit can be: brackets that stay open, no dictionary, a
# dictionary of other things, a length that the file does not have.
HEADERS = {
    "open": b"{'descr': '<i8', 'fortran_order': False, 'shape': (3,",
    "none": b"descr",
    "other": b"{'shape': (3,)}",
    "long": b"{'descr': '<i8', 'fortran_order': False, 'shape': (1099511627776,), }",
    "deep": b"(" * 200,
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", ["chunks.npy", "lines.npy", "tables.npy"])
def test_a_damaged_preparation_is_made_again(tmp_path: Path, name: str, header: str) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    whole = (prepare(tmp_path) / name).read_bytes()
    text = HEADERS[header].ljust(501) + b"\n"
    (tmp_path / "explorer-cache" / name).write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(80)
    )
    lines: list[str] = []
    preparing = Preparing(Report(tmp_path), 0, lines.append)
    preparing.wait()
    assert preparing.meta()["state"] == "ready"
    assert (tmp_path / "explorer-cache" / name).read_bytes() == whole
    assert [line.partition(" is ")[2] for line in lines] == ["damaged and is prepared again"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_in_an_error_leaves_no_page_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample(tmp_path, ranks=2, steps=1)

    def fail(*arguments: object, **named: object) -> None:
        raise AttributeError("an error of our own")

    monkeypatch.setattr("haloscope.scope.explorer.preparation.prepare", fail)
    preparing = Preparing(Report(tmp_path), 0, print)
    preparing.wait()
    assert preparing.meta()["state"] == "failed"


def test_preparation_never_leads_to_another_file(tmp_path: Path) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    prepared = prepare(tmp_path)
    about = json.loads((prepared / "timeline.json").read_text())
    about["places"][0][2] = "../secret.events"
    (prepared / "timeline.json").write_text(json.dumps(about))
    with refused(problem=r"\.\./secret\.events"):
        Timeline(tmp_path, prepared)


def test_folder_without_events_of_any_length_is_an_error(tmp_path: Path) -> None:
    with DefinitionsWriter(tmp_path, 0, 1) as definitions:
        definitions.node(-1, definitions.region("p"))
    with EventsWriter(tmp_path, 0) as writer:
        writer.write(5, Kind.ENTER, 0)
    with refused(location=str(tmp_path), problem="same time", remedy="longer run"):
        prepare(tmp_path)
    assert not (tmp_path / "explorer-cache").exists()


def test_timeline_of_a_phase_begins_and_ends_with_what_is_recorded(tmp_path: Path) -> None:
    """Of 9 s the threads record 5..6 s and 7..8 s, and some microseconds at begin and end."""
    second = 1_000_000_000
    with DefinitionsWriter(tmp_path, 0, 1) as definitions:
        root = definitions.node(-1, definitions.region("program", "program"))
        kernel = definitions.node(root, definitions.region("step", "cuda", "kernel"))
        definitions.line({"location": 0, "kind": "thread", "name": "main"})
        definitions.line({"location": 1, "kind": "stream", "name": "GPU 3 stream 7", "device": 3})
        definitions.end(9 * second)
    with EventsWriter(tmp_path, 0) as writer:
        writer.write(0, Kind.ENTER, root)
        for pause, resume in ((5_000, 5 * second), (6 * second, 7 * second), (8 * second, 0)):
            writer.write(pause, Kind.PAUSE)
            writer.write(resume or 9 * second - 5_000, Kind.RESUME)
        writer.write(9 * second, Kind.LEAVE, root)
    with EventsWriter(tmp_path, 0, 1) as writer:
        for begin in (5.5, 8.25):
            writer.write(int(begin * second), Kind.ENTER, kernel)
            writer.write(int(begin * second) + second // 4, Kind.LEAVE, kernel)
    timeline = _open(tmp_path)
    assert timeline.begin == pytest.approx(5)
    assert timeline.span == pytest.approx(3.5)  # the last kernel ends after its thread has paused
    assert [place.busy for place in timeline.places] == pytest.approx([2.00001, 0.5])
    assert [place.device for place in timeline.places] == [-1, 3]
    times, nodes = timeline.segments(0, timeline.begin, timeline.begin + timeline.span)
    assert [float(time) for time in times[1:3]] == pytest.approx([6, 7])
    assert (nodes[:3] >= 0).tolist() == [True, False, True]


def test_tiles_begin_with_what_is_active_at_their_begin(tmp_path: Path) -> None:
    """As many calls before the recorded part as make tiles: none of them is drawn into its begin."""
    second = 1_000_000_000
    with DefinitionsWriter(tmp_path, 0, 1) as definitions:
        root = definitions.node(-1, definitions.region("program", "program"))
        early = definitions.node(root, definitions.region("early"))
        late = definitions.node(root, definitions.region("late"))
        definitions.end(9 * second)
    with EventsWriter(tmp_path, 0) as writer:
        for number in range(3000):
            writer.write(number * 1000, Kind.ENTER, early)
            writer.write(number * 1000, Kind.LEAVE, early)
        for number in range(3000):
            writer.write(5 * second + number * 1000, Kind.ENTER, late)
            writer.write(5 * second + number * 1000 + 900, Kind.LEAVE, late)
    timeline = _open(tmp_path)
    assert timeline.begin == pytest.approx(5)
    level, number, row = timeline.tile(0, 0, 0)
    assert (level, number) == (0, 0)
    assert row >= 0
    names = {timeline.nodes[node][1] for node in timeline.tile_nodes[row].tolist()}
    assert names == {"late"}


def test_torn_or_overwritten_trace_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    path = tmp_path / "rank-00001.0.events"
    data = bytearray(path.read_bytes())
    middle = len(data) // 16 * 8
    data[middle : middle + 40] = struct.pack("<5Q", *[63] * 5)
    path.write_bytes(data)
    timeline = _open(tmp_path)
    assert 0 < timeline.places[1].segments < timeline.places[0].segments
    times, _ = timeline.segments(1, timeline.begin - 1, timeline.begin + 2 * timeline.span)
    assert len(times) == timeline.places[1].segments


# -- messages ---------------------------------------------------------------------------------------


def test_every_message_of_a_run_has_its_two_ends(tmp_path: Path) -> None:
    result = write_sample(tmp_path, ranks=9, steps=2, streams=True)
    timeline = _open(tmp_path)
    assert timeline.notes == []
    lines = timeline.lines
    assert len(lines) == result.pairs["messages"].sum()
    ranks = np.array([place.rank for place in timeline.places])
    for pair in result.pairs[:: len(result.pairs) // 9]:
        chosen = (ranks[lines["from"]] == pair["sender"]) & (ranks[lines["to"]] == pair["receiver"])
        both = result.pairs[
            (result.pairs["sender"] == pair["sender"])
            & (result.pairs["receiver"] == pair["receiver"])
        ]
        assert chosen.sum() == both["messages"].sum()
        assert lines["bytes"][chosen].sum() == both["bytes"].sum()
    assert (lines["received"] > lines["sent"]).all()


def test_nonblocking_receives_match_in_the_order_in_which_they_were_posted(tmp_path: Path) -> None:
    # Two sends from 0 to 1; both receives are posted, the second completes first.
    for rank in (0, 1):
        with DefinitionsWriter(tmp_path, rank, 2) as definitions:
            definitions.comm("00", "world")
            definitions.end(100)
    with EventsWriter(tmp_path, 0) as writer:
        writer.write(10, Kind.ISEND, 1, (0, 100, 1))
        writer.write(20, Kind.ISEND, 1, (0, 200, 2))
    with EventsWriter(tmp_path, 1) as writer:
        writer.write(1, Kind.IRECV, 7)
        writer.write(2, Kind.IRECV, 8)
        writer.write(50, Kind.IRECV_DONE, 0, (0, 200, 8))
        writer.write(60, Kind.IRECV_DONE, 0, (0, 100, 7))
        # The request's number is used again.
        writer.write(70, Kind.IRECV, 7)
        writer.write(80, Kind.IRECV_DONE, 0, (0, 300, 7))
    with EventsWriter(tmp_path, 0, 1) as writer:
        writer.write(65, Kind.SEND, 1, (0, 300))
        writer.write(66, Kind.SEND, 0xFFFFFFFF, (0, 300))
    table = match_messages(open_measurement(tmp_path))
    assert table.messages[["bytes", "sent", "received"]].tolist() == [
        (100, 10, 60), (200, 20, 50), (300, 65, 80),
    ]  # fmt: skip
    assert (table.sends, table.receives, table.ends.tolist()) == (3, 3, [2, 2, 3])


def test_messages_of_a_stretch_are_those_under_way_in_it(tmp_path: Path) -> None:
    write_sample(tmp_path, ranks=4, steps=3)
    timeline = _open(tmp_path)
    lines = timeline.lines
    begin = timeline.begin + 0.4 * timeline.span
    end = begin + 0.1 * timeline.span
    places = [1, 2]
    expected = [
        line for line in lines
        if line["sent"] <= end and line["received"] >= begin
        and (line["from"] in places or line["to"] in places)
    ]  # fmt: skip
    total, lines_within = timeline.lines_in(begin, end, places, 1000)
    assert total == len(lines_within) == len(expected) > 3
    total, longest = timeline.lines_in(begin, end, places, 3)
    assert (total, len(longest)) == (len(expected), 3)
    length = sorted((line["received"] - line["sent"] for line in expected), reverse=True)
    assert sorted(longest["received"] - longest["sent"], reverse=True) == length[:3]


def test_clocks_that_the_analysis_corrects_are_corrected_here_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample(tmp_path, ranks=2, steps=1)
    plain = _open(tmp_path)
    before = plain.segments(1, plain.begin, plain.begin + 2 * plain.span)[0]
    first = read_events(tmp_path / "rank-00001.0.events").ticks[0]
    knots = {1: np.array([[first, 0], [first + 10**6, 5000]], np.int64)}
    monkeypatch.setattr(
        preparation, "correct", lambda measurement: causal.Correction(knots, 3, 0, 5e-6)
    )
    (tmp_path / "explorer-cache" / "timeline.json").unlink()
    shifted = _open(tmp_path)
    after = shifted.segments(1, shifted.begin, shifted.begin + 2 * shifted.span)[0]
    since = np.clip(before - before[0], 0, 1e-3)
    assert np.allclose(after - before, 5e-6 * since / 1e-3, rtol=0, atol=1e-9)


def test_what_is_prepared_is_read_without_compiling_anything(tmp_path, monkeypatch):
    """Python 3.11 may fail to compile while another thread does."""
    write_sample(tmp_path, ranks=2, steps=1)
    prepared = prepare(tmp_path)

    def refused(*_: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr("ast.literal_eval", refused)
    assert len(Timeline(tmp_path, prepared).lines)
