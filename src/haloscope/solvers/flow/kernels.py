"""Kernels of a flow case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from haloscope.device.interface import Device
from haloscope.device.targets import HostFile, KernelFile, Target
from haloscope.exchange import entries
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import CORNERS
from haloscope.numerics import shared_nodes
from haloscope.numerics.krylov import block_rows, node_vectors, smoothers, two_level
from haloscope.numerics.krylov.block_rows import OFFSET_TYPES, BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow import boundary_equations
from haloscope.solvers.flow.case import FlowCase, FlowTable
from haloscope.solvers.flow.derived_fields import summed_fields
from haloscope.solvers.flow.equations.equations import (
    UNKNOWNS,
    FlowEquations,
    Medium,
    SlabEquations,
    Terms,
    matrix_free_file,
)
from haloscope.solvers.flow.equations.newton import rounds
from haloscope.solvers.flow.solver import KEPT
from haloscope.solvers.flow.steps import BYTES_OF_A_FACTOR, bytes_of_forming
from haloscope.solvers.flow.system import preconditioner_of, unknowns_of
from haloscope.solvers.interface import BenchKernel


def manifest(case: FlowCase, target: Target, ranks: int) -> Iterator[KernelFile]:
    """All kernel files that the ranks of a case need on a target."""
    table = case.flow
    size, offsets, tolerance = unknowns_of(table), _offsets(table), table.linear.tolerance
    terms = Terms(carreau=table.fluid.carreau is not None, tau_slope=table.newton.linearise_tau)
    yield HostFile(*block_rows.pattern_file(CORNERS))
    for offset in offsets:
        yield HostFile(*block_rows.pattern_file(CORNERS, offset))
    stored = table.linear.product == "stored"
    if not stored:
        yield matrix_free_file(terms)
        offsets = (OFFSET_TYPES[1],)
    slabs = table.time.scheme == "space-time"
    equations = SlabEquations if slabs else FlowEquations
    for offset in offsets:
        yield equations.kernel_file(terms, offset)
    yield block_rows.kernel_file(size)
    if stored and rounds(target, tolerance):
        yield block_rows.kernel_file(size, "float")
    if not slabs:
        yield boundary_equations.kernel_file()
    # Vectors of the linear solver; single prescribed unknowns.
    for fields in (1, size):
        yield node_vectors.kernel_file(fields)
    yield from _preconditioner_files(preconditioner_of(table), size, target)
    if ranks > 1:
        yield from _exchange_files(table, size, target)


def _offsets(table: FlowTable) -> tuple[str, ...]:
    """Types of numbers of blocks in a row that the case's mesh can lead to."""
    if table.mesh is not None or table.pump is not None:
        return tuple(OFFSET_TYPES.values())
    # In what is made of prisms and cubes a node has some thirty neighbours at most.
    return (OFFSET_TYPES[1],)


def _preconditioner_files(name: str, size: int, target: Target) -> Iterator[KernelFile]:
    if name == "two-level":
        yield two_level.inverse_file(size)
        for slot_bytes in OFFSET_TYPES:
            yield two_level.kernel_file(size, np.float32, slot_bytes)
    on_cores = target.kind == "cpu"
    if on_cores and name in ("two-level", "block-ilu"):
        yield smoothers.block_ilu_file(size)
    if name == "coloured-ilu" or (name == "two-level" and not on_cores):
        yield smoothers.coloured_ilu_file(size)
        yield HostFile(*smoothers.colouring_file())


def _exchange_files(table: FlowTable, size: int, target: Target) -> Iterator[KernelFile]:
    """Kernels of sums over shared nodes, and on GPUs over all ranks."""
    whole = {UNKNOWNS, size, *((len("xyz"),) if KEPT[table.time.scheme] else ())}
    # Marks of boundaries, what has its owner's values, blocks of the matrix, and results.
    sums = {1, *whole, size**2}
    if table.shear is not None:
        sums |= summed_fields(table.shear)
    for fields in sorted(sums):
        yield from shared_nodes.kernel_files(fields)
    if preconditioner_of(table) == "two-level":
        yield from shared_nodes.kernel_files(size**2, np.float32)
    for fields in sorted(whole):
        yield node_vectors.kernel_file(fields)
    if target.kind != "cpu":
        # Sums over ranks; where GPUs cannot write into each other's memory, rows that are copied.
        yield node_vectors.rank_sums_file()
        yield from entries.kernel_files(np.float64, 1, math.inf)
        if preconditioner_of(table) == "two-level":
            # Rows of the coarse matrix that one rank has.
            yield from entries.kernel_files(np.float64, size**2, math.inf)


# Fewest nodes along an axis: those of two elements.
LEAST_SIZE = 3
_SIZES = {"cpu": (16, 32), "cuda": (32, 64)}


def kernels(device: Device, sizes: Sequence[int] | None = None) -> Iterator[BenchKernel]:
    """Kernels of a Newton iteration, on a box with about this number of nodes along an axis.

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

        result = rows.vector()
        moved = bytes_of_forming(rows, mesh.count) / count
        form = partial(equations.linearise, state, past, residual)
        yield BenchKernel("form both sides", size, count, moved, form)
        moved, product = rows.bytes_of_product / count, partial(rows.multiply, residual, result)
        yield BenchKernel("matrix-vector product", size, count, moved, product)
        if device.kind == "cpu":
            # Of the matrix that the first kernel has formed by now.
            factors = BlockIlu(rows, SharedNodes(World(), device, np.arange(count)))
            factors.update()
            moved = rows.pattern.blocks * BYTES_OF_A_FACTOR / count + 2 * 8 * UNKNOWNS
            sweeps = partial(factors.apply, residual, result)
            yield BenchKernel("block ILU(0) sweeps", size, count, moved, sweeps)
