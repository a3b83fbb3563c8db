"""Kernels of a flow case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.case.tables import check
from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.declarations import Constants
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.exchange.sharing import Sharing
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.numerics.krylov.block_ilu import BlockIlu
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.node_vectors import NodeVectors, clearing
from haloscope.numerics.shared_nodes import SharedNodes, open_node_sums
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.equations.equations import UNKNOWNS, FlowEquations, Medium
from haloscope.solvers.flow.equations.space_time import SLAB_UNKNOWNS
from haloscope.solvers.flow.solver import FlowSolver
from haloscope.solvers.flow.steps import BYTES_OF_A_FACTOR, bytes_of_forming
from haloscope.solvers.interface import BenchKernel

# Kernels that run on cores alone, by their files.
_CORES_ONLY = ("block_ilu.cpp",)
_SIDES = ("y_low", "y_high", "z_low", "z_high")


class _Noting(CpuDevice):
    """Cores that keep a list of the kernels which are asked for."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.asked: list[tuple[Path, str, Constants]] = []

    def kernel(self, file: Path, name: str, constants: Constants) -> CpuKernel:
        """As of cores, and noted."""
        self.asked.append((file, name, constants))
        return super().kernel(file, name, constants)


def ask_for_kernels(case: FlowCase, device: Device, world: World) -> None:
    """Ask a device for the kernels that a rank of a case needs; for a device that runs none."""
    # What they are is seen on a flow in a small box with the case's fluid, steps and linear solver,
    # of which the cores of this machine take a step. A few for GPUs alone are compiled when a run
    # first asks for them.
    noting = _Noting()
    chosen: tuple[str, ...] = (_preconditioner(case),)
    if device.kind != "cpu" and chosen == ("two-level",):
        # What smooths on a GPU, and does not on the cores that play through it.
        chosen += ("coloured-ilu",)
    for preconditioner in chosen:
        small = check(_small(case, preconditioner), FlowCase, "case")
        assert isinstance(small, FlowCase)
        FlowSolver(small, noting, World()).advance(1)
    for file, name, constants in noting.asked:
        if device.kind == "cpu" or file.name not in _CORES_ONLY:
            device.kernel(file, name, constants)
    if world.size > 1:
        _ask_for_exchange(case, device, world)


def _preconditioner(case: FlowCase) -> str:
    named = case.flow.linear.preconditioner
    return "two-level" if named == "auto" else named


def _ask_for_exchange(case: FlowCase, device: Device, world: World) -> None:
    """Ask for what ranks add up over shared nodes with: here one node, which rank 1 has, too."""
    table, transport = case.flow, case.machine.transport
    size = SLAB_UNKNOWNS if table.time.scheme == "space-time" else UNKNOWNS
    # Marks of boundaries, residuals and velocities, vectors, and blocks of the matrix.
    sums: set[tuple[int, DTypeLike]] = {
        (fields, np.float64) for fields in (1, UNKNOWNS, size, size**2)
    }
    if _preconditioner(case) == "two-level":
        sums.add((size**2, np.float32))
    if table.shear is not None:
        # Stagnation; shear rate and stress; each with a volume.
        sums |= {(2, np.float64), (3, np.float64)}
    one = np.zeros(1, np.int64)
    shared = Sharing(world.rank, 1, one + 1, np.array([0, 1]), one, one, one + 1, one + 1)
    for fields, dtype in sorted(sums, key=str):
        state = device.zeros((fields,), dtype)
        open_node_sums(world, device, shared, fields, transport, dtype).prepare(state)
    clearing(device, one, device.zeros((size,), np.float64), size)
    if device.kind != "cpu":
        NodeVectors(device, 1, 1, np.ones(1, bool), world, transport).launch(0)


def _small(case: FlowCase, preconditioner: str) -> dict[str, Any]:
    """A flow in a box, as data of a case."""
    table = case.flow
    time: dict[str, Any] = {"scheme": table.time.scheme}
    if not table.steady:
        time |= {"time_step": 0.1, "end": 0.1}
    fluid: dict[str, Any] = {"density": 1.0, "viscosity": 1.0}
    if table.fluid.carreau is not None:
        fluid["carreau"] = {"at_high_shear": 0.5, "time": 1.0, "exponent": 0.5}
    boundaries: dict[str, Any] = {"x_low": {"velocity": [1.0, 0.0, 0.0]}, "y_low": "no-slip"}
    outlet = {"pressure": 0.0}
    if table.time.scheme != "space-time":
        outlet["backflow"] = 0.5
    return {
        "solver": "flow",
        "flow": {
            "box": {"cells": [2, 2, 2]},
            "fluid": fluid,
            "boundaries": {
                **dict.fromkeys(_SIDES, "slip" if table.linear.product == "stored" else "no-slip"),
                **boundaries,
                "x_high": outlet,
            },
            "time": time,
            "newton": {
                "iterations": 1,
                "tolerance": 0.0,
                "linearise_tau": table.newton.linearise_tau,
            },
            "linear": {"preconditioner": preconditioner, "product": table.linear.product},
        },
    }


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
