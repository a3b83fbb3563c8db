"""Periodic pairs of a mesh of which each rank has some elements: joined on their surfaces alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import give_rows, refuse_together
from haloscope.mesh.hexes.hexes import FACES
from haloscope.mesh.hexes.mesh_parts import ElementRows, unconnected
from haloscope.mesh.hexes.periodic import PeriodicPair, join_periodic
from haloscope.mesh.hexes.shared_faces import drop_unused_names


def join_periodic_on_ranks(world: World, rows: ElementRows, pair: PeriodicPair) -> ElementRows:
    """Make two outer surfaces each other's continuation; all ranks call this.

    Rank 0 gathers the elements at the two surfaces, and no others.
    """
    mesh, (first, second, translation) = rows.mesh, pair
    numbers = [mesh.boundary_names.index(n) for n in (first, second) if n in mesh.boundary_names]
    at_pair = np.isin(mesh.boundaries, numbers)
    own = np.flatnonzero(at_pair.any(axis=1))
    boundaries = np.where(at_pair[own], mesh.boundaries[own], -1).astype(np.int32)
    sent: list[np.ndarray] = [rows.elements[own], mesh.coordinates[own], boundaries]
    to_root = np.zeros(len(own), np.int64)
    (elements, coordinates, boundaries), counts = give_rows(world, sent, to_root)
    holder, *faces = (np.empty(0, np.int64) for _ in range(4))
    fault = ""
    if world.is_root:
        order = np.argsort(elements, kind="stable")
        gathered = unconnected(
            coordinates[order],
            np.zeros((len(order), 8), np.int64),
            np.zeros(len(order), np.int32),
            ("volume",),
            mesh.boundary_names,
            boundaries[order],
        )
        try:
            joined = join_periodic(gathered, first, second, translation)
        except InputError as error:
            fault = str(error)
        else:
            row, face = np.nonzero(joined.neighbours >= 0)
            behind = elements[order][joined.neighbours[row, face]] * FACES
            behind += joined.neighbour_faces[row, face]
            here = elements[order][row] * FACES + face
            faces = [here, behind, joined.orientations[row, face].astype(np.int64)]
            holder = np.repeat(np.arange(world.size), counts)[order][row]
    refuse_together(world, fault)
    (here, behind, codes), _ = give_rows(world, faces, holder)
    ascending = np.argsort(rows.elements, kind="stable")
    row = ascending[np.searchsorted(rows.elements[ascending], here // FACES)]
    place = (row, here % FACES)
    all_behind, orientations = rows.behind.copy(), mesh.orientations.copy()
    boundaries = mesh.boundaries.copy()
    all_behind[place], orientations[place], boundaries[place] = behind, codes, -1
    joined_mesh = replace(mesh, orientations=orientations, boundaries=boundaries)
    return replace(rows, mesh=drop_unused_names(world, joined_mesh), behind=all_behind)
