"""Times an exchange with both neighbours on a ring of ranks, by transport and message size.

Every rank packs two messages, sends one to each neighbour, receives two and unpacks them. Start it
with mpiexec, one rank a GPU (or a few cores):

    mpiexec -n 4 python bench/exchange_links.py --device cuda

Times are the slowest rank's, medians of several replays of a CUDA graph of twenty exchanges where the
transport can be captured, of twenty exchanges in a row elsewhere. Received values are compared with the
sent ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.interface import Box
from haloscope.errors import HaloscopeError
from haloscope.exchange.plan import Message, Plan
from haloscope.exchange.ranks.world import World, open_world
from haloscope.mesh.halo import open_boxes

TURNS = 20
REPEATS = 9
SIZES = [1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20, 64 << 20]


def ring(world: World, values: int) -> Plan:
    """Ghosts, own, own, ghosts in one array: `values` numbers each."""
    ghost_low, own_low, own_high, ghost_high = (
        Box(part * values, (values, 1, 1), (1, values, values)) for part in range(4)
    )
    low, high = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    if low == high:
        sends = (Message(low, (own_low, own_high)),)
        return Plan(sends, (Message(low, (ghost_high, ghost_low)),))
    sends = (Message(low, (own_low,)), Message(high, (own_high,)))
    receives = (Message(low, (ghost_low,)), Message(high, (ghost_high,)))
    return Plan(
        tuple(sorted(sends, key=lambda m: m.rank)), tuple(sorted(receives, key=lambda m: m.rank))
    )


def measure(world: World, device: Any, name: str, size: int) -> dict[str, float]:
    """Seconds an exchange, and of the host's work for it, for messages of `size` bytes."""
    values = size // 8
    exchange = open_boxes(world, device, ring(world, values), np.float64, name)
    state = device.zeros((4 * values,), np.float64)
    exchange.prepare(state)
    state[values : 3 * values] = device.from_host(
        np.arange(2 * values, dtype=np.float64) + 1e9 * world.rank
    )

    def swaps() -> None:
        for _ in range(TURNS):
            exchange.swap(state)

    def halves() -> None:
        for _ in range(TURNS):
            exchange.start(state)
            exchange.finish(state)

    medians: dict[str, float] = {}
    for label, work in (("swap", swaps), ("start and finish", halves)):
        run = device.graph(work).replay if exchange.capturable else work
        times, host = [], []
        for _ in range(REPEATS + 2):
            device.synchronise()
            world.barrier()
            began = time.perf_counter()
            run()
            host.append((time.perf_counter() - began) / TURNS)
            device.synchronise()
            world.barrier()
            times.append(world.largest(device.seconds(run)) / TURNS)
        medians[label] = statistics.median(times[2:])
        medians["host"] = statistics.median(host[2:])
    got = device.to_host(state)
    low, high = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    numbers = np.arange(2 * values, dtype=np.float64)
    assert np.array_equal(got[:values], numbers[values:] + 1e9 * low)
    assert np.array_equal(got[3 * values :], numbers[:values] + 1e9 * high)
    return medians


def main() -> None:
    """Print a table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--transports", nargs="*")
    parser.add_argument("--bytes", nargs="*", type=int, default=SIZES)
    options = parser.parse_args()
    world = open_world()
    device = open_device(options.device, local_rank=world.local_rank)
    usual = ["host"] if device.kind == "cpu" else ["peer", "nccl", "mpi", "staged"]
    for name in options.transports or usual:
        for size in options.bytes:
            try:
                medians = measure(world, device, name, size)
            except HaloscopeError as error:
                if world.is_root:
                    print(f"{name:<8} {error}", flush=True)
                break
            if world.is_root:
                rate = 2 * size / medians["swap"] / 1e9
                print(
                    f"{name:<8}{size:>12} B each way{1e6 * medians['swap']:>10.1f} us"
                    f"{rate:>8.1f} GB/s out{1e6 * medians['start and finish']:>10.1f} us in halves"
                    f"{1e6 * medians['host']:>10.2f} us of the host",
                    flush=True,
                )


if __name__ == "__main__":
    main()
