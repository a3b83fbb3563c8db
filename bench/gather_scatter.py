"""Times gather-scatter on the faces of a periodic box of spectral elements: how it is sent, what is sent.

Each rank has a box of elements on top of the one below; only points of faces are held. Start it with
mpiexec, one rank a GPU (or a few cores):

    mpiexec -n 2 python bench/gather_scatter.py --device cpu --elements 6 --order 7

Times are the slowest rank's, medians of several runs of ten exchanges, of a CUDA graph where the
transport can be captured. Set-up is everything from the numbers on, kernels compiled before.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.errors import HaloscopeError
from haloscope.exchange.entries import Placement, open_pairing, open_sums
from haloscope.exchange.plan import find_sharing
from haloscope.exchange.ranks.world import World, open_world
from haloscope.study.exchanges import field_by_field

TURNS = 10
REPEATS = 7


def face_numbers(world: World, elements: int, order: int) -> np.ndarray:
    """Global numbers (element, face, point): a face is that at the low side of an element."""
    n, layers = elements, elements * world.size
    z, y, x = np.indices((n, n, n)).reshape(3, -1)
    z = z + world.rank * n
    points = (order + 1) ** 2
    numbers = np.empty((n**3, 6, points), np.int64)
    for axis in range(3):
        for side in range(2):
            at = [x, y, z]
            at[axis] = (at[axis] + side) % (n, n, layers)[axis]
            face = axis + 3 * (at[0] + n * (at[1] + n * at[2]))
            numbers[:, 2 * axis + side] = 1 + face[:, None] * points + np.arange(points)
    return numbers


def seconds(world: World, device: Any, opened: Any, state: Any) -> float:
    """Time of one exchange on the slowest rank."""

    def turns() -> None:
        for _ in range(TURNS):
            opened.swap(state)

    opened.prepare(state)
    run = device.graph(turns).replay if opened.capturable else turns
    times = []
    for _ in range(REPEATS + 2):
        device.synchronise()
        world.barrier()
        times.append(world.largest(device.seconds(run)) / TURNS)
    return statistics.median(times[2:])


def _one_by_one(opener: Any) -> Any:
    """Open an exchange for each field, as for all of them."""

    def opened(
        world: World, device: Any, ids: Any, fields: int, dtype: Any, transport: str, **options: Any
    ) -> Any:
        sharing = find_sharing(world, ids)
        one = functools.partial(opener, world, device, sharing, 1, dtype, **options)
        return field_by_field(one, fields, Placement(0, 1, ids.size), transport)

    return opened


def main() -> None:
    """Print a table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--transports", nargs="*", default=["auto"])
    parser.add_argument("--elements", type=int, default=6, help="along each side of a rank's box")
    parser.add_argument("--order", type=int, default=7)
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank)
    ids = face_numbers(world, options.elements, options.order)
    mixed = np.random.default_rng(1).permutation(int(3 * ids.size * world.size))
    kinds: list[tuple[str, Any, int, np.ndarray, dict[str, Any]]] = [
        ("sum of 6 fields, one by one", _one_by_one(open_sums), 6, ids, {}),
        ("sum of 6 fields", open_sums, 6, ids, {}),
        ("sum of 6 fields, mixed numbers", open_sums, 6, mixed[ids] + 1, {}),
        ("swap of 4 fields, one by one", _one_by_one(open_pairing), 4, ids, {}),
        ("swap of 4 fields", open_pairing, 4, ids, {}),
        ("swap of 4 fields across ranks", open_pairing, 4, ids, {"across_only": True}),
    ]
    if world.is_root:
        print(f"{world.size} ranks, {ids.size} face points each, load {os.getloadavg()[0]:.1f}")
    for transport in options.transports:
        for name, opener, fields, numbers, choices in kinds:
            try:
                state = device.zeros((fields * ids.size,), np.float64)
                opener(world, device, numbers, fields, np.float64, transport, **choices).prepare(
                    state
                )
                began = time.perf_counter()
                opened = opener(
                    world, device, numbers, fields, np.float64, transport, state=state, **choices
                )
                set_up = world.largest(time.perf_counter() - began)
            except HaloscopeError as error:
                if world.is_root:
                    print(f"{transport:<8} {error}", flush=True)
                break
            sum_seconds = seconds(world, device, opened, state)
            if world.is_root:
                print(
                    f"{opened.transport:<8}{name:<32}{1e6 * sum_seconds:>9.1f} us"
                    f"{opened.bytes_sent / 1e3:>9.1f} kB out in {opened.messages_sent:>2} messages"
                    f"{set_up:>8.3f} s of set-up",
                    flush=True,
                )


if __name__ == "__main__":
    main()
