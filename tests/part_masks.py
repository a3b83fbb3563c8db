"""Elements of the named parts of each solver's fields, from the meshes, lattices and cells themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from haloscope.device.program import View
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE
from haloscope.solvers.blood.fluid.populations import pushed
from haloscope.solvers.blood.solver import BloodSolver
from haloscope.solvers.cavity.solver import CavitySolver
from haloscope.solvers.maxwell.solver import MaxwellSolver
from haloscope.solvers.maxwell.stepping import PARTS


def masks_of(solver: Any) -> Any:
    """A function that gives the elements of a view."""
    if isinstance(solver, CavitySolver):
        numbers = {"core": 0, "rim": 1, "core walls": 2, "rim walls": 3, "ghosts": 4}
        places = _cavity_places(solver)
        return lambda view: np.isin(places, [numbers[part] for part in view.parts])
    if isinstance(solver, MaxwellSolver):
        return lambda view: _maxwell_mask(solver, view)
    assert isinstance(solver, BloodSolver)
    return lambda view: _blood_mask(solver, view)


def _cavity_places(solver: CavitySolver) -> np.ndarray:
    """Number of the part of each value of a state."""
    layout, nodes = solver.nodes.layout, solver.nodes
    shells, _ = solver.stepping._split()
    shape, ghosts = layout.shape, layout.ghosts
    axes = [np.arange(-g, n + g) for n, g in zip(shape, ghosts, strict=True)]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    at = np.stack([x, y, z])
    low, high = (np.reshape(end, (3, 1, 1, 1)) for end in nodes.updated())
    updated = ((at >= low) & (at < high)).all(axis=0)
    beyond = np.zeros(x.shape, bool)
    for side in nodes.block.neighbours:
        edge = -1 if side.direction < 0 else shape[side.axis]
        beyond |= at[side.axis] <= edge if side.direction < 0 else at[side.axis] >= edge
    # Nodes of walls belong to the rim where the updated node next to them does.
    nearest = np.clip(at, low, high - 1)
    rim = np.zeros(x.shape, bool)
    for start, stop in shells:
        a, b = np.reshape(start, (3, 1, 1, 1)), np.reshape(stop, (3, 1, 1, 1))
        rim |= ((nearest >= a) & (nearest < b)).all(axis=0)
    part = np.where(beyond, 4, np.where(updated, 0, 2) + rim)
    places = np.full(len(solver.operands.states[0]), 5)
    index = layout.first + np.tensordot(layout.strides, at, 1)
    for number in range(nodes.field_count):
        places[index + number * layout.field_stride] = part
    return places


def _maxwell_mask(solver: MaxwellSolver, view: View) -> np.ndarray:
    stepping = solver.stepping
    values = np.full(view.field.array.size, 2)
    own = len(stepping._outgoing[0]) if view.field.name.startswith("traces") else len(values)
    waits = np.repeat(
        [not group.waited_for for group in stepping.part.ranges],
        [group.count for group in stepping.part.ranges],
    )
    values[:own] = np.repeat(waits, own // len(waits))
    names = (*PARTS, "incoming")
    return np.isin(values, [names.index(part) for part in view.parts])


def _blood_mask(solver: BloodSolver, view: View) -> np.ndarray | None:
    if view.partition == "cells":
        return _cells_mask(solver, view)
    fluid, stride = solver.fluid, solver.fluid.stride
    if view.field not in (*fluid.state.fields, fluid.velocity_field):
        return None  # of the flow that feeds cells
    points = np.full(stride, 3)
    points[: fluid.owned] = np.where(fluid.on_edge, 0, 1)
    points[fluid.bulk : fluid.owned] = 2
    names = ["edge", "interior", "openings", "ghosts"]
    if view.partition != "pushed":
        parts = np.tile(points, view.field.array.size // stride)
        return np.isin(parts, [names.index(part) for part in view.parts])
    # Slots by the point that leaves something there: that of a neighbour, or its own at a wall.
    parts = np.full(DIRECTIONS * stride, 3)
    own = points[: fluid.owned]
    parts[: fluid.owned] = own
    for i, sources in enumerate(solver.part.sources, 1):
        wall = sources < 0
        parts[i * stride + np.flatnonzero(wall)] = own[wall]
        parts[int(OPPOSITE[i]) * stride + sources[~wall].astype(np.int64)] = own[~wall]
    return np.isin(parts, [names.index(name) for name in names if pushed(name) in view.parts])


def _cells_mask(solver: BloodSolver, view: View) -> np.ndarray | None:
    names = ("alone", "own", "copies")
    for local in solver.suspension.kinds:
        cells = local.membranes
        if any(field is view.field for field in cells._fields.values()):
            part = np.full(cells.capacity, len(names))
            ends = np.cumsum(cells.parts)
            part[cells._divided[: ends[-1]]] = np.repeat(np.arange(3), cells.parts)
            rows = np.tile(np.repeat(part, cells.vertices), 3)
            return np.isin(rows, [names.index(name) for name in view.parts])
    return None
