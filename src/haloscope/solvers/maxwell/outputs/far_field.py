"""Far fields computed from fields on a closed surface: patterns, power, cross sections.

Conventions. Fields vary as exp(-i w t): E(t) = Re[E exp(-i w t)]. Units are natural: c = 1, the
impedance of vacuum is 1, H is the SI one times that impedance; powers are SI powers times it. The
medium on and beyond the surface is uniform and lossless, of relative permittivity and
permeability; k = w sqrt(permittivity permeability) and Z = sqrt(permeability / permittivity).
Far from the origin E = F(theta, phi) exp(i k r) / r and H = (r x E) / Z, with theta from +z and
phi from +x.

The surface carries the equivalent currents J = n x H and M = -n x E (n outward). With
N = integral of J exp(-i k r . r') dS and L that of M,
F_theta = i k (L_phi + Z N_theta) / (4 pi), F_phi = -i k (L_theta - Z N_phi) / (4 pi):
C. A. Balanis, Advanced Engineering Electromagnetics, 2nd ed., eqs. 6-122 to 6-125 and sec. 7.8
(with j = -i); A. Taflove, S. C. Hagness, Computational Electrodynamics, 3rd ed., chapter 8.
What is inside the surface radiates; what comes from outside, such as an incident wave, leaves no
trace in F if E and H are those of one and the same wave.

A surface that ends at a plane wall is closed by image currents (Balanis, sec. 7.4). With R the
mirror image of a vector, J has the image -R J and M the image R M at an electric wall; at a magnetic
wall the signs are exchanged. Behind the wall F is 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh, Integers, face_nodes
from haloscope.numerics.elements.element_maps import face_normals, gll_weights, nodes

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]

_ALONE = World()
# Complex numbers of the phase factors held at once.
_PHASES_AT_ONCE = 1 << 20
# A direction counts as behind a wall if its cosine with the wall's normal is below this: rounding
# leaves grazing directions in front.
_BEHIND = -1e-9


@dataclass(frozen=True)
class MirrorPlane:
    """An infinite plane wall, for which image currents stand."""

    normal: tuple[float, float, float]  # Unit vector into the half space with the fields
    offset: float  # normal . x on the plane.
    magnetic: bool = False  # A magnetic wall (PMC) instead of an electric one (PEC)

    def __str__(self) -> str:
        for name, value in zip("xyz", self.normal, strict=True):
            if abs(value) > 1 - 1e-12:
                return f"{name} = {self.offset * value:.6g} m"
        normal = ", ".join(f"{value:.6g}" for value in self.normal)
        return f"({normal}) . x = {self.offset:.6g} m"

    @property
    def direction(self) -> Floats:
        """The normal as an array."""
        return np.array(self.normal)

    @property
    def signs(self) -> Floats:
        """Factors of R J and R M that make them the images of J and M, (2,)."""
        return np.array([1.0, -1.0] if self.magnetic else [-1.0, 1.0])

    def mirror(self, vectors: Floats | Complexes) -> Any:
        """R of vectors (..., 3)."""
        n = self.direction
        return vectors - 2 * (vectors @ n)[..., None] * n


def in_front(planes: Sequence[MirrorPlane], theta: Floats, phi: Floats) -> NDArray[np.bool_]:
    """Whether directions lie in the space with the fields, before all walls."""
    radial = spherical_directions(theta, phi)[0]
    result = np.ones(radial.shape[:-1], bool)
    for plane in planes:
        result &= radial @ plane.direction >= _BEHIND
    return result


@dataclass(frozen=True, eq=False)
class Surface:
    """Quadrature points on a surface: the GLL nodes of element faces, face after face."""

    faces: Integers  # int64 (faces, 2): the element and its face
    nodes: Integers  # int64 (faces, (N + 1)^2): node numbers within the element
    points: Floats  # (faces (N + 1)^2, 3)
    normals: Floats  # Unit normals, outward of what the surface encloses, shaped as `points`
    weights: Floats  # (faces (N + 1)^2,): areas that the points stand for

    def indices(self, components: int) -> Integers:
        """Places of values at the points in flat fields (elements, components, nodes): (points, components)."""
        nodes_of_an_element = math.isqrt(self.nodes.shape[1]) ** 3
        first = self.faces[:, :1] * (nodes_of_an_element * components) + self.nodes
        return np.asarray(first.reshape(-1, 1) + nodes_of_an_element * np.arange(components))


def enclosing_faces(
    mesh: HexMesh,
    inside: NDArray[np.bool_],
    *,
    from_outside: bool = False,
    walls: NDArray[np.bool_] | None = None,
    world: World = _ALONE,
    own: int | None = None,
) -> Integers:
    """Faces of the closed surface around some elements; all ranks call this.

    `inside`: (elements,): True for what the surface encloses; `world`, `own`: the ranks, and how
    many elements are this one's; by default one that has all.
    """
    # `walls`: (elements, 6): faces at the edge of the mesh that are no part of the surface, since
    # they lie on conductors; None: there are none.
    here = inside[:own, None]
    if not world.any(bool(here.any())):
        raise InputError(
            "the surface encloses no element",
            location="maxwell.far_field",
            remedy="enclose a region with elements (box or regions)",
        )
    neighbours = mesh.neighbours[:own]
    behind = neighbours >= 0
    wall = np.zeros(behind.shape, bool) if walls is None else walls[:own]
    other = behind & inside[np.where(behind, neighbours, 0)]
    if not from_outside:
        faces = np.argwhere(here & ~other & ~wall)
    else:
        at_edge = int(world.sum(np.array([(here & ~behind & ~wall).sum()]))[0])
        if at_edge:
            raise InputError(
                f"the surface has {counted(at_edge, 'face')} at the edge of the mesh, with nothing outside",
                location="maxwell.far_field",
                remedy="enclose a region that lies within the mesh (box or regions)",
            )
        faces = np.argwhere(~here & other)
    if not world.any(bool(len(faces))):
        raise InputError(
            "the surface has no face: electric, magnetic or lossy walls and periodic sides are all "
            "around it",
            location="maxwell.far_field",
            remedy="enclose a part of the mesh (box or regions), or use absorbing boundaries",
        )
    return faces


def surface(
    mesh: HexMesh,
    order: int,
    faces: Integers,
    *,
    places: Floats | None = None,
    from_outside: bool = False,
) -> Surface:
    """Quadrature points of element faces.

    `faces`: (n, 2), as of `enclosing_faces`; `places`: nodes (elements, N + 1, N + 1, N + 1, 3) of
    all elements, where they are known; None: those of the mesh.
    """
    elements, own = np.unique(faces[:, 0], return_inverse=True)
    own = own.reshape(-1)
    shape = nodes(mesh, order, elements) if places is None else places[elements]
    chosen = face_nodes(order)[faces[:, 1]]
    points = shape.reshape(len(elements), (order + 1) ** 3, 3)[own[:, None], chosen].reshape(-1, 3)
    scaled = face_normals(shape)[own, faces[:, 1]].reshape(-1, 3)
    size = np.linalg.norm(scaled, axis=1)
    w = gll_weights(order)
    weights = size * np.tile(np.outer(w, w).ravel(), len(faces))
    normals = scaled / size[:, None] * (-1.0 if from_outside else 1.0)
    return Surface(np.asarray(faces), chosen, points, normals, weights)


def power(on: Surface, electric: Complexes, magnetic: Complexes) -> Floats:
    """Mean power out through the surface: half the integral of Re(E x H*) . n.

    `electric`, `magnetic`: complex amplitudes (frequencies, points, 3).
    """
    flow = np.cross(electric, magnetic.conj()).real
    return np.asarray(0.5 * np.einsum("fpx,px,p->f", flow, on.normals, on.weights))


@dataclass(frozen=True, eq=False)
class FarField:
    """Waves far away, at some frequencies and directions."""

    wavenumbers: Floats  # k of each frequency, (frequencies,)
    impedance: float  # Z of the medium, relative to vacuum
    # Directions in rad, each of the same shape.
    theta: Floats
    phi: Floats
    # F (frequencies, *directions): E = F exp(i k r) / r.
    electric_theta: Complexes
    electric_phi: Complexes

    @property
    def intensity(self) -> Floats:
        """Power per solid angle (|F_theta|^2 + |F_phi|^2) / (2 Z), (frequencies, *directions)."""
        squares = np.abs(self.electric_theta) ** 2 + np.abs(self.electric_phi) ** 2
        return np.asarray(squares / (2 * self.impedance))

    def directivity(self, radiated: ArrayLike) -> Floats:
        """4 pi intensity / power, given the radiated power of each frequency (see `power`)."""
        total = np.asarray(radiated, np.float64)
        if not (total > 0).all():
            raise InputError(
                f"the radiated power is {total.tolist()}, so there is no directivity",
                location="far field",
                allowed="positive powers",
                remedy="check that the source lies inside the surface and radiates",
            )
        return np.asarray(4 * np.pi * self.intensity / _by_frequency(total, self.intensity))

    def cross_section(self, incident: ArrayLike) -> Floats:
        """Bistatic radar cross section 4 pi |F|^2 / |E_incident|^2 in m^2.

        `incident`: amplitude of the incident plane wave's electric field at each frequency, real or
        complex, (frequencies,) or one for all.
        """
        amplitude = np.abs(_incident(incident, len(self.wavenumbers))) ** 2
        scattered = self.intensity * 2 * self.impedance
        return np.asarray(4 * np.pi * scattered / _by_frequency(amplitude, scattered))


def far_field(
    on: Surface,
    electric: Complexes,
    magnetic: Complexes,
    angular_frequencies: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    *,
    permittivity: float = 1.0,
    permeability: float = 1.0,
    planes: Sequence[MirrorPlane] = (),
) -> FarField:
    """Waves that the sources inside a surface send far away.

    `electric`, `magnetic`: complex amplitudes on it, (frequencies, points, 3); only tangential
    parts count; `theta`, `phi`: directions in rad; shapes that broadcast.
    """
    rates = np.atleast_1d(np.asarray(angular_frequencies, np.float64))
    k, Z = rates * (permittivity * permeability) ** 0.5, (permeability / permittivity) ** 0.5
    at_theta, at_phi = np.broadcast_arrays(np.asarray(theta, float), np.asarray(phi, float))
    J = np.cross(on.normals, magnetic) * on.weights[:, None]
    M = np.cross(electric, on.normals) * on.weights[:, None]
    radial, polar, azimuthal = spherical_directions(at_theta.ravel(), at_phi.ravel())
    currents = np.stack([J, M], axis=-1)
    N, L = _integrals(on.points, currents, k, radial)
    for count in range(1, len(planes) + 1):
        for mirrors in itertools.combinations(planes, count):
            images = _images(on.points, currents, k, radial, mirrors)
            N, L = N + images[0], L + images[1]
    N_theta, N_phi = (np.einsum("fdx,dx->fd", N, unit) for unit in (polar, azimuthal))
    L_theta, L_phi = (np.einsum("fdx,dx->fd", L, unit) for unit in (polar, azimuthal))
    factor = 1j * k[:, None] / (4 * np.pi)
    shape = (len(k), *at_theta.shape)
    return FarField(
        wavenumbers=k,
        impedance=float(Z),
        theta=at_theta,
        phi=at_phi,
        electric_theta=(factor * (L_phi + Z * N_theta)).reshape(shape),
        electric_phi=(-factor * (L_theta - Z * N_phi)).reshape(shape),
    )


def _integrals(
    points: Floats, currents: Complexes, k: Floats, radial: Floats
) -> tuple[Complexes, Complexes]:
    """N and L, each (frequencies, directions, 3), of currents (frequencies, points, 3, 2)."""
    result = np.empty((len(k), len(radial), 6), complex)
    step = max(1, _PHASES_AT_ONCE // max(1, len(points)))
    for begin in range(0, len(radial), step):
        span = slice(begin, begin + step)
        path = radial[span] @ points.T
        for number, wavenumber in enumerate(k):
            phase = np.exp(-1j * wavenumber * path)
            result[number, span] = phase @ currents[number].reshape(-1, 6)
    parts = result.reshape(len(k), len(radial), 3, 2)
    return parts[..., 0], parts[..., 1]


def _images(
    points: Floats, currents: Complexes, k: Floats, radial: Floats, mirrors: Sequence[MirrorPlane]
) -> tuple[Complexes, Complexes]:
    """N and L of currents mirrored in each of some planes, as `_integrals`.

    A mirrored point is R x + 2 d n, so its path along r is R r . x + 2 d n . r.
    """
    mirrored, path, signs = radial, np.zeros(len(radial)), np.ones(2)
    for plane in mirrors:
        path = path + 2 * plane.offset * (radial @ plane.direction)
        mirrored, signs = plane.mirror(mirrored), signs * plane.signs
    N, L = _integrals(points, currents, k, mirrored)
    phase = np.exp(-1j * k[:, None] * path)[..., None]
    for plane in mirrors:
        N, L = plane.mirror(N), plane.mirror(L)
    return signs[0] * phase * N, signs[1] * phase * L


def scattering_cross_section(
    scattered: ArrayLike, incident: ArrayLike, impedance: float = 1.0
) -> Floats:
    """Scattered power over the incident wave's power per area, in m^2.

    `scattered`: `power` of the scattered field at each frequency, (frequencies,); `incident`:
    amplitude of the incident electric field, (frequencies,) or one for all.
    """
    total = np.asarray(scattered, np.float64)
    amplitude = np.abs(_incident(incident, len(total))) ** 2
    return np.asarray(total / (amplitude / (2 * impedance)))


def extinction_cross_section(
    forward: FarField, incident: ArrayLike, polarisation: ArrayLike
) -> Floats:
    """Scattered and absorbed power over the incident wave's power per area, in m^2.

    The optical theorem, 4 pi / k Im(p . F / E): Bohren and Huffman, Absorption and Scattering of
    Light by Small Particles, eq. 3.24; J. D. Jackson, Classical Electrodynamics, eq. 10.139.
    """
    # `incident`: complex amplitude of its electric field at the far field's origin, (frequencies,).
    # `polarisation`: real unit vector of its electric field, (3,).
    _, polar, azimuthal = spherical_directions(forward.theta.reshape(1), forward.phi.reshape(1))
    unit = np.asarray(polarisation, np.float64)
    along = forward.electric_theta.reshape(-1) * (polar[0] @ unit)
    along = along + forward.electric_phi.reshape(-1) * (azimuthal[0] @ unit)
    k = forward.wavenumbers
    return np.asarray(4 * np.pi / k * (along / _incident(incident, len(k))).imag)


def spherical_directions(theta: Floats, phi: Floats) -> tuple[Floats, Floats, Floats]:
    """Unit vectors along r, theta and phi, each (*directions, 3)."""
    (st, ct), (sp, cp) = (np.sin(theta), np.cos(theta)), (np.sin(phi), np.cos(phi))
    return (
        np.stack([st * cp, st * sp, ct], axis=-1),
        np.stack([ct * cp, ct * sp, -st], axis=-1),
        np.stack([-sp, cp, np.zeros_like(sp)], axis=-1),
    )


def sphere_quadrature(polar: int) -> tuple[Floats, Floats, Floats]:
    """Directions and their solid angles, to integrate a pattern over all of them.

    Gauss-Legendre in cos(theta), equal steps in phi: exact for spherical harmonics below degree 2
    polar. A pattern of sources within a radius a needs about k a + 10 polar angles.
    """
    # Returns: each (polar, 2 polar); the solid angles sum to 4 pi.
    cosines, weights = np.polynomial.legendre.leggauss(polar)
    theta, phi = np.meshgrid(
        np.arccos(cosines), np.pi / polar * np.arange(2 * polar), indexing="ij"
    )
    return theta, phi, np.broadcast_to(weights[:, None] * np.pi / polar, theta.shape)


def _incident(field: ArrayLike, frequencies: int) -> Complexes:
    amplitude = np.asarray(field, complex)
    if amplitude.shape not in ((), (1,), (frequencies,)) or not (np.abs(amplitude) > 0).all():
        raise InputError(
            f"the amplitude of the incident wave is {amplitude.tolist()}",
            location="far field",
            allowed=f"a number other than 0 for each of {frequencies} frequencies",
            remedy="check that the incident pulse has content at these frequencies",
        )
    return np.broadcast_to(amplitude, (frequencies,))


def _by_frequency(values: Floats, like: Floats) -> Floats:
    """Values (frequencies,) so shaped that they divide what has directions too."""
    return values.reshape(-1, *([1] * (like.ndim - 1)))
