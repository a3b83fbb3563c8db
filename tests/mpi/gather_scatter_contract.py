"""Checks on the ranks that it is started with that copies are combined and swapped as numbers say.

Rank 0 gets all numbers and values, works out what each copy must become with plain loops, and tells
each rank. Results are compared bit by bit.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.exchange.entries import Placement, open_pairing, open_sums
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.study.exchanges import field_by_field

_COMBINED = {"sum": lambda a, b: a + b, "min": min, "max": max}
_TURNS = 4
_UNTOUCHED = -7.0


def scenes(world: World) -> Iterator[tuple[str, np.ndarray]]:
    """Numbers of this rank's positions, in several worlds."""
    rank, size = world.rank, world.size
    rng = np.random.default_rng([rank, size])
    pool = np.random.default_rng(size).integers(1, 2**62, 60)
    few = rng.choice(pool, 150)
    few[rng.random(150) < 0.2] = -rng.integers(0, 2**62)
    yield "many copies", few.reshape(10, 15)
    yield "one rank has nothing", few[: 0 if rank == size - 1 else 100 + rank]
    yield "one rank shares nothing", few if rank else np.repeat(np.arange(1, 31), 3)
    yield "nobody shares anything", 1 + rank + size * rng.integers(0, 20, 70)
    yield "one value", np.full(5 + rank, 2**62)
    yield "no value", np.zeros((4, 4), int)
    yield "a ring", np.array([1 + rank, 1 + (rank + 1) % size, 0], np.int32)


