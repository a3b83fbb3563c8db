"""Kinds of cells in lattice units, and their starting positions: the same seed number gives the same cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from haloscope.device.cpu import CpuDevice
from haloscope.device.interface import Device
from haloscope.errors import InputError, counted
from haloscope.exchange.plan import refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import point_text
from haloscope.mesh.lattice.lattice_runs import raster
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case_cells import CellsTable
from haloscope.solvers.blood.cell_lists import quaternions_of, read_list
from haloscope.solvers.blood.cells.local_cells import CellKind
from haloscope.solvers.blood.filling.packing import (
    SMALLEST,
    Cells,
    LeftOut,
    Packing,
    neighbour_pairs,
    pack_tile,
    random_orientations,
    rotations,
    scattered,
)
from haloscope.solvers.blood.filling.room import Body, choose
from haloscope.solvers.blood.filling.shapes import CellShape, Lumen
from haloscope.solvers.blood.membranes.membranes import MembraneLaw
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, platelet, red_cell, sphere
from haloscope.solvers.blood.membranes.stretching import HOLDING, Stretch
from haloscope.solvers.blood.units import MICRO, LatticeUnits

Floats = NDArray[np.float64]

# Layers of points before openings in which no cell starts: where one would leave at once, and one more.
_CLEAR = 3
# Least distance of centres over the least radius, from which on overlaps are seen by their depth.
_LEAST_APART = 0.1


def mesh_of(table: CellsTable) -> MembraneMesh:
    """Shape at rest, its axis along z, in um."""
    file = table.file_shape
    if file is not None:
        return file.mesh.scaled(table.radius_um)
    if table.shape == "biconcave":
        return red_cell(table.vertices, table.radius_um)
    if table.shape == "sphere":
        return sphere(table.vertices, table.radius_um)
    return platelet(table.vertices, table.radius_um, table.thickness)


def shape_of(table: CellsTable) -> CellShape:
    """The same as packing sees it, in um: of a file's shape the body of revolution around it."""
    if table.file_shape is not None:
        return CellShape.around(mesh_of(table))
    if table.shape == "biconcave":
        return CellShape.biconcave(table.radius_um)
    thickness = table.thickness if table.shape == "oblate" else 1.0
    return CellShape.oblate(table.radius_um, thickness)


def filling_of(table: CellsTable) -> Filling:
    """How many of a kind there are to be: cells count with the volume of their meshes."""
    return Filling(shape_of(table), table.hematocrit, mesh_of(table).volume())


