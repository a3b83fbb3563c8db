"""Checks on the ranks that it is started with that sums over shared nodes are the same by all messages.

Rank 0 gets all numbers and values and adds up, in the order of ranks, with plain loops. Each rank
counts its calls of MPI. Prints one JSON object: calls of a sum by messages and scene, of all ranks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
from mpi4py import MPI

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.numerics.shared_nodes import Messages, open_node_sums, transport_of

SIZE = 4


class Counting(MPI.Intracomm):
    """Counts the messages of blocking calls: all, and those without data."""

    calls: Counter[str]

    def Sendrecv(self, sendbuf: Any, dest: int, *others: Any) -> None:
        self.calls["sent"] += 1
        self.calls["empty"] += len(sendbuf) == 0
        super().Sendrecv(sendbuf, dest, *others)

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.calls["sent"] += 1
        self.calls["empty"] += len(buf) == 0
        super().Send(buf, dest, tag)


def scenes(world: World) -> Iterator[tuple[str, np.ndarray]]:
    """Global numbers of this rank's nodes, from 1."""
    rank, size = world.rank, world.size
    rng = np.random.default_rng([rank, size])
    yield "chain", 10 * rank + np.arange(1, 14)  # three nodes with the next rank
    yield "all share", rng.permutation(30 + np.arange(1, 200))
    own = 10**6 * (rank + 1) + np.arange(20)
    yield "last shares nothing", own if rank == size - 1 else np.append(own, [1, 2, 3])
    yield "nobody shares", own
    # So much that no MPI sends it before it is received.
    yield "large", np.append(own, np.arange(1, 6001)) if rank < 3 else own
    # Rank 0 shares with all; the others with nobody else: messages to one side in most turns.
    yield "a star", np.append(own, 1 + np.arange(size) if rank == 0 else [1 + rank])


def gathered(world: MpiWorld, values: np.ndarray) -> list[np.ndarray]:
    """What each rank has, on all ranks."""
    parts = world.exchange([values.reshape(-1).view(np.uint8)] * world.size)
    return [np.frombuffer(part.tobytes(), values.dtype) for part in parts]


def expected(world: MpiWorld, numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sums in the order of ranks, added up one by one."""
    totals: dict[int, np.ndarray] = {}
    for of, rank_values in zip(gathered(world, numbers), gathered(world, values), strict=True):
        for number, value in zip(of.tolist(), rank_values.reshape(-1, SIZE), strict=True):
            totals[number] = totals[number] + value if number in totals else value.copy()
    return np.array([totals[number] for number in numbers.tolist()])


def main() -> None:
    """All messages in all scenes."""
    world, device = MpiWorld(), CpuDevice(threads=1)
    world.communicator = Counting(MPI.COMM_WORLD)
    world.communicator.calls = Counter()
    report: dict[str, dict[str, list[int]]] = {}
    for scene, numbers in scenes(world):
        rng = np.random.default_rng([world.rank, world.size, len(numbers)])
        values = rng.standard_normal((len(numbers), SIZE)) * 10.0 ** rng.integers(-8, 9)
        sharing = find_sharing(world, numbers)
        wanted = expected(world, numbers, values)
        alone = np.ones(len(numbers), bool)
        alone[sharing.first_positions[sharing.groups]] = False
        lowest = np.full(len(numbers), world.rank)
        np.minimum.at(lowest, sharing.first_positions[sharing.groups], sharing.ranks)
        marks = np.where((lowest == world.rank)[:, None], values, 0.0)
        from_owners = expected(world, numbers, marks)
        for messages in get_args(Messages):
            sums = open_node_sums(world, device, sharing, SIZE, transport_of(messages))
            world.communicator.calls.clear()
            for _ in range(3):  # more than one, so that nothing is left over from the first
                state = device.from_host(values.reshape(-1))
                sums.swap(state)
                assert state.tobytes() == wanted.tobytes(), (scene, messages, world.rank)
            calls = np.array([world.communicator.calls[key] // 3 for key in ("sent", "empty")])
            state = device.from_host(marks.reshape(-1))
            sums.gather(state)
            assert state.tobytes() == from_owners.tobytes(), (scene, messages, world.rank)
            assert (state.reshape(-1, SIZE)[alone] == values[alone]).all()
            pairs = np.array([len(np.unique(sharing.ranks))])
            calls = world.sum(np.append(calls, pairs))
            report.setdefault(scene, {})[messages] = calls.tolist()
    if world.is_root:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
