"""Claims about how populations stream on GPUs: two buffers where all ranks have room, and it is told."""

from __future__ import annotations

from typing import Any

from refusals import refused

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import World
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.fluid.gpu_layout import room_for_two
from haloscope.solvers.blood.fluid.populations import choose_way, turns
from haloscope.solvers.blood.sizing import estimate

POINTS, DOUBLE = 1000, 8
ENOUGH = 3 * 2 * 19 * DOUBLE * POINTS


class Gpu:
    """All that is asked of one."""

    kind = "cuda"

    def __init__(self, free: int, identity: str = "one", cache_bytes: int = 0) -> None:
        self._free, self.identity, self.cache_bytes = free, identity, cache_bytes

    def memory(self) -> tuple[int, int]:
        return self._free, 10 * self._free


class Ranks(World):
    """One rank of several."""

    def __init__(self, identities: list[str], *, scarce_elsewhere: bool = False) -> None:
        super().__init__()
        self._identities, self._scarce = identities, scarce_elsewhere

    def gather_texts(self, text: str) -> list[str]:
        return self._identities

    def any(self, flag: bool) -> bool:
        return flag or self._scarce


def chosen(gpu: Any, world: World, streaming: Any = "auto") -> tuple[int, str]:
    lines: list[str] = []
    way = choose_way(gpu, world, streaming, POINTS, DOUBLE, lines.append)
    (line,) = lines
    assert ("between two buffers" in line) == (way.buffers == 2)
    return way.buffers, line


def test_two_buffers_fill_at_most_a_third_of_what_is_free():
    assert room_for_two(ENOUGH, POINTS, DOUBLE)
    assert not room_for_two(ENOUGH - 1, POINTS, DOUBLE)
    assert room_for_two(ENOUGH, 2 * POINTS, DOUBLE // 2)
    assert not room_for_two(ENOUGH, POINTS, DOUBLE, sharing=2)


def test_two_buffers_leave_room_for_cells_and_outputs():
    beside = 15 * ENOUGH // 16 - ENOUGH // 3
    assert room_for_two(ENOUGH, POINTS, DOUBLE, beside=beside)
    assert not room_for_two(ENOUGH, POINTS, DOUBLE, beside=beside + 1)
    assert not room_for_two(2 * ENOUGH, POINTS, DOUBLE, sharing=2, beside=beside + 1)
    lines: list[str] = []
    gpu: Any = Gpu(ENOUGH)
    way = choose_way(gpu, Ranks(["one"]), "auto", POINTS, DOUBLE, lines.append, beside + 1)
    assert way.buffers == 1


def test_all_ranks_choose_alike():
    assert chosen(Gpu(ENOUGH), Ranks(["one"]))[0] == 2
    assert chosen(Gpu(ENOUGH - 1), Ranks(["one"]))[0] == 1
    assert chosen(Gpu(ENOUGH), Ranks(["one", "other"], scarce_elsewhere=True))[0] == 1
    # Ranks that share a GPU share its memory.
    assert chosen(Gpu(ENOUGH), Ranks(["one", "one"]))[0] == 1
    assert chosen(Gpu(2 * ENOUGH), Ranks(["one", "one"]))[0] == 2


def test_lattices_near_the_size_of_the_cache_are_stepped_in_place():
    buffer = 19 * DOUBLE * POINTS
    for cache, buffers in (
        (buffer // 5, 2),
        (buffer // 4 + 1, 1),
        (3 * buffer, 1),
        (4 * buffer, 2),
    ):
        gpu = Gpu(10 * ENOUGH, cache_bytes=cache)
        buffer_count, line = chosen(gpu, Ranks(["one"]))
        assert buffer_count == buffers
        assert ("of a cache of" in line) == (buffers == 1)
        # Ranks that share a GPU share its cache; what the case says goes before.
        twice = Gpu(20 * ENOUGH, cache_bytes=2 * cache)
        assert chosen(twice, Ranks(["one", "one"]))[0] == buffers
        assert chosen(gpu, Ranks(["one"]), "two buffers")[0] == 2
        lines: list[str] = []
        way = choose_way(gpu, Ranks(["one"]), "auto", POINTS, DOUBLE, lines.append, links=True)
        assert way.buffers == 2


def test_a_case_can_say_how_and_cores_have_one_way():
    assert chosen(Gpu(0), Ranks(["one"]), "two buffers")[0] == 2
    lines: list[str] = []
    way = choose_way(Gpu(0), Ranks(["one"]), "push", POINTS, DOUBLE, lines.append)
    assert (way.buffers, way.pushing) == (2, True)
    assert lines == ["populations stream by a push between two buffers (blood.streaming)"]
    buffers, line = chosen(Gpu(ENOUGH), Ranks(["one"]), "in place")
    assert buffers == 1
    assert "in place (blood.streaming)" in line
    lines.clear()
    for streaming in ("auto", "in place"):
        way = choose_way(CpuDevice(1), World(), streaming, POINTS, DOUBLE, lines.append)
        assert way.buffers == 1
    assert lines == []
    for streaming in ("two buffers", "push"):
        with refused(location=f'streaming = "{streaming}"', problem="needs a GPU"):
            choose_way(CpuDevice(1), World(), streaming, POINTS, DOUBLE, lines.append)


def test_a_push_reads_own_slots_and_leaves_with_neighbours_from_the_first_step_on():
    assert [(t.streamed, t.pushed, t.source, t.destination) for t in turns(2, pushing=True)] == [
        (False, True, 0, 1),
        (False, True, 1, 0),
    ]
    for way in (turns(1), turns(2), turns(2, pushing=True)):
        # Where one step leaves populations, the next one finds them.
        assert all(not (t.pushed and way[t.following].streamed) for t in way)
        assert all(t.pushed or way[t.following].streamed for t in way)
        assert all(way[t.following].source == t.destination for t in way)


def test_a_push_is_known_to_take_two_buffers_before_anything_is_allocated():
    def memory(streaming: str) -> float:
        channel = {"size_um": [8.0, 8.0, 8.0], "periodic": ["x", "y", "z"]}
        data = {"blood": {"spacing_um": 1.0, "streaming": streaming, "channel": channel}}
        return estimate(check({"solver": "blood", **data}, BloodCase, "test"))["memory_bytes"]

    assert memory("push") == memory("two buffers") == memory("in place") + 19 * DOUBLE * 8**3