def kind_of(table: CellsTable, units: LatticeUnits) -> CellKind:
    """Mesh and law of a kind in lattice units."""
    mesh = mesh_of(table).scaled(MICRO / units.spacing)
    pull = table.stretch
    return CellKind(
        table.name,
        mesh,
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
        table.used_elements,
        table.viscosity_ratio != 1.0,
        None
        if pull is None
        else Stretch.of_mesh(
            mesh,
            pull.force_pn * 1e-12 / units.force,
            HOLDING,
            direction=pull.direction,
            share=pull.share,
        ),
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
        if isinstance(opening, TiltedOpening):
            numbers = lattice.runs.numbers()
            positions = lattice.positions(numbers)
            near = opening.heights(positions) > -clear * lattice.spacing
            inside[numbers[near & opening.is_beside(positions, lattice.spacing)]] = False
            continue
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
    rows, fault = np.zeros((0, 8)), None
    left_out = np.zeros((len(tables), len(fields(LeftOut))), np.int64)
    if world.is_root:
        try:
            cells = _starting_cells(tables, lattice, seed, on_cores(device), fed=fed)
            rows = np.column_stack([cells.positions, cells.quaternions, cells.kinds])
            for kind, counts in enumerate(cells.left_out):
                left_out[kind] = astuple(counts)
        except InputError as error:
            fault = error
    refuse_together(world, fault)
    count = int(world.broadcast(np.array([len(rows)], np.int64))[0])
    rows = world.broadcast(rows if world.is_root else np.zeros((count, 8)))
    return Cells(
        rows[:, :3],
        rows[:, 3:7],
        rows[:, 7].astype(np.int64),
        left_out=tuple(LeftOut(*counts) for counts in world.broadcast(left_out).tolist()),
    )


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
        if placed.count or any(table.positions for table in tables):
            raise InputError(
                "some kinds have a hematocrit and others have placed cells",
                location="blood.cells",
                remedy="use hematocrit for all kinds, or placed or positions for all kinds",
            )
        _check_counts(tables, cell_counts(lumen, fillings), lumen, fed=fed)
        return fill(device, lumen, fillings, seed)
    _check_within(placed, lattice)
    _check_apart(tables, placed, lumen)
    low, high = lattice.bounds
    bounds = (low / MICRO, high / MICRO)
    check_cells(device, lumen, shapes, placed, bounds=bounds)
    if not any(table.positions for table in tables):
        return placed
    return _with_listed(tables, placed, device, lumen, bounds)


def _with_listed(
    tables: Sequence[CellsTable],
    placed: Cells,
    device: Device,
    lumen: Lumen,
    bounds: tuple[Floats, Floats],
) -> Cells:
    """Placed cells and those of lists that have room beside them, by kind."""
    listed, beyond = _listed(tables)
    bodies = [Body(mesh_of(table), shape_of(table), table.file_shape is None) for table in tables]
    kept, left_out = choose(device, lumen, bodies, placed, listed, bounds)
    chosen = listed.chosen(kept)
    kinds = np.concatenate([placed.kinds, chosen.kinds])
    order = np.argsort(kinds, kind="stable")
    if listed.count and not len(order):
        raise InputError(
            f"none of {counted(listed.count, 'cell')} has room in the vessel: "
            f"{'; '.join(left_out_line(table, counts) for table, counts in zip(tables, left_out, strict=True))}",
            location="blood.cells.positions",
            remedy="set offset_um so that the positions are in the coordinates of the vessel",
        )
    return Cells(
        np.concatenate([placed.positions, chosen.positions])[order],
        np.concatenate([placed.quaternions, chosen.quaternions])[order],
        kinds[order],
        left_out=tuple(
            replace(counts, beyond=more) for counts, more in zip(left_out, beyond, strict=True)
        ),
    )


def left_out_line(table: CellsTable, counts: LeftOut) -> str:
    """Line on the cells of a list that have no room in the vessel."""
    parts = [
        f"{number} {why}"
        for number, why in (
            (counts.outside, "outside the vessel"),
            (counts.walls, "in a wall"),
            (counts.overlaps, "in a cell before them"),
        )
        if number
    ]
    left = f"; left out: {', '.join(parts)}, the first is cell {counts.first}" if parts else ""
    if counts.beyond:
        left += f"; not read: {counts.beyond} after as many as the file announces"
    kept = counts.listed - counts.count
    return f"{table.positions}: {kept} of {counted(counts.listed, 'cell')} placed{left}"


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


def _listed(tables: Sequence[CellsTable]) -> tuple[Cells, list[int]]:
    """Cells of lists, all of them, and by kind how many more their files hold."""
    positions, turns, kinds = [np.zeros((0, 3))], [np.zeros((0, 4))], []
    beyond = [0] * len(tables)
    for number, table in enumerate(tables):
        if table.positions is None:
            continue
        try:
            one = read_list(table.positions)
        except InputError as error:
            raise error.within(f"blood.cells {table.name}.positions") from None
        file = table.file_shape
        positions.append(one.positions + np.array(table.offset_um))
        turns.append(quaternions_of(one.angles, 0 if file is None else file.turn))
        kinds += [number] * len(one.positions)
        beyond[number] = one.beyond
    cells = Cells(np.concatenate(positions), np.concatenate(turns), np.array(kinds, np.int64))
    return cells, beyond


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


DIRECT = 600
"""Up to so many cells are packed in the vessel itself."""
_TILE = 300
_DENSEST = 0.55
_LEAST_SURPLUS, _MOST_SURPLUS = 1.02, 2.5
_SHRUNK = 0.8
_LONE = 0.6
"""Size at which a single cell begins to grow, where it has nothing to get hooked in."""
_SLIGHT = 0.005
# By how much a number of cells may be a whole one only by rounding.
_WHOLE = 1e-6
_TRIED_ORIENTATIONS = 3
_SHRINKAGE, _STEPS_AFTER = 0.01, 200
_PLACED = "blood.cells.placed"


@dataclass(frozen=True)
class Filling:
    """Cells of one kind and how many."""

    shape: CellShape  # Of a cell at rest
    hematocrit: float  # Share of the lumen's volume that they fill at full size
    # Of a cell as its membrane encloses it, which is a little less than the shape's; 0: the
    # shape's.
    mesh_volume: float = 0.0

    @property
    def volume(self) -> float:
        """Volume that counts for a cell."""
        return self.mesh_volume or self.shape.volume


def cell_counts(lumen: Lumen, fillings: Sequence[Filling]) -> list[int]:
    """Cells of each kind, the whole numbers nearest to hematocrit x volume / volume of a cell."""
    return [round(f.hematocrit * lumen.volume / f.volume) for f in fillings]


def fill(device: Device, lumen: Lumen, fillings: Sequence[Filling], seed: int) -> Cells:
    """Place cells in a vessel, off its walls and off each other."""
    shapes = [filling.shape for filling in fillings]
    counts = cell_counts(lumen, fillings)
    random = np.random.default_rng(seed)
    if not any(counts):
        return Cells(np.zeros((0, 3)), np.zeros((0, 4)), np.zeros(0, np.int64))
    for shape, count in zip(shapes, counts, strict=True):
        if count:
            _check_fit(device, lumen, shape)
    cells = None
    if sum(counts) > DIRECT:
        cells = _from_tiles(device, lumen, shapes, counts, random)
    if cells is None:
        cells = scattered(random, lumen, shapes, counts)
    packing = Packing(device, lumen, shapes, cells)
    if not packing.settled(packing.grow(1.0)):
        raise _jammed(lumen, fillings, counts, _largest_size(packing))
    return packing.cells


def check_cells(
    device: Device,
    lumen: Lumen,
    shapes: Sequence[CellShape],
    cells: Cells,
    bounds: tuple[Floats, Floats],
) -> None:
    """Refuse cells placed by hand, in um, that overlap walls or each other."""
    slight = _SLIGHT * min(shape.radius for shape in shapes)
    packing = Packing(device, lumen, shapes, cells, slight)
    into = packing.wall_depths() - slight
    # Rounding must not make 1e-16 of 0.
    low, high = (point_text(np.round(corner, 9) + 0.0) for corner in bounds)
    for number in np.flatnonzero(into > slight)[:1]:
        at = ", ".join(f"{value:g}" for value in cells.positions[number])
        raise InputError(
            f"cell {number + 1} at ({at}) um extends {into[number]:.3g} um into a wall at the "
            f"start; the vessel extends from {low} to {high} um",
            location=_PLACED,
            remedy="move or turn it, or use a wider vessel",
        )
    first, second, depth = packing.deepest_pair()
    if depth > 2.0 * slight:
        a, b = sorted((first + 1, second + 1))
        which = f"cells {a} and {b} overlap" if a != b else f"cell {a} overlaps its periodic image"
        raise InputError(
            f"{which} by {depth - slight:.3g} um at the start",
            location=_PLACED,
            remedy="move or turn one of them" if a != b else "turn it, or use a longer vessel",
        )


def _check_fit(device: Device, lumen: Lumen, shape: CellShape) -> None:
    """Refuse a vessel in whose widest place not one cell fits."""
    if lumen.grid is None:
        return
    radius = shape.radius
    if lumen.widest > 1.1 * shape.reach:
        return
    half = shape.half_height
    node = np.unravel_index(int(lumen.grid.argmin()), lumen.grid.shape)[::-1]
    place = lumen.origin + lumen.spacing * np.array(node)
    # The same turns for whatever seed number: whether a cell fits is no matter of luck.
    for turn in random_orientations(np.random.default_rng(0), _TRIED_ORIENTATIONS):
        small = Cells(place[None], turn[None], np.zeros(1, np.int64), _LONE)
        packing = Packing(device, lumen, [shape], small)
        if packing.settled(packing.grow(1.0)):
            return
    raise InputError(
        f"a cell {2 * radius:.3g} um wide and {2 * half:.3g} um thick does not fit in the vessel, whose widest "
        f"place is about {2 * lumen.widest:.3g} um across",
        location="blood.cells",
        allowed=f"round vessels from {2 * radius + packing.gap:.3g} um, flat ones from "
        f"{2 * half + packing.gap:.3g} um",
        remedy="use smaller cells or a wider vessel",
    )


def _jammed(
    lumen: Lumen, fillings: Sequence[Filling], counts: Sequence[int], size: float
) -> InputError:
    """The refusal of cells that jammed before they had grown to their full size."""
    hematocrits = [filling.hematocrit for filling in fillings if filling.hematocrit]
    total, cells = sum(hematocrits), counted(sum(counts), "cell")
    expected = [filling.hematocrit * lumen.volume / filling.volume for filling in fillings]
    if np.allclose(expected, counts, rtol=0.0, atol=_WHOLE):
        # Before an inlet the hematocrit of the case is rounded up to whole cells.
        hematocrit = f"{total:.3g} of {cells} (whole cells)"
    elif len(hematocrits) > 1:
        hematocrit = f"{' + '.join(f'{value:g}' for value in hematocrits)} = {total:g} ({cells})"
    else:
        hematocrit = f"{total:g} ({cells})"
    return InputError(
        f"a hematocrit of {hematocrit} is beyond packing: this attempt jammed at {total * size**3:.2g}, which is "
        "not a sharp limit",
        location="blood.cells.hematocrit",
        remedy="lower it, or try another blood.seed or a wider vessel",
    )


def _largest_size(packing: Packing) -> float:
    """Size at which cells that jammed come apart when they all shrink."""
    while packing.size > SMALLEST:
        packing.place(replace(packing.cells, size=packing.size - _SHRINKAGE))
        if packing.settled(packing.relax(_STEPS_AFTER)):
            break
    return packing.size


def _from_tiles(
    device: Device,
    lumen: Lumen,
    shapes: Sequence[CellShape],
    counts: Sequence[int],
    random: np.random.Generator,
) -> Cells | None:
    """Cells from a dense tile repeated through the vessel; None where too few come of it.

    Either all are apart and of full size, or some are in the wall and all are smaller.
    """
    densities = np.array(counts) / lumen.volume
    share = sum(n * shape.volume for n, shape in zip(densities, shapes, strict=True))
    surplus = min(_MOST_SURPLUS, _DENSEST / share)
    if surplus < _LEAST_SURPLUS:
        return None
    side = (_TILE / (surplus * densities.sum())) ** (1.0 / 3.0)
    closed = np.array(lumen.periodic)
    # Along a closed axis a whole number of tiles fits.
    copies = np.where(closed, np.maximum(np.round(lumen.sides / side), 1), 0).astype(int)
    sides = np.where(closed, lumen.sides / np.maximum(copies, 1), side)
    copies = np.where(closed, copies, np.ceil(lumen.sides / side).astype(int) + 1)
    in_tile = np.ceil(surplus * densities * sides.prod()).astype(int)
    tile = pack_tile(device, sides, shapes, [int(n) for n in in_tile], random)
    if tile is None:
        return None
    corner = lumen.lower - sides * random.random(3)
    places = np.stack(np.meshgrid(*map(np.arange, copies), indexing="ij"), axis=-1).reshape(-1, 3)
    positions = (corner + places[:, None] * sides + tile.positions).reshape(-1, 3)
    turns = np.where(closed, np.floor((positions - lumen.lower) / lumen.sides), 0.0)
    positions -= turns * lumen.sides
    inside = np.flatnonzero(
        ((positions >= lumen.lower) & (positions < lumen.upper)).all(axis=1)
        & (lumen.distance(positions) < 0.0)
    )
    original = inside % tile.count
    candidates = Cells(positions[inside], tile.quaternions[original], tile.kinds[original])
    depths = Packing(device, lumen, shapes, candidates).wall_depths()
    # Those off the wall in random order, then the others, the least deep first.
    order = random.permutation(candidates.count)
    order = order[np.argsort(depths[order], kind="stable")]
    chosen = []
    for kind, count in enumerate(counts):
        alike = order[candidates.kinds[order] == kind][:count]
        if len(alike) < count:
            return None
        chosen.append(np.sort(alike))
    cells = candidates.chosen(np.concatenate(chosen))
    touching = depths[np.concatenate(chosen)].max() > 0.0
    return replace(cells, size=_SHRUNK) if touching else cells
