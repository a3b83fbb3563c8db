"""Currents that drive the fields: point dipoles, currents in volumes and on sheets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import HexMesh, face_nodes
from haloscope.numerics.elements.element_geometry import face_normals
from haloscope.solvers.maxwell.driven import Entries, OwnElements, across_faces
from haloscope.solvers.maxwell.places import lagrange, locate
from haloscope.solvers.maxwell.terms import Floats
from haloscope.solvers.maxwell.waveforms import Waveform

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
                f"the mesh has no surface {self.surface!r} inside for a current; there are: {known}"
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
            "a current's distribution must give three finite numbers at every point of its region"
        )
    return vectors


def in_regions(mesh: HexMesh, names: tuple[str, ...] | None) -> NDArray[np.bool_]:
    """Whether each element lies in one of the named regions; None: all do."""
    if names is None:
        return np.ones(mesh.count, bool)
    for name in names:
        if name not in mesh.region_names:
            raise InputError(
                f"the mesh has no region {name!r}; it has {', '.join(mesh.region_names)}"
            )
    return np.isin(mesh.regions, [mesh.region_names.index(name) for name in names])
