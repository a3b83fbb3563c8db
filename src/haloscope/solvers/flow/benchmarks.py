"""Flow's kernels as `haloscope bench` times them, each with its bytes model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_ilu import BlockIlu
from haloscope.numerics.krylov.block_pattern import pattern_of
from haloscope.numerics.krylov.block_rows import BlockRows
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations import UNKNOWNS, FlowEquations, Medium
from haloscope.solvers.flow.work import BYTES_OF_A_FACTOR, bytes_of_forming
from haloscope.solvers.interface import BenchKernel

_SIZES = {"cpu": (16, 32), "cuda": (32, 64)}


def kernels(device: Device, sizes: Sequence[int] | None = None) -> Iterator[BenchKernel]:
    """What a Newton iteration consists of, on a box of about so many nodes along an axis.

    Bytes a node: matrix and residual formed (elements read, blocks written), product (blocks and
    vectors once), and on cores the sweeps of block ILU(0), whose factors are in single precision.
    """
    for along in sizes or _SIZES[device.kind]:
        mesh = tet_box((max(2, along - 1),) * 3)
        count = len(mesh.nodes)
        rows = BlockRows(device, pattern_of(device, mesh.tets.astype(np.int32), count), UNKNOWNS)
        equations = FlowEquations(rows, mesh.nodes, [Medium(1.0, 0.01)])
        equations.set_time(150.0, 100.0)
        state = device.from_host(np.random.default_rng(1).standard_normal(UNKNOWNS * count))
        past, residual = device.zeros((3 * count,), np.float64), rows.vector()
        size = f"{count} nodes"

        vectors = (state, past, residual)
        yield BenchKernel(
            "form both sides",
            size,
            count,
            bytes_of_forming(rows, mesh.count) / count,
            partial(equations.linearise, *vectors),
        )
        result = rows.vector()
        yield BenchKernel(
            "matrix-vector product",
            size,
            count,
            rows.bytes_of_product / count,
            partial(rows.multiply, residual, result),
        )
        if device.kind != "cpu":
            continue
        factors = BlockIlu(rows, SharedNodes(World(), device, np.arange(count)))
        factors.update()
        vector = 8 * UNKNOWNS
        yield BenchKernel(
            "block ILU(0) sweeps",
            size,
            count,
            rows.pattern.blocks * BYTES_OF_A_FACTOR / count + 2 * vector,
            partial(factors.apply, residual, result),
        )
