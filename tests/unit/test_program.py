"""Claims about programs: streams wait for each other where their nodes touch the same parts, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_device import RecordedCores
from refusals import refused

from haloscope.device.declarations import DeclarationError
from haloscope.device.interface import Array
from haloscope.device.program import SIDE, Field, Program, View
from haloscope.regions import Region

# Every node takes a mean of its neighbours in a ring; two nodes at each end are the rim.
_SOURCE = """
KERNEL(smooth, IN(double, old), OUT(double, fresh), LONG(first), LONG(n)) {
  FOR_EACH(i, n) fresh[first + i] = (old[first + i - 1] + old[first + i] + old[first + i + 1]) / 3;
}
"""
_N, _RIM = 12, Region("rim of a test")


class _Ring:
    """An exchange of a rank with itself: ghosts at the ends of an array."""

    capturable = True
    stream: Any = "side"

    def __init__(self) -> None:
        self.calls: list[str] = []

    def name_parts(self, array: Array, *, sent: View, filled: View) -> None:
        self.calls.append(f"{sent} to {filled}")

    def prepare(self, *states: Array, into: Array | None = None) -> None:
        pass

    def start(self, state: Array) -> None:
        self.calls.append("start")
        self._message = state[1], state[-2]

    def progress(self) -> None:
        self.calls.append("progress")

    def finish(self, state: Array, into: Array | None = None) -> None:
        self.calls.append("finish")
        state[-1], state[0] = self._message

    def swap(self, state: Array, into: Array | None = None) -> None:
        self.start(state)
        self.finish(state)


class _Streams(RecordedCores):
    """Keeps the order of forks and joins."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def fork(self, stream: Any = None) -> None:
        self.order.append("fork")
        super().fork(stream)

    def join(self, stream: Any = None) -> None:
        self.order.append("join")
        super().join(stream)


@pytest.fixture
def device() -> _Streams:
    return _Streams()


@pytest.fixture
def states(device: _Streams) -> tuple[Field, Field]:
    places = ("core", "rim", "ghosts")
    one, other = (Field(name, device.zeros((_N + 2,), "f8"), place=places) for name in ("a", "b"))
    one.array[:] = np.random.default_rng(3).standard_normal(_N + 2)
    one.array[0], one.array[-1] = one.array[-2], one.array[1]
    return one, other


def _program(
    device: _Streams, states: tuple[Field, Field], tmp_path: Path, **options: Any
) -> tuple[Program, _Ring]:
    source = tmp_path / "ring.cpp"
    source.write_text(_SOURCE)
    smooth, ring = device.kernel(source, "smooth", {}), _Ring()
    program = Program(device, "ring", cycle=(1, 0), **options)
    for turn, (old, fresh) in enumerate((states, states[::-1])):
        step = program.turn(turn)
        for first in (1, _N - 1):
            call = {
                "old": old["core", "rim", "ghosts"],
                "fresh": fresh["rim"],
                "first": first,
                "n": 2,
            }
            step.kernel(smooth, on=SIDE, region=_RIM, extent=(2,), **call)
        step.start(ring, fresh["rim"], into=fresh["ghosts"])
        call = {"old": old["core", "rim"], "fresh": fresh["core"], "first": 3, "n": _N - 4}
        step.kernel(smooth, extent=(_N,), **call)
        step.finish(ring)
    return program, ring


def _plain(values: np.ndarray, steps: int) -> np.ndarray:
    inner = values[1:-1].copy()
    for _ in range(steps):
        inner = (np.roll(inner, 1) + inner + np.roll(inner, -1)) / 3
    return inner


def test_steps_in_turns_give_what_plain_steps_give_and_leave_no_hazard(device, states, tmp_path):
    wanted = _plain(states[0].array, 5)
    program, ring = _program(device, states, tmp_path)
    assert ring.calls == [
        "b[rim] to b[ghosts]",
        "b[rim] to b[ghosts]",
        "a[rim] to a[ghosts]",
        "a[rim] to a[ghosts]",
    ]
    program.advance(5)
    assert program.next == 1
    np.testing.assert_allclose(states[1].array[1:-1], wanted, rtol=0, atol=1e-15)
    # Rims and core are apart: one fork at the first node of the side stream, one join at the end.
    assert device.order == ["fork", "join"] * 5
    assert device.recorder.hazards() == []


