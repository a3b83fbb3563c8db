"""Which elements of a Maxwell case each rank gets, without a rank that has all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import refuse_together
from haloscope.mesh.hexes.hexes import FACES, Floats, Integers
from haloscope.mesh.hexes.mesh_parts import ElementRows, MeshPart
from haloscope.mesh.hexes.shared_meshes import Surroundings, move, range_ranks, surroundings
from haloscope.mesh.partition.partition import require_parts
from haloscope.mesh.partition.shared_partition import LARGEST_GRAPH, partition_on_ranks
from haloscope.numerics.elements.element_geometry import (
    SMALLEST_JACOBIAN,
    check_jacobians,
    jacobian_ratios,
)
from haloscope.solvers.maxwell.additions import PlacedAdditions
from haloscope.solvers.maxwell.case import MaxwellTable
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.layers import PlacedLayer
from haloscope.solvers.maxwell.meshes import mesh_notices, open_mesh, open_rows
from haloscope.solvers.maxwell.placing import place_on_ranks

# Work of elements to which something is added over that of others.
_WEIGHT_OF_ADDITIONS = 1.5


@dataclass(frozen=True, eq=False)
class Share:
    """What a rank gets of a mesh."""

    rows: ElementRows  # Its elements, ascending
    ranks: Integers  # The rank of what lies behind each of their faces, (own, 6)
    concerned: NDArray[np.bool_]  # Whether anything is added in each, (own,)
    layer: PlacedLayer | None  # The absorbing layer, where it lies in the whole mesh
    materials: list[Material]  # One for each region of the mesh
    notices: list[str]  # What to tell of the partition
    whole: MeshPart | None  # All elements where other ranks are not there, to be looked up here

    def surroundings(self, world: World, part: MeshPart) -> Surroundings:
        """Look behind the faces of these elements, put in order as a part; all ranks call this."""
        row = np.searchsorted(self.rows.elements, part.elements)
        return surroundings(world, part, self.ranks[row], self.whole)


@dataclass(frozen=True, eq=False)
class SetUp:
    """What a rank has when its share has been laid out, for what is worked out of a run."""

    # Its elements and their nodes (own, N + 1, N + 1, N + 1, 3).
    part: MeshPart
    places: Floats
    around: Surroundings  # What lies behind their faces, too; meant to be dropped after set-up
    added: PlacedAdditions  # What is added, in the numbers of `around`
    # The ranks, and where the fields are.
    world: World
    device: Device


def share_out(table: MaxwellTable, world: World) -> Share:
    """Share the elements of a case out; all ranks call this.

    A rank has no more of the mesh at any time than the range of elements that it begins with, what
    the partition gives it, and one layer of others around each; see :func:`open_rows` for files.
    """
    rows = open_rows(table, world)
    require_parts(world.size, rows.whole)
    only = len(rows.mesh.region_names) == 1
    materials = [table.material(name, only) for name in rows.mesh.region_names]
    notices = mesh_notices(table, rows.mesh)
    share = rows.part()
    del rows
    _check_shapes(table, world, share)
    element = np.where(share.behind >= 0, share.behind // FACES, -1)
    around = surroundings(world, share, range_ranks(world, share.whole, element))
    placed = place_in(table, world, around, materials)
    concerned, layer = placed.concerned[: around.own], placed.layer
    del around, placed
    if world.size == 1:
        to = np.zeros(share.mesh.count, np.int32)
    else:
        if table.partition == "auto" and share.whole > LARGEST_GRAPH:
            notices.append(
                f"above {LARGEST_GRAPH} elements parts are cut by coordinates; maxwell.partition = "
                '"graph" has METIS cut them on rank 0, with about 0.4 kB an element there'
            )
        weights = np.where(concerned, _WEIGHT_OF_ADDITIONS, 1.0)
        shared = partition_on_ranks(world, share, weights, table.partition)
        notices.append(shared.describe())
        to = shared.parts
    moved, ranks, (added,) = move(world, share, to, [concerned])
    whole = None if world.present else share
    return Share(moved, ranks, added, layer, materials, notices, whole)


def place_in(
    table: MaxwellTable,
    world: World,
    around: Surroundings,
    materials: Sequence[Material],
    known: PlacedLayer | None = None,
) -> PlacedAdditions:
    """Find to which of a rank's elements a case adds anything; all ranks call this."""
    layer, currents, waves = table.additions()
    return place_on_ranks(
        world,
        around,
        table.order,
        media=materials,
        layer=known or layer,
        currents=currents,
        waves=waves,
    )


def _check_shapes(table: MaxwellTable, world: World, share: MeshPart) -> None:
    """Refuse bad elements; rank 0 makes the message of the whole mesh, to count those of all."""
    bad = (jacobian_ratios(share.mesh, table.order) < SMALLEST_JACOBIAN).any()
    if world.any(bool(bad)):
        fault = ""
        if world.is_root or not world.present:
            try:
                check_jacobians(open_mesh(table), table.order)
            except InputError as error:
                fault = str(error)
        refuse_together(world, fault)
