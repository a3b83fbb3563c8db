"""Currents that drive the fields, and the launches that add currents and waves at single nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Launch
from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import HexMesh, face_nodes
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.elements.element_maps import face_normals, gll_weights, jacobians
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.terms.terms import (
    COMPONENTS,
    Bound,
    Floats,
    Integers,
    Setting,
    lagrange,
    locate,
)
from haloscope.solvers.maxwell.terms.waveforms import NUMBERS, Table, Waveform

SOURCE = Path(__file__).with_name("driven.cpp")


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

    def local(self, element: int) -> int | None:
        """Number on this rank of an element of the whole mesh; None: it is not here."""
        rows = np.flatnonzero(self.part.elements == element)
        return int(rows[0]) if len(rows) else None

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


class DrivenTerm:
    """Entries with one waveform; no node twice.

    `shape`: (entries, 6); `delays`: (entries,).
    """

    def __init__(
        self,
        setting: Setting,
        places: Integers,
        shape: Floats,
        delays: Floats,
        waveform: Waveform,
    ) -> None:
        self._setting, self._count, self._kind = setting, len(places), waveform.kind
        self._places, self._shape = setting.put(places, np.int64), setting.put(shape.T)
        # A delay that all share goes into the waveform's first number, a time.
        alike = bool((delays == delays[0]).all())
        self._delays = None if alike else setting.put(delays, np.float64)
        numbers = np.array(waveform.numbers, np.float64)
        if alike:
            numbers[0] += delays[0]
        self._numbers = setting.put(numbers, np.float64)
        values = waveform.values if isinstance(waveform, Table) else np.zeros(NUMBERS)
        self._table = setting.put(np.asarray(values), np.float64)
        self._kernel = setting.kernel(SOURCE, "drive" if alike else "drive_delayed")

    def bind(self, to: Bound) -> list[list[Launch]]:
        """Launches for each stage."""
        delays = {} if self._delays is None else {"delays": self._delays}
        return [
            [
                self._kernel.bind(
                    increments=to.increments,
                    places=self._places,
                    shape=self._shape,
                    **delays,
                    count=self._count,
                    clock=to.clock,
                    numbers=self._numbers,
                    table=self._table,
                    kind=self._kind,
                    dt=to.dt,
                    rkc=c,
                    extent=(self._count,),
                )
            ]
            for c in LSERK4.c
        ]


def driven_terms(setting: Setting, entries: Sequence[Entries]) -> list[DrivenTerm]:
    """Terms for all entries: one for each waveform, as far as no node is met twice."""
    by_waveform: dict[Waveform, list[Entries]] = {}
    for entry in entries:
        by_waveform.setdefault(entry.waveform, []).append(entry)
    return [
        DrivenTerm(setting, *arrays, waveform)
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


def _of_medium(own: OwnElements, elements: NDArray[np.int64], magnetic: bool) -> Floats:
    """Permittivity of this rank's elements, or permeability."""
    values = own.permeability if magnetic else own.permittivity
    return np.asarray(values[own.part.elements[elements]])


@dataclass(frozen=True)
class PointDipole:
    """A current at a point: J = moment g(t) delta(x - position)."""

    position: Vector  # x, y, z
    # Current times length, a vector. In natural units the dipole's own moment p has dp/dt = moment
    # g.
    moment: Vector
    waveform: Waveform  # g
    magnetic: bool = False  # Whether it drives H as J drives E

    def placed(self, mesh: HexMesh, order: int) -> PlacedDipole:
        """Find its element in the whole mesh."""
        element, reference = locate(mesh, order, np.array(self.position, np.float64))
        concerned = np.zeros(mesh.count, bool)
        concerned[element] = True
        return PlacedDipole(self, element, reference, concerned)


@dataclass(frozen=True, eq=False)
class PlacedDipole:
    """A dipole whose element is known."""

    dipole: PointDipole  # What it is
    # Element of the whole mesh, and place in its reference cube.
    element: int
    reference: Floats
    concerned: NDArray[np.bool_]  # Whether each element of the whole mesh is its own

    def entries(self, own: OwnElements) -> list[Entries]:
        """The delta function in the element's polynomials, through the mass matrix.

        ``dE_n/dt = -moment l_n(position) / (eps w_n J_n)``.
        """
        local = own.local(self.element)
        if local is None:
            return []
        one = np.array([local])
        of_medium = _of_medium(own, one, self.dipole.magnetic)
        amounts = lagrange(own.order, self.reference) / (own.masses(one)[0] * of_medium)
        shape = _half(-amounts[:, None] * np.array(self.dipole.moment), self.dipole.magnetic)
        count = len(amounts)
        nodes = np.arange(count)
        elements = np.full(count, local)
        return [Entries(elements, nodes, shape, np.zeros(count), self.dipole.waveform)]