def pairs(world: World) -> Iterator[tuple[str, np.ndarray]]:
    """The same, with each number twice."""
    size = world.size
    for name, count in (("many pairs", 400), ("few pairs", 1)):
        rng = np.random.default_rng([size, count])
        numbers = np.repeat(rng.choice(2**62, count, replace=False) + 1, 2)
        numbers = np.concatenate([numbers, np.zeros(count // 4, int)])
        holder = rng.integers(0, size, len(numbers))
        order = rng.permutation(len(numbers))
        yield name, numbers[order][holder[order] == world.rank]


def placements(positions: int, fields: int) -> Iterator[tuple[Placement | None, int]]:
    """Where fields may lie, and how many values the array has."""
    yield None, positions * fields
    yield Placement(3, fields, 1), positions * fields + 5
    yield Placement(1, 2, 2 * positions + 7), (2 * positions + 7) * fields + 1


def gathered(world: World, values: np.ndarray) -> list[np.ndarray]:
    """The values of all ranks on rank 0; an empty list elsewhere."""
    none = np.empty(0, np.uint8)
    parts = [none] * world.size
    parts[0] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    came = world.exchange(parts)
    return [np.frombuffer(part.tobytes(), values.dtype) for part in came] if world.is_root else []


def scattered(world: World, values: list[np.ndarray], dtype: type) -> np.ndarray:
    """What rank 0 has for this rank."""
    parts = [part.view(np.uint8) for part in values] or [np.empty(0, np.uint8)] * world.size
    return np.frombuffer(world.exchange(parts)[0].tobytes(), dtype)


def expected(
    world: World, ids: np.ndarray, values: np.ndarray, result: Callable[..., list]
) -> np.ndarray:
    """What values (fields, positions) must become: rank 0 holds everything and asks `result`.

    `result` gets the copies of one value, a list of values for each rank, and returns new ones.
    """
    fields = len(values)
    numbers = gathered(world, ids.reshape(-1).astype(np.int64))
    all_values = [v.reshape(fields, -1).copy() for v in gathered(world, values)]
    places: dict[int, list[tuple[int, int]]] = {}
    for rank, mine in enumerate(numbers):
        for position in np.flatnonzero(mine > 0):
            places.setdefault(int(mine[position]), []).append((rank, int(position)))
    for copies in places.values():
        for field in range(fields):
            by_rank: list[list] = [[] for _ in range(world.size)]
            for rank, position in copies:
                by_rank[rank].append(all_values[rank][field, position])
            for (rank, position), new in zip(copies, result(by_rank), strict=True):
                all_values[rank][field, position] = new
    flat = [v.reshape(-1) for v in all_values]
    return scattered(world, flat, values.dtype.type).reshape(fields, -1)


def combined(operation: str) -> Callable[[list[list]], list]:
    """Each rank's copies in order, then what they come to in the order of ranks."""

    def result(by_rank: list[list]) -> list:
        join, total = _COMBINED[operation], []
        for copies in by_rank:
            if copies:
                partial = copies[0]
                for copy in copies[1:]:
                    partial = join(partial, copy)
                total.append(partial)
        value = total[0]
        for partial in total[1:]:
            value = join(value, partial)
        return [value] * sum(map(len, by_rank))

    return result


def swapped(by_rank: list[list]) -> list:
    """The two copies, the other way round."""
    first, second = (copy for copies in by_rank for copy in copies)
    return [second, first]


def counted(by_rank: list[list]) -> list:
    """How many copies there are."""
    count = sum(map(len, by_rank))
    return [count] * count


def neighbours(world: World, ids: np.ndarray) -> int:
    """How many other ranks have a number that this rank has."""
    mine = np.unique(ids[ids > 0]).astype(np.int64)
    all_ids = world.exchange([mine.view(np.uint8)] * world.size)
    return sum(
        np.intersect1d(mine, np.frombuffer(part.tobytes(), np.int64)).size > 0
        for rank, part in enumerate(all_ids)
        if rank != world.rank
    )


def opened_for(
    world: World,
    device: Device,
    transport: str,
    ids: np.ndarray,
    operation: str,
    fields: int,
    dtype: type,
    placement: Placement | None,
    one_by_one: bool,
) -> Any:
    """The exchange of an operation, or one for each field."""
    named = {} if operation == "swap" else {"operation": operation}
    opener = open_pairing if operation == "swap" else open_sums
    if not one_by_one:
        return opener(world, device, ids, fields, dtype, transport, placement=placement, **named)
    place = placement or Placement(0, 1, ids.size)
    sharing = find_sharing(world, ids)
    one = functools.partial(opener, world, device, sharing, 1, dtype, **named)
    return field_by_field(one, fields, place, transport)


def check(
    world: World,
    device: Device,
    transport: str,
    ids: np.ndarray,
    operation: str,
    fields: int,
    dtype: type,
    *,
    one_by_one: bool = False,
) -> None:
    """Combine (``sum``, ``min``, ``max``) or ``swap`` with each placement, in place and not."""
    rng = np.random.default_rng([world.rank, fields])
    values = (rng.random((fields, ids.size)) - 0.5).astype(dtype)
    result = swapped if operation == "swap" else combined(operation)
    wanted = expected(world, ids, values, result)
    several = neighbours(world, ids)
    several_copies = expected(world, ids, np.zeros((1, ids.size)), counted)[0] > 1
    for placement, size in placements(ids.size, fields):
        opened = opened_for(
            *(world, device, transport, ids, operation, fields, dtype, placement), one_by_one
        )
        assert transport in ("auto", opened.transport)
        assert opened.messages_sent == several * (fields if one_by_one else 1)
        used = placement or Placement(0, 1, ids.size)
        places = used.first + used.stride * np.arange(ids.size)
        places = places + used.field_stride * np.arange(fields)[:, None]
        state, other = device.empty((size,), dtype), device.empty((size,), dtype)
        for turn in range(_TURNS):
            about = str((transport, operation, fields, dtype, placement, turn, one_by_one))
            # Other values in each turn, with results that differ by as much to the last bit.
            untouched = np.full(size, _UNTOUCHED, dtype)
            before, after = untouched.copy(), untouched.copy()
            before[places], after[places] = values * 2**turn, wanted * 2**turn
            state[...] = device.from_host(before)
            if turn % 2:
                opened.start(state)
                opened.progress()
                opened.finish(state)
                _assert_same_bits(device.to_host(state), after, about)
            else:
                # Into another array go values that have other copies, and no others.
                other[...] = device.from_host(untouched)
                elsewhere = untouched.copy()
                written = places[:, several_copies]
                elsewhere[written] = after[written]
                opened.swap(state, into=other)
                _assert_same_bits(device.to_host(state), before, about)
                _assert_same_bits(device.to_host(other), elsewhere, about)


def _assert_same_bits(actual: np.ndarray, wanted: np.ndarray, about: str) -> None:
    np.testing.assert_array_equal(actual.view(np.uint8), wanted.view(np.uint8), err_msg=about)


def check_all(world: World, device: Device, transports: tuple[str, ...]) -> int:
    """Check everything with each transport; how many exchanges that were.

    Some messages are longer than a chunk, which ends in the middle of an entry.
    """
    count = 0
    for transport in transports:
        for _, ids in scenes(world):
            check(world, device, transport, ids, "sum", 3, np.float64)
            count += 1
        for _, ids in pairs(world):
            check(world, device, transport, ids, "swap", 3, np.float64)
            check(world, device, transport, ids, "swap", 2, np.float32, one_by_one=True)
            count += 2
        _, ids = next(scenes(world))
        check(world, device, transport, ids, "min", 1, np.float64)
        check(world, device, transport, ids, "max", 2, np.float32)
        check(world, device, transport, ids, "sum", 13, np.float32)
        check(world, device, transport, ids, "sum", 2, np.float64, one_by_one=True)
        count += 4
    return count


def main(kind: str, transports: tuple[str, ...]) -> None:
    """Check transports on the ranks that this was started on."""
    world = MpiWorld()
    device = open_device(kind, local_rank=world.local_rank, threads=1)
    count = check_all(world, device, transports)
    world.barrier()
    if world.is_root:
        print(f"{count} exchanges between copies were right")


if __name__ == "__main__":
    main(sys.argv[1] if sys.argv[1:] else "cpu", tuple(sys.argv[2:]) or ("host", "staged"))
