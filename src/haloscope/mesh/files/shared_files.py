"""Mesh files read by rank 0 for all: each rank gets its range of elements, none connects the whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import refuse_together
from haloscope.mesh.files.mesh_files import FileCells, read_cells, read_mesh
from haloscope.mesh.files.meshio_files import require_meshio
from haloscope.mesh.hexes.hexes import Integers, check_boundaries
from haloscope.mesh.hexes.mesh_parts import ElementRows, unconnected
from haloscope.mesh.hexes.shared_faces import NamedQuads, connect_on_ranks
from haloscope.mesh.hexes.shared_meshes import range_ends, range_of
from haloscope.mesh.hexes.shared_periodic import PeriodicPair, join_periodic, join_periodic_on_ranks


def read_mesh_on_ranks(
    world: World,
    path: Path | str,
    scale: float = 1.0,
    pairs: Sequence[PeriodicPair] = (),
    conditions: Collection[str] = (),
    materials: Collection[str] = (),
) -> ElementRows:
    """The range of a file's elements with which a rank begins; all ranks call this.

    Rank 0 holds what the file says while it gives that to the others. What is wrong with faces and
    pairs all ranks find together; then rank 0 alone connects the whole to say where.
    """
    require_meshio()
    file: list[FileCells] = []
    _on_root(world, lambda: file.append(read_cells(path, scale, conditions, materials)))
    notes = file[0].notes if file else ()
    try:
        rows = _hand_out(world, file)
        for pair in pairs:
            rows = join_periodic_on_ranks(world, rows, pair)
        outer = rows.behind < 0
        if world.any(bool((outer & (rows.mesh.boundaries < 0)).any())):
            raise InputError("some faces at the edge of the mesh have no boundary name")
    except InputError:
        _on_root(world, lambda: _whole(pairs, path, scale, conditions, materials))
        raise
    return replace(rows, mesh=replace(rows.mesh, notes=notes))


def _whole(
    pairs: Sequence[PeriodicPair],
    path: Path | str,
    scale: float,
    conditions: Collection[str],
    materials: Collection[str],
) -> None:
    mesh = read_mesh(path, scale, conditions, materials)
    for first, second, translation in pairs:
        mesh = join_periodic(mesh, first, second, translation)
    check_boundaries(mesh)


def _on_root(world: World, task: Callable[[], None]) -> None:
    """Do something on rank 0, and refuse on all ranks what it refuses."""
    fault = ""
    if world.is_root:
        try:
            task()
        except InputError as error:
            fault = str(error)
    refuse_together(world, fault)


def _hand_out(world: World, held: list[FileCells]) -> ElementRows:
    """Give ranges of elements to the ranks, and connect them; what rank 0 holds is let go."""
    file = held.pop() if held else None
    header = ""
    if file is not None:
        sizes = (len(file.cells), int(file.table.max()), file.corners)
        header = json.dumps([*sizes, file.region_names, file.surface_names])
    elements, order, corners, regions, surfaces = json.loads(world.gather_texts(header)[0])
    own = range_of(world, elements)
    count = len(own)
    shape = (order + 1, order + 1, order + 1, 3)
    quads = NamedQuads(np.empty((0, 4), np.int64), np.empty(0, np.int32))
    if file is None:
        coordinates = world.receive((count, *shape), np.float64, 0)
        vertices = world.receive((count, 8), np.int64, 0)
        numbers = world.receive((count,), np.int32, 0)
    else:
        quads = NamedQuads(_corner_numbers(file, corners), file.quad_names)
        for rank in range(1, world.size):
            begin, end = range_ends(world, elements, rank)
            rows = slice(begin, end)
            world.send(file.coordinates(rows), rank)
            world.send(file.vertices(rows), rank)
            world.send(file.regions[rows], rank)
        rows = slice(count)
        coordinates, vertices = file.coordinates(rows), file.vertices(rows)
        numbers = file.regions[rows].copy()
        del file
    mesh = unconnected(coordinates, vertices, numbers, tuple(regions), tuple(surfaces))
    # One number more, for what is no corner.
    return connect_on_ranks(world, mesh, own, elements, corners + 1, quads)


def _corner_numbers(file: FileCells, corners: int) -> Integers:
    """Corners of the named quadrilaterals; one that no hexahedron has gets a number of its own."""
    numbers = file.numbers[file.quads]
    return np.where(numbers >= 0, numbers, corners)
