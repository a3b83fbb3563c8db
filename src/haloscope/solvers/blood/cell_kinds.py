"""Kinds of cells: their meshes and laws in lattice units, and the starting positions of cells."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Device
from haloscope.errors import FIELDS, InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_runs import raster
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case_cells import CellsTable
from haloscope.solvers.blood.cells.local_cells import CellKind
from haloscope.solvers.blood.filling.filling import Filling, cell_counts, check_cells, fill
from haloscope.solvers.blood.filling.lumen import Lumen
from haloscope.solvers.blood.filling.packing import Cells, neighbour_pairs, rotations
from haloscope.solvers.blood.filling.shapes import CellShape
from haloscope.solvers.blood.membranes.membranes import MembraneLaw
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, platelet, red_cell, sphere
from haloscope.solvers.blood.units import MICRO, LatticeUnits

Floats = NDArray[np.float64]

# Layers of points before openings in which no cell starts: where one would leave at once, and one more.
_CLEAR = 3
# Least distance of centres over the least radius, from which on overlaps are seen by their depth.
_LEAST_APART = 0.1


def mesh_of(table: CellsTable) -> MembraneMesh:
    """Shape at rest, its axis along z, in um."""
    if table.shape == "biconcave":
        return red_cell(table.vertices, table.radius_um)
    if table.shape == "sphere":
        return sphere(table.vertices, table.radius_um)
    return platelet(table.vertices, table.radius_um, table.thickness)


def shape_of(table: CellsTable) -> CellShape:
    """The same as packing sees it, in um."""
    if table.shape == "biconcave":
        return CellShape.biconcave(table.radius_um)
    thickness = table.thickness if table.shape == "oblate" else 1.0
    return CellShape.oblate(table.radius_um, thickness)


def filling_of(table: CellsTable) -> Filling:
    """How many of a kind there are to be: cells count with the volume of their meshes."""
    return Filling(shape_of(table), table.hematocrit, mesh_of(table).volume())


def kind_of(table: CellsTable, units: LatticeUnits) -> CellKind:
    """Mesh and law of a kind in lattice units."""
    return CellKind(
        table.name,
        mesh_of(table).scaled(MICRO / units.spacing),
        MembraneLaw(
            table.shear_modulus_un_m * 1e-6 / units.surface_modulus,
            table.law,
            table.area_ratio,
            table.bending_modulus_j / units.energy,
            "reference" if table.spontaneous_curvature == "rest" else 0.0,
            table.area_modulus_un_m * 1e-6 / units.surface_modulus,
            table.firmness(units),
            table.membrane_viscosity_un_s_m * 1e-6 / units.surface_viscosity,
            table.viscous_stiffness,
            table.fold_guard,
        ),
        table.elements,
        table.viscosity_ratio != 1.0,
    )


def on_cores(device: Device) -> Device:
    """The device if it is cores, which keeps its threads; else all cores."""
    return device if device.kind == "cpu" else CpuDevice()


def lumen_of(lattice: Lattice, reach: float, *, clear: int = 0) -> Lumen:
    """The vessel as packing sees it, in um.

    `reach`: to how far from walls distances are known, in um.
    """
    inside = np.zeros(math.prod(lattice.shape), bool)
    inside[lattice.runs.numbers()] = True
    for opening in lattice.openings:
        places = lattice.coordinates(opening.numbers)
        for layer in range(min(clear, lattice.shape[opening.axis])):
            before = places.copy()
            before[:, opening.axis] -= opening.direction * layer
            inside[raster(lattice.shape, before)] = False
    spacing = lattice.spacing / MICRO
    return Lumen.from_points(
        inside.reshape(lattice.shape[::-1]),
        spacing,
        lattice.origin / MICRO,
        lattice.periodic,
        reach,
    )


def starting_cells(
    tables: Sequence[CellsTable],
    lattice: Lattice,
    seed: int,
    world: World,
    device: Device,
    *,
    fed: bool = False,
) -> Cells:
    """Where cells start, in um, ordered by kind; the same on every rank; all ranks call this.

    `fed`: others come in later, so that there may be less than one of a kind.
    """
    rows, fault = np.zeros((0, 8)), ""
    if world.is_root:
        try:
            cells = _starting_cells(tables, lattice, seed, on_cores(device), fed=fed)
            rows = np.column_stack([cells.positions, cells.quaternions, cells.kinds])
        except InputError as error:
            fault = json.dumps({field: getattr(error, field) for field in FIELDS})
    fault = "".join(world.gather_texts(fault))
    if fault:
        raise InputError(**json.loads(fault))
    count = int(world.broadcast(np.array([len(rows)], np.int64))[0])
    rows = world.broadcast(rows if world.is_root else np.zeros((count, 8)))
    return Cells(rows[:, :3], rows[:, 3:7], rows[:, 7].astype(np.int64))


def _starting_cells(
    tables: Sequence[CellsTable], lattice: Lattice, seed: int, device: Device, *, fed: bool
) -> Cells:
    shapes = [shape_of(table) for table in tables]
    widest = max(table.radius_um for table in tables)
    full = any(table.hematocrit for table in tables)
    lumen = lumen_of(lattice, 2 * widest, clear=_CLEAR if full else 0)
    fillings = [filling_of(table) for table in tables]
    placed = _placed(tables)
    if full:
        if placed.count:
            raise InputError(
                "some kinds have a hematocrit and others have placed cells",
                location="blood.cells",
                remedy="use hematocrit for all kinds, or placed for all kinds",
            )
        _check_counts(tables, cell_counts(lumen, fillings), lumen, fed=fed)
        return fill(device, lumen, fillings, seed)
    _check_within(placed, lattice)
    _check_apart(tables, placed, lumen)
    low, high = lattice.bounds
    check_cells(device, lumen, shapes, placed, bounds=(low / MICRO, high / MICRO))
    return placed


def _check_counts(
    tables: Sequence[CellsTable], counts: Sequence[int], lumen: Lumen, *, fed: bool
) -> None:
    """Refuse a hematocrit of less than one cell, but where cells come in later."""
    for table, count in zip(tables, counts, strict=True):
        if table.hematocrit and not count and not fed:
            one = mesh_of(table).volume() / lumen.volume
            raise InputError(
                f"this is less than one cell; one cell in this vessel is a hematocrit of {one:.2g}",
                location=f"blood.cells {table.name}, hematocrit = {table.hematocrit:g}",
                allowed=f"at least {one / 2:.2g}",
                remedy="raise hematocrit, or use a larger vessel",
            )


def _check_within(placed: Cells, lattice: Lattice) -> None:
    """Refuse cells beyond the ends of a periodic vessel, where their periodic images lie within."""
    grid = lattice.grid
    low = (np.asarray(grid.origin) - grid.spacing / 2) / MICRO
    high = low + np.asarray(grid.shape) * grid.spacing / MICRO
    beyond = (placed.positions < low) | (placed.positions > high)
    for cell, axis in np.argwhere(beyond & np.asarray(grid.periodic))[:1]:
        raise InputError(
            f"cell {cell + 1} lies at {'xyz'[axis]} = {placed.positions[cell, axis]:g} um, outside the "
            "periodic vessel",
            location="blood.cells.placed",
            allowed=f"position_um from {low[axis]:.6g} to {high[axis]:.6g} um",
        )


def _check_apart(tables: Sequence[CellsTable], placed: Cells, lumen: Lumen) -> None:
    """Refuse cells almost on the same spot, whose surfaces meet everywhere and so nowhere go deep."""
    least = _LEAST_APART * min(table.radius_um for table in tables)
    near = np.full(placed.count, least / 2)
    first, second, shifts = neighbour_pairs(placed.positions, near, lumen)
    if len(first):
        one, other = first[0], second[0]
        apart = np.linalg.norm(placed.positions[other] + shifts[0] - placed.positions[one])
        raise InputError(
            f"cells {one + 1} and {other + 1} overlap at the start: their centres are {apart:.3g} um apart",
            location="blood.cells.placed",
            allowed=f"at least {least:.3g} um",
            remedy="move one of them",
        )


def _placed(tables: Sequence[CellsTable]) -> Cells:
    """Cells at given places."""
    positions = [cell.position_um for table in tables for cell in table.placed]
    kinds = [number for number, table in enumerate(tables) for _ in table.placed]
    turns = []
    for table in tables:
        for cell in table.placed:
            axis = np.array(cell.axis)
            length = np.linalg.norm(axis)
            if not length > 0:
                raise InputError(
                    "an axis is 0",
                    location=f"blood.cells {table.name}",
                    remedy="give it a direction",
                )
            turns.append(_turn_to(axis / length))
    return Cells(
        np.array(positions).reshape(-1, 3),
        np.array(turns).reshape(-1, 4),
        np.array(kinds, np.int64),
    )


def _turn_to(axis: Floats) -> Floats:
    """Quaternion (w, x, y, z) of the shortest turn of the z axis to another."""
    x, y, z = axis.tolist()
    if z < -1 + 1e-12:
        return np.array([0.0, 1.0, 0.0, 0.0])
    turn = np.array([1.0 + z, -y, x, 0.0])
    return turn / float(np.linalg.norm(turn))


def vertices_of(cells: Cells, kind: int, mesh: MembraneMesh, lattice: Lattice) -> Floats:
    """Vertices (n, V, 3) of the cells of a kind in lattice coordinates; the mesh in spacings."""
    chosen = np.flatnonzero(cells.kinds == kind)
    centres = (cells.positions[chosen] * MICRO - lattice.origin) / lattice.spacing
    turns = rotations(cells.quaternions[chosen])
    turned: Floats = np.einsum("nij,vj->nvi", turns, mesh.vertices) * cells.size
    return turned + centres[:, None, :]
