"""Shapes of cells at rest from files of closed surfaces: checks, size and axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from haloscope.errors import InputError, counted
from haloscope.solvers.blood.membranes.meshes import MembraneMesh, triangle_normals

if TYPE_CHECKING:
    from haloscope.mesh.surfaces.surfaces import Surface

ENDINGS = (".stl", ".obj", ".ply", ".vtp")
FEWEST, MOST = 42, 200_000
"""Vertices of a cell's mesh."""
# Of a file: a text STL file of the finest mesh takes 110 MiB.
_MOST_BYTES = 128 << 20
# Of the worst triangle, 1 being equilateral: runs smooth cells below 0.06.
_LEAST_QUALITY = 0.1
# Sides of a box that differ by less are equal: those of a sphere's mesh differ a little.
_AS_SHORT = 0.02
_UNIT = "in the unit of the file"


@dataclass(frozen=True, eq=False)
class FileShape:
    """A cell as a file has it, without a size."""

    # Centred at the middle of its box, whose longest side is 2 and whose shortest one lies along z.
    mesh: MembraneMesh
    turn: (
        int  # Positions of the mesh are those of the file with components rolled by so many places
    )
    longest: float  # Longest side in the unit of the file
    loop: bool  # Whether subdivision surfaces can be laid through it
    irregular: int  # Vertices with other than 5 or 6 neighbours
    notices: tuple[str, ...]  # What was mended when it was read


def is_file(shape: str) -> bool:
    """Whether a shape of the case is the path of a surface."""
    return Path(shape).suffix.lower() in ENDINGS


def read_shape(file: str) -> FileShape:
    """Read a closed surface without handles; a file that has not changed is read once."""
    path = Path(file)
    state = path.stat() if path.is_file() else None
    return _read(file, (0, 0) if state is None else (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=16)
def _read(file: str, version: tuple[int, int]) -> FileShape:
    from haloscope.mesh.files.meshio_files import LengthUnit
    from haloscope.mesh.surfaces.intersections import require_uncrossed
    from haloscope.mesh.surfaces.surface_files import read_surface

    if version[1] > _MOST_BYTES:
        raise InputError(
            f"it has {version[1] / 2**20:.0f} MiB",
            location=f"surface file {file}",
            allowed=f"at most {_MOST_BYTES >> 20} MiB for a cell",
            remedy="use a coarser surface",
        )
    surface = read_surface(file, unit=LengthUnit(_UNIT, 1.0))
    _require_sphere_like(surface)
    require_uncrossed(surface)
    low, high = surface.bounds
    sides = high - low
    turn = _turn_of(sides)
    used, triangles = np.unique(surface.triangles, return_inverse=True)
    longest = float(sides.max())
    vertices = (surface.points[used] - (low + high) / 2) * (2 / longest)
    mesh = MembraneMesh(
        np.ascontiguousarray(np.roll(vertices, turn, axis=1)),
        triangles.reshape(-1, 3).astype(np.int32),
    )
    _require_good_triangles(mesh, surface)
    valence = np.bincount(mesh.triangles.ravel())
    corners = (valence != 6)[mesh.triangles].sum(axis=1)
    irregular = int(((valence != 5) & (valence != 6)).sum())
    loop = irregular == 0 and bool((corners <= 1).all())
    return FileShape(mesh, turn, longest, loop, irregular, surface.notices)


def _turn_of(sides: np.ndarray) -> int:
    """By how many places components are rolled so that the shortest side of a box lies along z."""
    # z itself and a turn the right way round, whichever is among the shortest.
    short = sides <= sides.min() + _AS_SHORT * sides.max()
    return next(turn for turn in (0, 1, 2) if short[(2 - turn) % 3])


def _require_sphere_like(surface: Surface) -> None:
    """Refuse surfaces that are open, in parts, or of another topology than a sphere."""
    from haloscope.mesh.surfaces.surfaces import check

    count = len(np.unique(surface.triangles))
    if not FEWEST <= count <= MOST:
        raise InputError(
            f"it has {counted(count, 'vertex', 'vertices')}",
            location=surface.location,
            allowed=f"{FEWEST} to {MOST} vertices for a cell",
            remedy="remesh the surface",
        )
    result = check(surface)
    for fault in result.faults[:1]:
        raise InputError(fault.problem, location=surface.location, remedy=fault.remedy)
    if result.parts > 1:
        raise InputError(
            f"it consists of {result.parts} parts that do not touch",
            location=surface.location,
            allowed="one closed surface for a cell",
            remedy="remove the other parts",
        )
    edges = 3 * len(surface.triangles) // 2
    handles = 1 - (count - edges + len(surface.triangles)) / 2
    if handles or _fans(surface) > count:
        kind = counted(int(handles), "handle") if handles > 0 else "a vertex where two parts touch"
        raise InputError(
            f"it has {kind}",
            location=surface.location,
            allowed="surfaces like a sphere, without handles and pinched vertices",
            remedy="remesh the surface",
        )


def _fans(surface: Surface) -> int:
    """Fans of triangles around vertices of a closed surface: one for each vertex that is not pinched."""
    from haloscope.mesh.surfaces.surfaces import connected_parts, edges_of, paired

    triangles = surface.triangles.astype(np.int64)
    tail, _, key = edges_of(triangles, len(surface.points))
    one, other = paired(key)
    # Corners of triangles are joined across the edges that meet in them: of edge k of a triangle,
    # corner k is its tail and corner k + 1 its head.
    after = np.arange(len(tail)) // 3 * 3 + (np.arange(len(tail)) + 1) % 3
    first = np.concatenate([one, after[one]])
    second = np.concatenate([after[other], other])
    return int(connected_parts(len(tail), first, second).max()) + 1


def _require_good_triangles(mesh: MembraneMesh, surface: Surface) -> None:
    """Refuse thin triangles, which a run would smooth or refuse."""
    _, area = triangle_normals(mesh.vertices, mesh.triangles)
    corners = mesh.vertices[mesh.triangles]
    squares = ((corners - np.roll(corners, 1, axis=1)) ** 2).sum(axis=(1, 2))
    quality = 4 * np.sqrt(3.0) * area / squares
    worst = int(quality.argmin())
    if quality[worst] < _LEAST_QUALITY:
        place = surface.unit.place(surface.corners[worst].mean(axis=0))
        raise InputError(
            f"the triangle at {place} has the quality {quality[worst]:.2g} (1: equilateral)",
            location=surface.location,
            allowed=f"at least {_LEAST_QUALITY:g}",
            remedy="remesh the surface with more even triangles",
        )