@dataclass(frozen=True, eq=False)
class VolumeCurrent:
    """A current density in a volume: J = distribution(x) g(t)."""

    distribution: Distribution  # J at points, by area
    waveform: Waveform  # g
    regions: tuple[str, ...] | None = None  # Names of the regions where it flows; None: everywhere
    magnetic: bool = False  # Whether it drives H as J drives E

    def placed(self, mesh: HexMesh, order: int) -> PlacedVolumeCurrent:
        """Find its elements in the whole mesh."""
        return PlacedVolumeCurrent(self, in_regions(mesh, self.regions))


@dataclass(frozen=True, eq=False)
class PlacedVolumeCurrent:
    """A current density whose elements are known."""

    current: VolumeCurrent
    concerned: NDArray[np.bool_]

    def entries(self, own: OwnElements) -> list[Entries]:
        """``dE/dt = -J / eps`` at the nodes."""
        elements = np.flatnonzero(self.concerned[own.part.elements])
        if not len(elements):
            return []
        places = own.places[elements].reshape(-1, 3)
        vectors = _vectors(self.current.distribution, places)
        count = len(places) // len(elements)
        of_medium = np.repeat(_of_medium(own, elements, self.current.magnetic), count)
        shape = _half(-vectors / of_medium[:, None], self.current.magnetic)
        nodes = np.tile(np.arange(count), len(elements))
        rows = np.repeat(elements, count)
        return [Entries(rows, nodes, shape, np.zeros(len(rows)), self.current.waveform)]


@dataclass(frozen=True, eq=False)
class SheetCurrent:
    """A current in a surface inside the mesh: K = distribution(x) g(t), by length."""

    surface: str  # Name of the surface
    distribution: Distribution  # K at points; what is normal to the surface has no effect
    waveform: Waveform  # g
    magnetic: bool = False  # Whether E jumps at it instead of H

    def placed(self, mesh: HexMesh, order: int) -> PlacedSheetCurrent:
        """Find its elements in the whole mesh."""
        if self.surface not in mesh.surfaces:
            known = ", ".join(mesh.surfaces) or "none"
            raise InputError(
                f"the mesh has no surface {self.surface!r} inside for a current",
                location=f"surface = {self.surface!r}",
                allowed=known,
            )
        concerned = np.zeros(mesh.count, bool)
        concerned[mesh.surfaces[self.surface][:, 0]] = True
        return PlacedSheetCurrent(self, concerned)


@dataclass(frozen=True, eq=False)
class PlacedSheetCurrent:
    """A sheet whose elements are known."""

    current: SheetCurrent
    concerned: NDArray[np.bool_]

    def entries(self, own: OwnElements) -> list[Entries]:
        """The jump n x (H+ - H-) = K is taken out of the jump that the flux sees, on both sides."""
        faces = own.part.mesh.surfaces.get(self.current.surface, np.zeros((0, 2), np.int64))
        if not len(faces):
            return []
        element, face = faces.T
        places = own.places[element]
        area = face_normals(places)[np.arange(len(faces)), face]
        n = area / np.linalg.norm(area, axis=-1, keepdims=True)
        on = face_nodes(own.order)[face]
        points = np.take_along_axis(places.reshape(len(faces), -1, 3), on[..., None], axis=1)
        K = _vectors(self.current.distribution, points.reshape(-1, 3)).reshape(points.shape)
        jump, nothing = np.cross(n, K), np.zeros_like(K)
        # A magnetic current M has n x (E+ - E-) = -M.
        e, h = (-jump, nothing) if self.current.magnetic else (nothing, jump)
        return [across_faces(own, faces, e, h, np.zeros(on.shape), self.current.waveform)]


Current = PointDipole | VolumeCurrent | SheetCurrent


def _vectors(distribution: Distribution, points: Floats) -> Floats:
    vectors = np.asarray(distribution(points), np.float64)
    if vectors.shape != points.shape or not np.isfinite(vectors).all():
        raise InputError(
            "the distribution of the current has other values",
            allowed="three finite numbers at every point of its region",
        )
    return vectors


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
