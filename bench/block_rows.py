"""Times block sparse rows beside this machine's memory, in turns, in one run: product, preconditioners, GMRES.

    python bench/block_rows.py --device cuda
    python bench/block_rows.py --nodes 2e5 --threads 1

Nodes of a box of tetrahedra, by default as many as XNS' pump has (3.7 M tetrahedra). Bytes are
those that must move: blocks, column numbers, bounds of rows and both vectors once; an iteration of GMRES
goes through all its vectors three times. Prints medians and their share of the rate of a copy, and of
the best ceiling; beside them the product of scipy's BSR, which has one thread.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.interface import Device
from haloscope.device.meters import CeilingProbe
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov.block_rows import BlockPattern, BlockRows, pattern_of
from haloscope.numerics.krylov.node_vectors import NodeVectors
from haloscope.numerics.krylov.smoothers import BlockIlu, PointBlocks
from haloscope.numerics.shared_nodes import SharedNodes


def box(nodes: float) -> tuple[np.ndarray, int]:
    """Six tetrahedra in each cell of a cube with about so many nodes."""
    side = max(2, round(nodes ** (1 / 3)))
    number = np.arange(side**3, dtype=np.int32).reshape((side,) * 3)
    tets = []
    for order in itertools.permutations(range(3)):
        corner, path = [0, 0, 0], [(0, 0, 0)]
        for axis in order:
            corner[axis] = 1
            path.append(tuple(corner))
        ends = [tuple(slice(c, side - 1 + c) for c in at) for at in path]
        tets.append(np.stack([number[end].reshape(-1) for end in ends], axis=1))
    return np.stack(tets, axis=1).reshape(-1, 4), side**3


def filled(device: Device, pattern: BlockPattern, size: int) -> BlockRows:
    """Rows with random blocks, strong on the diagonal."""
    rows, rng = BlockRows(device, pattern, size), np.random.default_rng(1)
    # The same numbers again and again: making so many new ones takes long.
    blocks = device.from_host(rng.standard_normal((1000, size, size)))
    for first in range(0, pattern.blocks, 1000):
        part = rows.values[first : first + 1000]
        part[...] = blocks[: len(part)]
    rows.values[rows.diagonal] += device.from_host(10.0 * size * np.eye(size))
    return rows


def peer(rows: BlockRows, x: Any) -> Callable[[], None] | None:
    """The product of scipy's BSR with the same matrix, checked."""
    if rows.device.kind != "cpu":
        return None
    from scipy.sparse import bsr_matrix

    blocks = np.ascontiguousarray(rows.values.transpose(0, 2, 1))
    matrix, y = bsr_matrix((blocks, rows.columns, rows.starts)), rows.vector()
    rows.multiply(x, y)
    assert np.abs(matrix @ x - y).max() < 1e-12 * np.abs(y).max()
    return lambda: matrix @ x


def work_of(
    rows: BlockRows, device: Device, restart: int
) -> dict[str, tuple[Callable[[], Any], int]]:
    """What is timed, and the bytes that it moves."""
    size, nodes, pattern = rows.size, rows.nodes, rows.pattern
    vector = 8 * size * nodes
    shared = SharedNodes(World(), device, np.arange(nodes))
    x, y = rows.vector(), rows.vector()
    x[:] = device.from_host(np.random.default_rng(2).standard_normal(nodes * size))
    timed: dict[str, tuple[Callable[[], Any], int]] = {
        "product": (lambda: rows.multiply(x, y), rows.bytes_of_product)
    }
    other = peer(rows, x)
    if other is not None:
        timed["scipy BSR"] = (other, rows.bytes_of_product)
    points = PointBlocks(rows, shared)
    points.update()
    timed["point blocks"] = (lambda: points.apply(x, y), nodes * (8 * size**2 + 8) + 2 * vector)
    if device.kind == "cpu":
        for single in (True, False):
            ilu = BlockIlu(rows, shared, single=single)
            start = time.perf_counter()
            ilu.update()
            print(f"ILU(0) factors in {time.perf_counter() - start:.2f} s")
            name = f"ILU(0) {'single' if single else 'double'}"
            stored = pattern.blocks * ((4 if single else 8) * size**2 + 4)
            # Both sweeps read the bounds and the order of rows; the second reads y again.
            moved = stored + 16 * nodes + 4 * vector
            timed[name] = (lambda ilu=ilu: ilu.apply(x, y), moved)
    space = NodeVectors(device, restart + 1, size, np.ones(nodes, bool))
    rng = np.random.default_rng(3)
    for krylov_vector in space.vectors:
        krylov_vector[:] = device.from_host(rng.standard_normal(nodes * size))
    space.start()
    for j in range(1, restart + 1):
        space.extend(j)()
    for j in (1, restart // 2, restart):
        # Three turns through j vectors: the second has both what is subtracted and the next dot
        # products, chunk by chunk. The new vector is read thrice and written twice.
        moved = (3 * j + 5) * vector
        timed[f"orthonormalise {j}"] = (lambda j=j: space.extend(j)(), moved)
    return timed


def main() -> None:
    """Print a line for each kind of work."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--nodes", type=float, default=636_000)
    parser.add_argument("--size", type=int, default=4, help="unknowns a node")
    parser.add_argument("--restart", type=int, default=30)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    device = open_device(options.device, threads=options.threads)
    elements, nodes = box(options.nodes)
    start = time.perf_counter()
    pattern = pattern_of(device, elements, nodes)
    print(
        f"{device.name}: {nodes} nodes, {len(elements)} tetrahedra, {pattern.blocks / nodes:.2f} "
        f"blocks a row, pattern in {time.perf_counter() - start:.2f} s"
    )
    rows = filled(device, pattern, options.size)
    print(f"a product moves {rows.bytes_of_product / nodes:.0f} bytes a node row")
    timed, probe = work_of(rows, device, options.restart), CeilingProbe(device)
    seconds: dict[str, list[float]] = {name: [] for name in timed}
    ceilings = []
    for work, _ in timed.values():
        device.seconds(work)
    for _ in range(options.repeats):
        ceilings.append(probe.measure())
        for name, (work, _) in timed.items():
            seconds[name].append(device.seconds(work))
    copy = statistics.median(ceiling.copy for ceiling in ceilings)
    best = statistics.median(ceiling.best for ceiling in ceilings)
    print(f"copy {copy:.1f} GB/s, best ceiling {best:.1f} GB/s")
    for name, (_, moved) in timed.items():
        median = statistics.median(seconds[name])
        rate = moved / median / 1e9
        print(
            f"{name:18s} {1e3 * median:8.3f} ms {rate:8.1f} GB/s  {rate / copy:5.2f} of copy, "
            f"{rate / best:5.2f} of the best",
            flush=True,
        )


if __name__ == "__main__":
    main()
