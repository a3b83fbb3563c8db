"""Media, layers, currents and waves found in elements of which each rank knows its own only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows, refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import unconnected
from haloscope.mesh.hexes.shared_meshes import Surroundings
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.additions import (
    IN_ONE_MEDIUM,
    SEVERAL_MEDIA,
    PlacedAdditions,
    PlacedDrive,
    check_waves,
    combine,
    fastest_wave,
)
from haloscope.solvers.maxwell.terms.incident import NO_FACES, PlacedWave, PlaneWave, face_places
from haloscope.solvers.maxwell.terms.layers import Layer, PlacedLayer
from haloscope.solvers.maxwell.terms.sources import Current, PlacedDipole, PointDipole
from haloscope.solvers.maxwell.terms.terms import Floats, Integers, locate_on_ranks


def place_on_ranks(
    world: World,
    around: Surroundings,
    order: int,
    *,
    media: Sequence[Material] = (Material(),),
    layer: Layer | PlacedLayer | None = None,
    currents: Sequence[Current] = (),
    waves: Sequence[PlaneWave] = (),
) -> PlacedAdditions:
    """Find to which elements anything is added; all ranks call this."""
    mesh = around.mesh
    placed = _place_layer(world, mesh, media, layer) if isinstance(layer, Layer) else layer
    drives: list[PlacedDrive] = []
    for number, current in enumerate(currents):
        with _located(f"maxwell.sources[{number}]"):
            drives.append(_place_current(world, around, order, current))
    through = []
    for number, wave in enumerate(waves):
        with _located(f"maxwell.waves[{number}]"):
            through.append(_place_wave(world, around, wave))
    result = combine(mesh, media, placed, [*drives, *through])
    fault: InputError | None = None
    try:
        check_waves(result, through, mesh, around.numbers)
    except InputError as error:
        fault = error
    refuse_together(world, fault)
    for located in through:
        for values in (result.permittivity, result.permeability):
            values_here = values[located.concerned]
            most = world.largest(values_here.max(initial=-np.inf))
            if most + world.largest(-values_here.min(initial=np.inf)) > 0:
                raise InputError(SEVERAL_MEDIA, remedy=IN_ONE_MEDIUM)
    return result


@contextmanager
def _located(key: str) -> Iterator[None]:
    """Put a key before the message of an error."""
    try:
        yield
    except InputError as error:
        raise error.within(key) from None


def _place_layer(
    world: World, mesh: HexMesh, media: Sequence[Material], layer: Layer
) -> PlacedLayer:
    """A layer begins where an element of any rank does, and is as strong for all."""
    flat = mesh.coordinates.reshape(mesh.count, -1, 3)
    ends = np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1)
    # Elements that reach as far along an axis are alike there: of grids few are left.
    alike = [all_rows(world, np.unique(ends[:, :, axis], axis=0)) for axis in range(3)]
    alike = [np.unique(pairs, axis=0) for pairs in alike]
    most = max(len(pairs) for pairs in alike)
    pairs_alike = [pairs[np.minimum(np.arange(most), len(pairs) - 1)] for pairs in alike]
    speed = world.largest(fastest_wave(mesh, media))
    return layer.placed(_boxes(np.stack(pairs_alike, axis=2)), speed)


def _boxes(ends: Floats) -> HexMesh:
    """Boxes with given lower and upper corners (boxes, 2, 3) that know nothing of each other."""
    count = len(ends)
    k, j, i = np.indices((2, 2, 2))
    coordinates = np.stack([ends[:, at, axis] for axis, at in enumerate((i, j, k))], axis=-1)
    vertices = np.arange(8 * count).reshape(count, 8)
    return unconnected(coordinates, vertices, np.zeros(count, np.int32), ("volume",))


def _place_current(world: World, around: Surroundings, order: int, current: Current) -> PlacedDrive:
    if not isinstance(current, PointDipole):
        return current.placed(around.mesh, order)
    own = around.part.mesh
    numbers = around.numbers[: around.own]
    position = np.array(current.position, np.float64)
    element, reference = locate_on_ranks(world, own, numbers, order, position)
    concerned = np.zeros(around.mesh.count, bool)
    if element >= 0:
        concerned[element] = True
    return PlacedDipole(current, element, reference, concerned)


def _place_wave(world: World, around: Surroundings, wave: PlaneWave) -> PlacedWave:
    """The wave on every rank, whether it comes in there or not."""
    mesh = around.mesh
    inside, faces = wave.through(mesh)
    if not world.any(bool(len(faces))):
        raise InputError(NO_FACES)
    concerned = np.zeros(mesh.count, bool)
    concerned[faces[:, 0]] = True
    if wave.start is not None:
        return PlacedWave(wave, np.array(wave.start, float), inside, concerned)
    met = face_places(mesh, faces[faces[:, 0] < around.own])
    x, y, z = wave.unit_direction
    # One product after the other: the same bits wherever a point stands in the array.
    along = met[:, 0] * x + met[:, 1] * y + met[:, 2] * z
    own = np.column_stack([along, met])
    candidates = all_rows(world, own[_first(own)])
    start = candidates[_first(candidates)][0, 1:]
    return PlacedWave(wave, start, inside, concerned)


def _first(rows: Floats) -> Integers:
    """The row that comes first by its first number, then its second and so on; none of none."""
    return np.lexsort(rows.T[::-1])[:1]