def test_a_stream_waits_before_the_first_node_that_touches_what_the_other_writes(
    device, states, tmp_path
):
    program, _ = _program(device, states, tmp_path)
    one, other = states
    smooth = device.kernel(tmp_path / "ring.cpp", "smooth", {})
    step = program.turn(0)
    step.kernel(smooth, extent=(2,), old=other["ghosts"], fresh=one["core"], first=3, n=2)
    assert [node.waits for node in (step.close(), step.nodes)[1]] == [
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    late, reason = step.nodes[-1].after[-1]
    assert (late.name, reason) == (
        "end of exchange",
        "end of exchange writes b[ghosts], smooth reads b[ghosts]",
    )
    assert not step.joins
    text = program.describe()
    assert text.startswith(
        "ring, turn 0, then turn 1:\n  side smooth [rim of a test]: reads a[core, ghosts, rim], writes b[rim]"
    )
    assert "waits for main: the step before" in text
    assert "waits for side: end of exchange writes b[ghosts], smooth reads b[ghosts]" in text
    assert text.endswith("main waits for side: end of the step")


def test_messages_go_on_between_kernels_or_in_a_thread(device, states, tmp_path):
    program, ring = _program(device, states, tmp_path, progress="test")
    ring.calls.clear()
    program.advance(1)
    assert ring.calls == ["start", "progress", "finish"]

    class Thread:
        def __enter__(self) -> None:
            ring.calls.append("enter")

        def __exit__(self, *_: object) -> None:
            ring.calls.append("exit")

    program, ring = _program(device, states, tmp_path, progress="thread", thread=Thread())
    ring.calls.clear()
    program.advance(1)
    assert ring.calls == ["start", "enter", "exit", "finish"]


def test_successive_nodes_of_a_region_are_one_visit(device, states, tmp_path, monkeypatch):
    visits = []
    monkeypatch.setattr(Region, "__enter__", lambda self: visits.append(self.name))
    monkeypatch.setattr(Region, "__exit__", lambda self, *_: None)
    program, _ = _program(device, states, tmp_path)
    program.advance(2)
    assert visits == ["rim of a test"] * 2


def test_host_calls_see_what_was_launched_and_forbid_graphs(device, states):
    seen = []
    program = Program(device, "host")
    step = program.turn(0)
    step.host("look", lambda: seen.append(states[0].array.sum()), reads=[states[0]], writes=[])
    assert not step.capturable
    program.advance(2)
    assert len(seen) == 2
    with refused(DeclarationError, location="stream third", allowed="main, side"):
        step._stream("third")


def test_a_step_is_drawn_with_its_streams(device, states, tmp_path):
    from haloscope.commands.dry_run import save_step_picture

    program, _ = _program(device, states, tmp_path)
    path = tmp_path / "step.png"
    save_step_picture(path, program, "A ring")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_wait_is_found_where_the_same_launch_is_recorded_twice(device, states):
    one, other = states
    step, clock = Program(device, "twice").turn(0), lambda: None
    step.launch("tick", clock, writes=[one])
    step.launch("other", clock, writes=[other])
    source = other["rim"]
    step.start(_Ring(), source, into=other["ghosts"])
    step.launch("tick", clock, writes=[one])
    step.start(_Ring(), one["rim"], into=one["ghosts"])
    step.close()
    assert [node.waits for node in step.nodes] == [False, False, True, False, True]


def test_exchanges_can_be_under_way_together(device, states):
    one, other = states
    program = Program(device, "two", progress="test")
    step, rings = program.turn(0), (_Ring(), _Ring())
    for ring, state in zip(rings, states, strict=True):
        step.start(ring, state["rim"], into=state["ghosts"])
    for ring in rings:
        step.finish(ring)
    program.advance(1)
    for state in (one.array, other.array):
        assert (state[0], state[-1]) == (state[-2], state[1])
    assert [ring.calls[2:] for ring in rings] == [["start", "finish"]] * 2


def test_misuse_of_a_step_is_refused(device, states):
    (one, _), ring = states, _Ring()
    program = Program(device, "misused")
    step, ghosts = program.turn(0), one["ghosts"]
    with refused(DeclarationError, problem="not under way", remedy="start it first"):
        step.finish(ring)
    step.start(ring, one["rim"], into=ghosts)
    with refused(DeclarationError, problem="under way already", remedy="finish it first"):
        step.start(ring, one["rim"], into=ghosts)
    with refused(DeclarationError, problem="another stream than main"):
        step.swap(ring, one["rim"], into=ghosts, on="main")
    step.finish(ring)
    program.advance(1)
    with refused(DeclarationError, location="step", problem="has run already"):
        step.host("late", print, reads=[], writes=[])


def test_graphs_go_on_with_the_turn_after_them(monkeypatch):
    turns: list[int] = []

    class Gpu(RecordedCores):
        kind = "cuda"

        def graph(self, work: Any) -> Any:
            before = len(turns)
            work()
            held = turns[before:]
            del turns[before:]

            class Graph:
                def replay(self) -> None:
                    turns.extend(held)

            return Graph()

    program = Program(Gpu(), "cycle", cycle=(1, 2, 1))
    for number in range(3):
        program.turn(number).launch("turn", lambda number=number: turns.append(number), writes=[])
    for _ in range(4):
        program.advance(3)
    assert turns == [0, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1]
