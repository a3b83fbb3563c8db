"""Plane waves that come in: through a closed surface inside the mesh, or at absorbing boundaries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import FACES, HexMesh, face_nodes
from haloscope.solvers.maxwell.terms.sources import (
    Entries,
    OwnElements,
    Vector,
    across_faces,
    in_regions,
)
from haloscope.solvers.maxwell.terms.terms import Floats, Integers
from haloscope.solvers.maxwell.terms.waveforms import Waveform

# Share by which a polarisation may miss being normal to the direction.
_ASKEW = 1e-6


NO_FACES = (
    "the surface through which the plane wave enters has no faces: no element has a neighbour on "
    "its other side"
)


def face_places(mesh: HexMesh, faces: Integers) -> Floats:
    """Geometry nodes (n, 3) of faces, each an element and a face number."""
    places = mesh.coordinates.reshape(mesh.count, -1, 3)
    return np.asarray(places[faces[:, :1], face_nodes(mesh.order)[faces[:, 1]]].reshape(-1, 3))


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
        if k.shape != (3,) or not np.isfinite(k).all() or not k.any():
            raise InputError(
                "it is no direction",
                location=f"plane wave: direction = {self.direction}",
                allowed="three finite numbers that are not all 0",
            )
        if e.shape != (3,) or not np.isfinite(e).all() or not e.any():
            raise InputError(
                "it is no polarisation",
                location=f"plane wave: polarisation = {self.polarisation}",
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

    def placed(self, mesh: HexMesh, order: int) -> PlacedWave:
        """Find the faces through which it comes in."""
        inside, faces = self.through(mesh)
        if not len(faces):
            raise InputError(NO_FACES)
        concerned = np.zeros(mesh.count, bool)
        concerned[faces[:, 0]] = True
        start = self.start
        if start is None:
            met = face_places(mesh, faces)
            x, y, z = met[np.argmin(met @ self.unit_direction)].tolist()
            start = (x, y, z)
        return PlacedWave(self, np.array(start, float), inside, concerned)

    def through(self, mesh: HexMesh) -> tuple[NDArray[np.bool_], Integers]:
        """Elements that hold the total field, and faces (n, 2) through which the wave comes in."""
        inside = np.zeros(mesh.count, bool)
        if self.boundaries:
            return inside, self._boundary_faces(mesh)
        inside = self._inside(mesh)
        crossing = inside[:, None] != inside[np.maximum(mesh.neighbours, 0)]
        return inside, np.argwhere(crossing & (mesh.neighbours >= 0))

    def _inside(self, mesh: HexMesh) -> NDArray[np.bool_]:
        if self.inside:
            return in_regions(mesh, self.inside)
        assert self.box is not None
        low, high = np.array(self.box, float)
        centres = mesh.centres
        return np.asarray(((centres > low) & (centres < high)).all(axis=1))

    def _boundary_faces(self, mesh: HexMesh) -> Integers:
        for name in self.boundaries:
            if name not in mesh.boundary_names:
                raise InputError(
                    f"the mesh has no boundary {name!r}",
                    location="plane wave: boundaries",
                    allowed=", ".join(mesh.boundary_names),
                )
        return np.concatenate([mesh.outer_faces(name) for name in self.boundaries])


@dataclass(frozen=True, eq=False)
class PlacedWave:
    """A plane wave whose surface is known."""

    wave: PlaneWave  # What it is
    start: Floats  # Where the waveform's time is that of the run
    inside: NDArray[np.bool_]  # Whether each element of the mesh holds the total field
    concerned: NDArray[np.bool_]  # Whether each element of the mesh has a face of the surface

    def _faces(self, own: OwnElements) -> tuple[Integers, Floats]:
        """Faces of this rank's elements, and +1 where the wave is added to what lies behind."""
        mesh = own.part.mesh
        if self.wave.boundaries:
            # A part of a mesh keeps the names of its boundaries, not their order of faces.
            numbers = [mesh.boundary_names.index(name) for name in self.wave.boundaries]
            outer = (mesh.neighbours < 0) & (own.part.partners < 0)
            faces = np.argwhere(outer & np.isin(mesh.boundaries, numbers))
            return faces, np.ones(len(faces))
        faces = np.argwhere(np.repeat(self.concerned[own.part.elements][:, None], FACES, axis=1))
        behind = own.behind(faces)
        here = self.inside[own.part.elements[faces[:, 0]]]
        on_surface = (behind >= 0) & (self.inside[np.maximum(behind, 0)] != here)
        return faces[on_surface], np.where(here[on_surface], 1.0, -1.0)

    def entries(self, own: OwnElements) -> list[Entries]:
        """Inside sees the wave added to what lies outside, outside sees it taken from inside."""
        faces, signs = self._faces(own)
        if not len(faces):
            return []
        element, face = faces.T
        here = own.part.elements[element]
        eps, mu = own.permittivity[here][0], own.permeability[here][0]
        on = face_nodes(own.order)[face]
        flat = own.places.reshape(len(own.places), -1, 3)
        points = flat[element[:, None], on]
        k = self.wave.unit_direction
        e = self.wave.electric
        h = np.sqrt(eps / mu) * np.cross(k, e)
        along = signs[:, None, None] * np.ones(on.shape)[..., None]
        delays = np.sqrt(eps * mu) * ((points - self.start) @ k)
        return [across_faces(own, faces, along * e, along * h, delays, self.wave.waveform)]
