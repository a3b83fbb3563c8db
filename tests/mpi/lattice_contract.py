"""Checks on the ranks that it is started with that a sparse lattice is shared out as one rank has it.

Every rank knows the whole of a small random lattice, and brings a slab of it. What comes of that is
compared with plain loops over the whole.
"""

from __future__ import annotations

import itertools
import json
import sys

import numpy as np

from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.entries import open_lists, require_single_copies
from haloscope.exchange.plan import by_number, find_lists
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.mesh.bisection import Boxes, bisect
from haloscope.mesh.lattice.lattice_parts import LatticePart, distribute, raster_coordinates, take
from haloscope.mesh.lattice.point_fields import PointFields

DIRECTIONS = np.array(
    [c for c in itertools.product((-1, 0, 1), repeat=3) if sum(map(abs, c)) in (1, 2)]
)
SCENES = (
    ((9, 8, 7), (False, False, False), 1),
    ((7, 6, 16), (True, False, True), 2),
    ((2, 1, 13), (True, True, True), 2),
)
_SLOTS = 5
_TURNS = 4
_UNTOUCHED = -7.0


def find_owners(world: World, held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rank that holds each of the wanted numbers, -1 for none; every rank sees all numbers."""
    by_rank = map(json.loads, world.gather_texts(json.dumps(held.tolist())))
    owner = {number: rank for rank, numbers in enumerate(by_rank) for number in numbers}
    return np.array([owner.get(number, -1) for number in wanted.tolist()], np.int64)


def whole_lattice(shape, seed: int = 5) -> np.ndarray:
    """Raster numbers of the points of a random lattice."""
    rng = np.random.default_rng([seed, *shape])
    return np.flatnonzero(rng.random(int(np.prod(shape))) < 0.4)


def slab(world: World, numbers: np.ndarray) -> np.ndarray:
    """The points that this rank brings: slabs that grow with the rank."""
    ends = len(numbers) * np.arange(world.size + 1) ** 2 // world.size**2
    return numbers[ends[world.rank] : ends[world.rank + 1]]


def neighbour(number: int, step: np.ndarray, shape, periodic) -> int:
    """Raster number of what lies a step away; -1: no place of the lattice."""
    place = raster_coordinates(np.array([number]), shape)[0] + step
    for axis in range(3):
        if periodic[axis]:
            place[axis] %= shape[axis]
        elif not 0 <= place[axis] < shape[axis]:
            return -1
    return int(place @ (1, shape[0], shape[0] * shape[1]))


def values_of(numbers: np.ndarray, field: int, turn: int) -> np.ndarray:
    """What stands at points, so that no two are alike."""
    return np.sin(1.0 + numbers + 1e4 * field + 1e5 * turn)


def check_part(part: LatticePart, whole: np.ndarray, shape, periodic) -> None:
    """Compare a part with plain loops over its points and the places around them."""
    known = set(whole.tolist())
    lo, hi = (np.array(corner) for corner in part.box)
    places = raster_coordinates(whole, shape)
    inside = ((places >= lo) & (places < hi)).all(axis=1)
    np.testing.assert_array_equal(part.numbers[: part.owned], whole[inside])
    wanted = {}
    for place in np.ndindex(part.table.shape):
        at = lo - part.halo + place[::-1]
        if all(p or 0 <= x < n for p, x, n in zip(periodic, at, shape, strict=True)):
            number = int(at % shape @ (1, shape[0], shape[0] * shape[1]))
            if number in known:
                wanted[place] = number
    for place, local in np.ndenumerate(part.table):
        assert (part.numbers[local] if local >= 0 else -1) == wanted.get(place, -1)
    ghosts = sorted(set(wanted.values()) - set(whole[inside].tolist()))
    assert part.numbers[part.owned :].tolist() == ghosts
    for row, direction in zip(part.sources, DIRECTIONS, strict=True):
        for local, source in enumerate(row):
            number = neighbour(int(part.numbers[local]), -direction, shape, periodic)
            source_number = int(part.numbers[source]) if source >= 0 else -1
            assert source_number == (number if number in known else -1)
    np.testing.assert_array_equal(
        part.find(whole, shape), np.where(inside, np.cumsum(inside) - 1, -1)
    )


def check_points(world: World, device: Device, part: LatticePart, lists, transport: str) -> int:
    """Ghosts get the owners' values of three fields; what else there is stays."""
    stride = part.count + 3
    opened = open_lists(world, device, lists, np.float64, transport, fields=3, field_stride=stride)
    assert transport in ("auto", opened.transport)
    state = device.empty((3 * stride,), np.float64)
    for turn in range(_TURNS):
        before = np.full((3, stride), _UNTOUCHED)
        after = before.copy()
        for field in range(3):
            after[field, : part.count] = values_of(part.numbers, field, turn)
        before[:, : part.owned] = after[:, : part.owned]
        state[...] = device.from_host(before.reshape(-1))
        opened.start(state)
        opened.progress()
        opened.finish(state)
        np.testing.assert_array_equal(device.to_host(state), after.reshape(-1))
    return opened.messages_sent


def check_slots(
    world: World, device: Device, part: LatticePart, boxes: Boxes, shape, transport: str
) -> None:
    """Some slots of some ghosts go there and come back; each slot of a point is wanted once."""
    stride = part.count + 2
    ghosts = np.arange(part.owned, part.count)
    local, slot = (grid.reshape(-1) for grid in np.meshgrid(ghosts, np.arange(_SLOTS)))
    numbers = part.numbers[local] * _SLOTS + slot
    owners = boxes.owners(part.coordinates[local])
    # No two ranks send to each other: what needs messages both ways must see to them.
    mine = (numbers % world.size == world.rank) & (owners < world.rank)
    local, slot, numbers, owners = local[mine], slot[mine], numbers[mine], owners[mine]

    def find(wanted: np.ndarray) -> np.ndarray:
        at = part.find(wanted // _SLOTS, shape)
        return np.where(at >= 0, wanted % _SLOTS * stride + at, -1)

    lists = find_lists(world, numbers, slot * stride + local, owners, find)
    require_single_copies(world, lists)
    opened = open_lists(world, device, lists, np.float32, transport)
    backward = open_lists(world, device, lists.reversed, np.float32, opened.transport)
    state = device.empty((_SLOTS * stride,), np.float32)
    everywhere = np.full((_SLOTS, stride), -1)
    everywhere[:, : part.count] = part.numbers * _SLOTS + np.arange(_SLOTS)[:, None]
    lent = np.concatenate(
        [
            np.frombuffer(p.tobytes(), np.int64)
            for p in world.exchange([numbers.view(np.uint8)] * world.size)
        ]
    )
    for turn in range(_TURNS):
        first = values_of(everywhere, 0, turn).astype(np.float32)
        second = values_of(everywhere, 1, turn).astype(np.float32)
        before = first.copy()
        before[:, part.owned :] = _UNTOUCHED
        state[...] = device.from_host(before.reshape(-1))
        opened.swap(state)
        there = device.to_host(state).reshape(_SLOTS, stride).copy()
        after = before.copy()
        after[slot, local] = first[slot, local]
        np.testing.assert_array_equal(there, after)
        there[slot, local] = second[slot, local]
        state[...] = device.from_host(there.reshape(-1))
        backward.swap(state)
        after[slot, local] = second[slot, local]
        back = np.isin(everywhere[:, : part.owned], lent)
        after[:, : part.owned][back] = second[:, : part.owned][back]
        np.testing.assert_array_equal(device.to_host(state).reshape(_SLOTS, stride), after)


def check_fields(world: World, part: LatticePart, whole: np.ndarray, shape, periodic) -> None:
    """A field has one order for any ranks; it goes to rank 0 and comes back."""
    own = part.numbers[: part.owned]
    fields = PointFields(world, own, shape, periodic=periodic)
    owned = values_of(own, 0, 0)
    assert fields.shape == whole.shape
    begin, end = len(whole) // 5, len(whole) - 3
    field = fields.collect(owned, begin, end)
    assert (field is not None) == world.is_root
    if field is not None:
        np.testing.assert_array_equal(field, values_of(whole[begin:end], 0, 0))
    stored = values_of(whole, 0, 0)
    np.testing.assert_array_equal(fields.own(lambda region: stored[region]), owned)
    numbers = np.concatenate(list(fields.numbers()))
    np.testing.assert_array_equal(whole[numbers.astype(int)], own)
    at = raster_coordinates(whole, shape)[len(whole) // 2]
    assert fields.sample([tuple(at)], owned) == [stored[len(whole) // 2]]
    fields.require_inside("this test", tuple(at))


def check(world: World, device: Device, transport: str, shape, periodic, halo: int) -> int:
    """Check a lattice; how many messages this rank sends for all points."""
    whole = whole_lattice(shape)
    brought = slab(world, whole)
    boxes = bisect(world, raster_coordinates(brought, shape), shape, periodic=periodic)
    alone = bisect(
        World(), raster_coordinates(whole, shape), shape, periodic=periodic, parts=world.size
    )
    for name in ("lo", "hi", "points", "loads", "axes", "cuts", "children"):
        np.testing.assert_array_equal(getattr(boxes, name), getattr(alone, name))
    box = boxes.lo[world.rank], boxes.hi[world.rank]
    on = np.where(brought % 7 == 0, brought % 2, -1)
    numbers, openings = distribute(
        world, brought, shape, boxes, halo, periodic=periodic, openings=on
    )
    np.testing.assert_array_equal(openings, np.where(numbers % 7 == 0, numbers % 2, -1))
    part = take(numbers, shape, box, halo, DIRECTIONS, periodic=periodic)
    assert part.count == len(numbers)
    check_part(part, whole, shape, periodic)
    ghosts = part.numbers[part.owned :]
    owners = find_owners(world, part.numbers[: part.owned], ghosts)
    np.testing.assert_array_equal(owners, boxes.owners(part.coordinates[part.owned :]))
    find = by_number(part.numbers[: part.owned], np.arange(part.owned))
    lists = find_lists(world, ghosts, np.arange(part.owned, part.count), owners, find)
    messages = check_points(world, device, part, lists, transport)
    check_slots(world, device, part, boxes, shape, transport)
    check_fields(world, part, whole, shape, periodic)
    return messages


def message_of(function, *arguments, **options) -> str:
    """The error with which a call ends."""
    try:
        function(*arguments, **options)
    except InputError as error:
        return str(error)
    return "nothing is wrong"


def check_faults(world: World, device: Device) -> None:
    """What does not fit is told in the same words on all of three ranks."""
    held = np.array([[10, 20], [30, 40], [50, 60]][world.rank])
    find = by_number(held, np.arange(2))
    wanted = np.array([[30, 41], [10], [30]][world.rank])
    owners = find_owners(world, held, wanted)
    assert owners.tolist() == [[1, -1], [0], [1]][world.rank]
    at = 2 + np.arange(len(wanted))
    for wrong_owners, where in ((owners, "any rank"), (np.maximum(owners, 0), "rank 0")):
        words = message_of(find_lists, world, wanted, at, wrong_owners, find)
        assert words.startswith(f"rank 0 needs value number 41, which {where} does not have")
    lists = find_lists(world, wanted[:1], at[:1], owners[:1], find)
    open_lists(world, device, lists, np.float64)
    words = message_of(require_single_copies, world, lists)
    assert words.startswith("entry 0 of rank 1 has several copies, which cannot all be sent")
    words = message_of(PointFields, world, np.array([world.rank // 2]), (3, 1, 1))
    assert words == "a lattice point is on two ranks; give each point to one rank"


def main(transports: tuple[str, ...]) -> None:
    """Check transports on the ranks that this was started on."""
    world = MpiWorld()
    device = open_device("cpu", local_rank=world.local_rank, threads=1)
    messages = sum(check(world, device, name, *scene) for name in transports for scene in SCENES)
    if world.size == 3:
        check_faults(world, device)
    world.barrier()
    if world.is_root:
        print(f"{messages} messages, all right")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
