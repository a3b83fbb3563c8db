"""The kernels of a flow case, found by a small flow of its kind on cores, and asked of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from haloscope.case.tables import check
from haloscope.device import jit
from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.exchange.sharing import Sharing
from haloscope.numerics.krylov.node_vectors import NodeVectors, clearing
from haloscope.numerics.shared_node_messages import open_node_sums
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.equations import UNKNOWNS
from haloscope.solvers.flow.solver import FlowSolver
from haloscope.solvers.flow.space_time import SLAB_UNKNOWNS

# Kernels that run on cores alone, by their files.
_CORES_ONLY = ("block_ilu.cpp",)
_SIDES = ("y_low", "y_high", "z_low", "z_high")


class _Noting(CpuDevice):
    """Cores that keep a list of the kernels which are asked for."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.asked: list[tuple[Path, str, jit.Constants]] = []

    def kernel(self, file: Path, name: str, constants: jit.Constants) -> CpuKernel:
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
