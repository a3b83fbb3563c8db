"""Currents and plane waves that drive the fields: where they act, and the launches that add them at single nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import FACES, HexMesh, face_nodes
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.mesh.hexes.shared_meshes import Surroundings
from haloscope.numerics.elements.element_maps import face_normals, gll_weights, jacobians
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.terms.terms import (
    COMPONENTS,
    Floats,
    Integers,
    Setting,
    SourceTerm,
    lagrange,
    locate,
)
from haloscope.solvers.maxwell.terms.waveforms import NUMBERS, Table, Waveform

SOURCE = Path(__file__).with_name("driven.cpp")
# Share by which a polarisation may miss being normal to the direction.
_ASKEW = 1e-6


@dataclass(frozen=True, eq=False)
class OwnElements:
    """Elements of this rank as sources see them."""

    part: MeshPart  # Them
    places: Floats  # Their nodes (elements, N + 1, N + 1, N + 1, 3)
    # Of all elements of the whole mesh.
    permittivity: Floats
    permeability: Floats
    upwind: bool = True  # Whether the flux is upwind

    @property
    def order(self) -> int:
        """Polynomial order N."""
        return int(self.places.shape[1]) - 1

    def constant(self, elements: Integers, magnetic: bool) -> Floats:
        """Permittivity of this rank's elements, or permeability."""
        values = self.permeability if magnetic else self.permittivity
        return np.asarray(values[self.part.elements[elements]])

    def masses(self, elements: Integers) -> Floats:
        """Quadrature weight times Jacobian at the nodes of elements, (n, nodes)."""
        w = gll_weights(self.order)
        weights = w[:, None, None] * w[:, None] * w
        return np.asarray((weights * jacobians(self.places[elements])).reshape(len(elements), -1))

    def behind(self, faces: Integers) -> Integers:
        """Numbers in the whole mesh of what lies behind faces (n, 2) of own elements; -1: none."""
        element, face = faces.T
        near, far = self.part.mesh.neighbours[element, face], self.part.partners[element, face]
        here = np.where(near >= 0, self.part.elements[np.maximum(near, 0)], -1)
        return np.where(far >= 0, far // 6, here)


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of one waveform at nodes."""

    # Of each entry: element of this rank, and node in it.
    elements: Integers
    nodes: Integers
    shape: Floats  # Rates of change of the six fields when the waveform is 1, (entries, 6)
    delays: Floats  # Of each entry
    waveform: Waveform  # How it goes with time


def across_faces(
    own: OwnElements,
    faces: Integers,
    electric: Floats,
    magnetic: Floats,
    delays: Floats,
    waveform: Waveform,
) -> Entries:
    """Terms of the right-hand sides from a jump of the trace behind faces.

    `faces`: (n, 2): element of this rank, and face.
    """
    # The flux is linear in the jump, so that a change (e, h) of what lies behind adds lift / (Z- +
    # Z+) n x (Z+ h - n x e) to eps dE/dt and -lift / (Y- + Y+) n x (Y+ e + n x h) to mu dH/dt; the
    # second terms are those of upwind flux.
    element, face = faces.T
    order = own.order
    places = own.places[element]
    every = np.arange(len(faces))
    area = face_normals(places)[every, face]
    size = np.linalg.norm(area, axis=-1, keepdims=True)
    n = area / size
    on = face_nodes(order)[face]
    jacobian = np.take_along_axis(jacobians(places).reshape(len(faces), -1), on, axis=1)
    lift = size * (order * (order + 1) / 2) / jacobian[..., None]
    here = own.part.elements[element]
    behind = own.behind(faces)
    behind = np.where(behind >= 0, behind, here)

    def impedance(of: Integers) -> Floats:
        return np.asarray(np.sqrt(own.permeability[of] / own.permittivity[of])[:, None, None])

    z, z_behind = impedance(here), impedance(behind)
    eps, mu = (values[here][:, None, None] for values in (own.permittivity, own.permeability))
    alpha = float(own.upwind)
    e, h = electric, magnetic
    to_e = np.cross(n, z_behind * h - alpha * np.cross(n, e)) / (z + z_behind)
    to_h = np.cross(n, e / z_behind + alpha * np.cross(n, h)) / (1 / z + 1 / z_behind)
    shape = np.concatenate([lift * to_e / eps, -lift * to_h / mu], axis=-1)
    elements = np.broadcast_to(element[:, None], on.shape)
    return Entries(
        elements.ravel(), on.ravel(), shape.reshape(-1, COMPONENTS), delays.ravel(), waveform
    )


def _merged(all_of: Sequence[Entries], nodes: int) -> Iterator[tuple[Integers, Floats, Floats]]:
    """Entries of a waveform in sets without a node twice: places, shapes, delays."""
    elements, local, shape, delays = (
        np.concatenate([getattr(term, name) for term in all_of])
        for name in ("elements", "nodes", "shape", "delays")
    )
    nonzero = (shape != 0).any(axis=1)
    place = elements[nonzero] * (COMPONENTS * nodes) + local[nonzero]
    shape, delays = shape[nonzero], delays[nonzero]
    order = np.lexsort((delays, place))
    place, shape, delays = place[order], shape[order], delays[order]
    new = np.ones(len(place), bool)
    new[1:] = (place[1:] != place[:-1]) | (delays[1:] != delays[:-1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return
    shape = np.add.reduceat(shape, starts, axis=0)
    place, delays = place[starts], delays[starts]
    # The how-manieth of its place each is: two waves through a node go in two launches.
    first = np.ones(len(place), bool)
    first[1:] = place[1:] != place[:-1]
    begun = np.maximum.accumulate(np.where(first, np.arange(len(place)), 0))
    turn = np.arange(len(place)) - begun
    for number in range(int(turn.max()) + 1):
        at = turn == number
        yield place[at], shape[at], delays[at]


def _driven_term(
    setting: Setting, places: Integers, shape: Floats, delays: Floats, waveform: Waveform
) -> SourceTerm:
    """Entries with one waveform; no node twice. `shape`: (entries, 6); `delays`: (entries,)."""
    count = len(places)
    values = waveform.values if isinstance(waveform, Table) else np.zeros(NUMBERS)
    numbers = np.array(waveform.numbers, np.float64)
    arguments: dict[str, Any] = {
        "places": setting.put(places, np.int64),
        "shape": setting.put(shape.T),
        "count": count,
        "table": setting.put(np.asarray(values), np.float64),
        "kind": waveform.kind,
        "extent": (count,),
    }
    # A delay that all share goes into the waveform's first number, a time.
    alike = bool((delays == delays[0]).all())
    if alike:
        numbers[0] += delays[0]
    else:
        arguments["delays"] = setting.put(delays, np.float64)
    arguments["numbers"] = setting.put(numbers, np.float64)
    kernel = setting.kernel(SOURCE, "drive" if alike else "drive_delayed")
    return SourceTerm("driven", kernel, arguments, ("increments", "clock", "dt"), {"rkc": LSERK4.c})


def scaling_term(setting: Setting, elements: Integers) -> SourceTerm:
    """The stage's factor for elements to which nothing else has applied it."""
    arguments = {
        "elements": setting.put(elements, np.int64),
        "count": len(elements),
        **setting.blocks(len(elements), COMPONENTS * setting.nodes),
    }
    kernel = setting.kernel(SOURCE, "scale")
    return SourceTerm("scaling", kernel, arguments, ("increments",), {"rka": LSERK4.a})


def driven_terms(setting: Setting, entries: Sequence[Entries]) -> list[SourceTerm]:
    """Terms for all entries: one for each waveform, as far as no node is met twice."""
    by_waveform: dict[Waveform, list[Entries]] = {}
    for entry in entries:
        by_waveform.setdefault(entry.waveform, []).append(entry)
    return [
        _driven_term(setting, *arrays, waveform)
        for waveform, all_of in by_waveform.items()
        for arrays in _merged(all_of, setting.nodes)
    ]


Vector = tuple[float, float, float]
Distribution = Callable[[Floats], Floats]
"""Vectors (n, 3) at points (n, 3)."""


def _half(vectors: Floats, magnetic: bool) -> Floats:
    """Vectors (n, 3) as the electric or the magnetic half of six components."""
    nothing = np.zeros_like(vectors)
    return np.concatenate([nothing, vectors] if magnetic else [vectors, nothing], axis=-1)


@dataclass(frozen=True, eq=False)
class PlacedSource:
    """A current or a wave whose elements are known."""

    source: Current | PlaneWave
    concerned: NDArray[np.bool_]  # Whether it drives each element of the mesh
    # Of a dipole: its element on this rank, or -1, and its place in the reference cube. Of a wave:
    # where the waveform's time is that of the run.
    element: int = -1
    place: Floats = field(default_factory=lambda: np.zeros(3))
    # Of a wave: whether each element of the mesh holds the total field.
    inside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def entries(self, own: OwnElements) -> list[Entries]:
        """Entries added on this rank."""
        return self.source.entries(own, self)


@dataclass(frozen=True)
class PointDipole:
    """A current at a point: J = moment g(t) delta(x - position)."""

    position: Vector  # x, y, z
    # Current times length, a vector. In natural units the dipole's own moment p has dp/dt = moment
    # g.
    moment: Vector
    waveform: Waveform  # g
    magnetic: bool = False  # Whether it drives H as J drives E

    def placed(self, world: World, around: Surroundings, order: int) -> PlacedSource:
        """Find its element; all ranks call this."""
        numbers, position = around.numbers[: around.own], np.array(self.position, np.float64)
        element, reference = locate(world, around.part.mesh, numbers, order, position)
        concerned = np.zeros(around.mesh.count, bool)
        concerned[[element] if element >= 0 else []] = True
        return PlacedSource(self, concerned, element, reference)

    def entries(self, own: OwnElements, placed: PlacedSource) -> list[Entries]:
        """The delta function in the element's polynomials, through the mass matrix.

        ``dE_n/dt = -moment l_n(position) / (eps w_n J_n)``.
        """
        rows = np.flatnonzero(own.part.elements == placed.element)
        if not len(rows):
            return []
        of_medium = own.constant(rows, self.magnetic)
        amounts = lagrange(own.order, placed.place) / (own.masses(rows)[0] * of_medium)
        shape = _half(-amounts[:, None] * np.array(self.moment), self.magnetic)
        nodes = np.arange(len(amounts))
        elements, delays = np.full(len(nodes), rows[0]), np.zeros(len(nodes))
        return [Entries(elements, nodes, shape, delays, self.waveform)]


@dataclass(frozen=True, eq=False)
class VolumeCurrent:
    """A current density in a volume: J = distribution(x) g(t)."""

    distribution: Distribution  # J at points, by area
    waveform: Waveform  # g
    regions: tuple[str, ...] | None = None  # Names of the regions where it flows; None: everywhere
    magnetic: bool = False  # Whether it drives H as J drives E

    def placed(self, world: World, around: Surroundings, order: int) -> PlacedSource:
        """Find its elements."""
        return PlacedSource(self, in_regions(around.mesh, self.regions))

    def entries(self, own: OwnElements, placed: PlacedSource) -> list[Entries]:
        """``dE/dt = -J / eps`` at the nodes."""
        elements = np.flatnonzero(placed.concerned[own.part.elements])
        if not len(elements):
            return []
        places = own.places[elements].reshape(-1, 3)
        vectors = self.distribution(places)
        count = len(places) // len(elements)
        of_medium = np.repeat(own.constant(elements, self.magnetic), count)
        shape = _half(-vectors / of_medium[:, None], self.magnetic)
        nodes, rows = np.tile(np.arange(count), len(elements)), np.repeat(elements, count)
        return [Entries(rows, nodes, shape, np.zeros(len(rows)), self.waveform)]


@dataclass(frozen=True, eq=False)
class SheetCurrent:
    """A current in a surface inside the mesh: K = distribution(x) g(t), by length."""

    surface: str  # Name of the surface
    distribution: Distribution  # K at points; what is normal to the surface has no effect
    waveform: Waveform  # g
    magnetic: bool = False  # Whether E jumps at it instead of H

    def placed(self, world: World, around: Surroundings, order: int) -> PlacedSource:
        """Find its elements."""
        surfaces = around.mesh.surfaces
        if self.surface not in surfaces:
            raise InputError(
                f"the mesh has no surface {self.surface!r} inside for a current",
                location=f"surface = {self.surface!r}",
                allowed=", ".join(surfaces) or "none",
            )
        return PlacedSource(self, _touching(around.mesh, surfaces[self.surface]))

    def entries(self, own: OwnElements, placed: PlacedSource) -> list[Entries]:
        """The jump n x (H+ - H-) = K is taken out of the jump that the flux sees, on both sides."""
        faces = own.part.mesh.surfaces.get(self.surface, np.zeros((0, 2), np.int64))
        if not len(faces):
            return []
        element, face = faces.T
        places = own.places[element]
        area = face_normals(places)[np.arange(len(faces)), face]
        n = area / np.linalg.norm(area, axis=-1, keepdims=True)
        on = face_nodes(own.order)[face]
        points = np.take_along_axis(places.reshape(len(faces), -1, 3), on[..., None], axis=1)
        K = self.distribution(points.reshape(-1, 3)).reshape(points.shape)
        jump, nothing = np.cross(n, K), np.zeros_like(K)
        # A magnetic current M has n x (E+ - E-) = -M.
        e, h = (-jump, nothing) if self.magnetic else (nothing, jump)
        return [across_faces(own, faces, e, h, np.zeros(on.shape), self.waveform)]


def in_regions(mesh: HexMesh, names: tuple[str, ...] | None) -> NDArray[np.bool_]:
    """Whether each element lies in one of the named regions; None: all do."""
    if names is None:
        return np.ones(mesh.count, bool)
    for name in names:
        if name not in mesh.region_names:
            raise InputError(
                f"the mesh has no region {name!r}", allowed=", ".join(mesh.region_names)
            )
    return np.isin(mesh.regions, [mesh.region_names.index(name) for name in names])


def in_box(mesh: HexMesh, corners: tuple[Vector, Vector]) -> NDArray[np.bool_]:
    """Whether the centre of each element lies between two corners."""
    low, high = np.array(corners, float)
    return np.asarray(((mesh.centres > low) & (mesh.centres < high)).all(axis=1))


def _touching(mesh: HexMesh, faces: Integers) -> NDArray[np.bool_]:
    """Whether each element has one of some faces (n, 2)."""
    result = np.zeros(mesh.count, bool)
    result[faces[:, 0]] = True
    return result


def _first(rows: Floats) -> Integers:
    """The row that comes first by its first number, then its second and so on; none of none."""
    return np.lexsort(rows.T[::-1])[:1]


@dataclass(frozen=True)
class PlaneWave:
    """E = polarisation g(t - n (x - start) . direction), H = Y direction x E."""

    # Either `inside` or `box` or `boundaries` is given. With the first two, the elements there hold
    # the total field and all others the scattered one alone; with the third the wave comes in
    # through boundaries that absorb.

    direction: Vector  # In which it goes, of any length
    polarisation: Vector  # Its electric field where the waveform is 1
    waveform: Waveform  # g
    inside: tuple[str, ...] = ()  # Names of the regions that hold the total field
    # Lower and upper corner: elements whose centre lies between hold the total field.
    box: tuple[Vector, Vector] | None = None
    boundaries: tuple[str, ...] = ()  # Names of absorbing boundaries
    # Where the waveform's time is that of the run; None: where the wave first meets the surface.
    start: Vector | None = None

    def __post_init__(self) -> None:
        k, e = np.array(self.direction, float), np.array(self.polarisation, float)
        for key, vector in (("direction", k), ("polarisation", e)):
            if vector.shape != (3,) or not np.isfinite(vector).all() or not vector.any():
                raise InputError(
                    f"it is no {key}",
                    location=f"plane wave: {key} = {getattr(self, key)}",
                    allowed="three finite numbers that are not all 0",
                )
        askew = abs(e @ k) / (np.linalg.norm(e) * np.linalg.norm(k))
        if askew > _ASKEW:
            raise InputError(
                f"it is not normal to the direction {self.direction} (the cosine is {askew:.3g})",
                location=f"plane wave: polarisation = {self.polarisation}",
                remedy="make both normal to each other",
            )
        surfaces = sum(map(bool, (self.inside, self.box, self.boundaries)))
        if surfaces != 1:
            raise InputError(
                f"{surfaces} of inside, box and boundaries are set",
                location="plane wave",
                allowed="one of them",
            )

    @property
    def unit_direction(self) -> Floats:
        """Of length 1."""
        k = np.array(self.direction, float)
        return np.asarray(k / np.linalg.norm(k))

    @property
    def electric(self) -> Floats:
        """The polarisation without what rounding has left along the direction."""
        e, k = np.array(self.polarisation, float), self.unit_direction
        return np.asarray(e - (e @ k) * k)

    def placed(self, world: World, around: Surroundings, order: int) -> PlacedSource:
        """Find the faces through which it comes in; all ranks call this, and get the same start."""
        mesh = around.mesh
        inside, faces = self._through(mesh)
        if not world.any(bool(len(faces))):
            raise InputError(
                "the surface through which the plane wave enters has no faces: no element has a "
                "neighbour on its other side"
            )
        start = np.array(self.start, float)
        if self.start is None:
            own = faces[faces[:, 0] < around.own]
            places = mesh.coordinates.reshape(mesh.count, -1, 3)
            met = places[own[:, :1], face_nodes(mesh.order)[own[:, 1]]].reshape(-1, 3)
            x, y, z = self.unit_direction
            # One product after the other: the same bits wherever a point stands in the array.
            along = met[:, 0] * x + met[:, 1] * y + met[:, 2] * z
            rows = np.column_stack([along, met])
            candidates = all_rows(world, rows[_first(rows)])
            start = candidates[_first(candidates)][0, 1:]
        return PlacedSource(self, _touching(mesh, faces), place=start, inside=inside)

    def _through(self, mesh: HexMesh) -> tuple[NDArray[np.bool_], Integers]:
        """Elements that hold the total field, and faces (n, 2) through which the wave comes in."""
        for name in self.boundaries:
            if name not in mesh.boundary_names:
                raise InputError(
                    f"the mesh has no boundary {name!r}",
                    location="plane wave: boundaries",
                    allowed=", ".join(mesh.boundary_names),
                )
        if self.boundaries:
            faces = np.concatenate([mesh.outer_faces(name) for name in self.boundaries])
            return np.zeros(mesh.count, bool), faces
        inside = in_regions(mesh, self.inside) if self.box is None else in_box(mesh, self.box)
        crossing = inside[:, None] != inside[np.maximum(mesh.neighbours, 0)]
        return inside, np.argwhere(crossing & (mesh.neighbours >= 0))

    def _faces(self, own: OwnElements, placed: PlacedSource) -> tuple[Integers, Floats]:
        """Faces of this rank's elements, and +1 where the wave is added to what lies behind."""
        mesh = own.part.mesh
        if self.boundaries:
            # A part of a mesh keeps the names of its boundaries, not their order of faces.
            numbers = [mesh.boundary_names.index(name) for name in self.boundaries]
            outer = (mesh.neighbours < 0) & (own.part.partners < 0)
            faces = np.argwhere(outer & np.isin(mesh.boundaries, numbers))
            return faces, np.ones(len(faces))
        faces = np.argwhere(np.repeat(placed.concerned[own.part.elements][:, None], FACES, axis=1))
        behind = own.behind(faces)
        here = placed.inside[own.part.elements[faces[:, 0]]]
        on_surface = (behind >= 0) & (placed.inside[np.maximum(behind, 0)] != here)
        return faces[on_surface], np.where(here[on_surface], 1.0, -1.0)

    def entries(self, own: OwnElements, placed: PlacedSource) -> list[Entries]:
        """Inside sees the wave added to what lies outside, outside sees it taken from inside."""
        faces, signs = self._faces(own, placed)
        if not len(faces):
            return []
        element, face = faces.T
        here = own.part.elements[element]
        eps, mu = own.permittivity[here][0], own.permeability[here][0]
        on = face_nodes(own.order)[face]
        flat = own.places.reshape(len(own.places), -1, 3)
        points = flat[element[:, None], on]
        k = self.unit_direction
        e = self.electric
        h = np.sqrt(eps / mu) * np.cross(k, e)
        along = signs[:, None, None] * np.ones(on.shape)[..., None]
        delays = np.sqrt(eps * mu) * ((points - placed.place) @ k)
        return [across_faces(own, faces, along * e, along * h, delays, self.waveform)]


Current = PointDipole | VolumeCurrent | SheetCurrent
