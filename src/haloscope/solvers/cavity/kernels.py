"""Kernels of a cavity case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from haloscope.case.tables import check
from haloscope.device.interface import Device
from haloscope.device.targets import KernelFile, Target
from haloscope.exchange.ranks.world import World
from haloscope.mesh import halo
from haloscope.mesh.blocks import Blocks, Layout, halo_plan
from haloscope.numerics import reduce
from haloscope.solvers.cavity.block_nodes import (
    SOURCE,
    axes_of,
    kernel_constants,
    partition,
    tile_constants,
    tiles_for,
)
from haloscope.solvers.cavity.case import CavityCase, Flow
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.solvers.interface import BenchKernel


def manifest(case: CavityCase, target: Target, ranks: int) -> Iterator[KernelFile]:
    """All kernel files that the ranks of a case need on a target."""
    flow, blocks = Flow(case.cavity), partition(case, ranks)
    dimensions = case.cavity.dimensions
    axes = axes_of(case, blocks, target.kind)
    for rank in range(blocks.count):
        cut = {side.axis for side in blocks.block(rank).neighbours}
        constants = kernel_constants(flow, target.kind, axes, cut)
        yield KernelFile(SOURCE, constants)
        for tile in tiles_for(target, str(constants["real"]), dimensions):
            yield KernelFile(SOURCE, constants | tile_constants(tile))
    dtype = np.dtype(np.float32 if case.cavity.precision == "single" else np.float64)
    yield from reduce.kernel_files(dtype, target)
    if ranks > 1:
        yield halo.kernel_file(dtype)


# Kernels may have steps where powers of two have none, so one of them is another number.
# Fewest nodes along an axis.
LEAST_SIZE = 6
_SIZES = {"cpu": (64, 100, 128, 256), "cuda": (64, 128, 220, 256, 512)}


def kernels(device: Device, sizes: Sequence[int] | None = None) -> Iterator[BenchKernel]:
    """The kernels of a step on cubes, and of an exchange of all six sides.

    Bytes a cell: the step reads and writes five fields once; a wall node reads four pressures
    and two temperatures and writes three values; pack and unpack read and write each value.
    """
    for nodes in sizes or _SIZES[device.kind]:
        for mode in ("global", "local"):
            data = {"solver": "cavity", "cavity": {"nodes": nodes, "time_step": mode}}
            case = check(data, CavityCase, "benchmark")
            assert isinstance(case, CavityCase)
            solver = CavitySolver(case, device, World())
            cells = solver.work.cells
            size = f"{nodes}^3"
            # Launches that take turns, as the two buffers of a run do.
            turns = itertools.cycle([launches[0] for launches in solver.stepping.interior])
            update = partial(_launch_next, turns)
            yield BenchKernel(f"update ({mode} step)", size, cells, 80.0, update)
            pairs = 20 if device.kind != "cpu" else 1
            yield BenchKernel(
                f"whole step ({mode})",
                size,
                cells * 2 * pairs,
                80.0,
                partial(solver.stepping.take, 2 * pairs),
            )
        yield BenchKernel("walls", size, 6 * (nodes - 2) ** 2, 9 * 8.0, solver.walls.launches[0])
        yield from _exchange_kernels(device, nodes, size)


def _exchange_kernels(device: Device, nodes: int, size: str) -> Iterator[BenchKernel]:
    """Pack and unpack of a block that is cut on all six sides, rows laid as the solver's."""
    pitch = (nodes + 4 + 7) // 8 * 8
    row, plane = 5 * pitch, 5 * pitch * (nodes + 4)
    layout = Layout((nodes,) * 3, (1, row, plane), 2 + 2 * row + 2 * plane, pitch, (2, 2, 2))
    block = Blocks(layout.shape, (1, 1, 1), (True, True, True)).block(0)
    plan = halo_plan(block, layout, [2, 1, 1, 1, 1])
    # Without flags: pack and unpack are timed apart, and an unpack would wait for its pack.
    name = "host" if device.kind == "cpu" else "staged"
    exchange = halo.open_boxes(World(), device, plan, np.dtype("f8"), name)
    state = device.zeros((plane * (nodes + 4),), "f8")
    values = sum(message.size for message in plan.sends)
    yield BenchKernel("pack, all six sides", size, values, 16.0, exchange.pack_of(state))
    yield BenchKernel(
        "unpack, all six sides", size, values, 16.0, exchange.results_of(state).unpack
    )


def _launch_next(launches: Iterator[Callable[[], None]]) -> None:
    next(launches)()
