"""Surface of the far field in a mesh: its faces, its medium, and the plane walls at which images close it.

Faces of the surface that lie on a conductor carry no current of their own sources and are left out.
If the rest is closed, the conductor is an enclosed body. If it is open, its rim must lie in one, two
or three complete planes, normal to each other, each electric (PEC) or magnetic (PMC): image currents
then stand for the other half space.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.exchange.plan import all_rows
from haloscope.mesh.hexes.hexes import FACE_CORNERS, HexMesh, face_nodes, point_text
from haloscope.mesh.hexes.shared_meshes import bounds
from haloscope.solvers.maxwell.case import MaxwellTable
from haloscope.solvers.maxwell.case_tables import FarFieldTable
from haloscope.solvers.maxwell.meshes import SetUp, first_of
from haloscope.solvers.maxwell.outputs.far_field import MirrorPlane, enclosing_faces
from haloscope.solvers.maxwell.terms.sources import PlaneWave, PointDipole, in_box, in_regions
from haloscope.solvers.maxwell.terms.terms import Integers

# Kinds of outer faces.
OPEN, ELECTRIC, MAGNETIC, LOSSY = 0, 1, 2, 3
_KINDS = {"absorbing": OPEN, "pec": ELECTRIC, "pmc": MAGNETIC}
_KIND_NAMES = {OPEN: "absorbing", ELECTRIC: "pec", MAGNETIC: "pmc", LOSSY: "a lossy wall"}
# Pairs (a, b) of a face's corners 00, 10, 01, 11 that its edges join.
_EDGES = np.array([[0, 1], [1, 3], [3, 2], [2, 0]])
# Distance from a plane over the mesh's extent, and differences of normals, that count as none.
_FLAT, _PARALLEL = 1e-6, 1e-5
_REMEDY = (
    "move the surface off the wall (maxwell.far_field.box or regions), or extend the wall to a "
    "complete plane side of the mesh"
)


_refusal = partial(InputError, location="maxwell.far_field")


class RadiationSurface:
    """Own faces of the surface, and what closes it; all ranks make one."""

    def __init__(self, table: MaxwellTable, set_up: SetUp) -> None:
        assert table.far_field is not None
        self._world, self._around, self._added = set_up.world, set_up.around, set_up.added
        self._mesh, self._own = mesh, own = set_up.around.mesh, set_up.around.own
        self.notices: list[str] = []
        """Warnings about the surface, a line each."""
        of_name = [
            _KINDS[kind] if isinstance(kind := table.kinds()[name], str) else LOSSY
            for name in mesh.boundary_names
        ]
        # Kind of each face, (elements, 6): OPEN inside the mesh and where waves leave; the last entry
        # is for faces without a boundary.
        lookup = np.array([*of_name, OPEN])
        self._kinds = np.where(mesh.neighbours < 0, lookup[mesh.boundaries], OPEN)
        lower, upper = bounds(self._world, mesh.coordinates)
        self._extent = float(np.linalg.norm(upper - lower))
        self._enclose(table.far_field)
        walls = np.argwhere(self._inside[:own, None] & (self._kinds[:own] != OPEN))
        self.planes = self._mirror_planes(walls)
        """Walls at which the surface ends; images stand for them."""
        self._note_planes()
        self.permittivity, self.permeability = self._medium(self.faces[:, 0])
        self._note_sources()
        self._note_beyond()

    def _enclose(self, wanted: FarFieldTable) -> None:
        """Finds the faces, whether fields are taken outside them, and what they enclose."""
        world, mesh, own = self._world, self._mesh, self._own
        total = np.zeros(mesh.count, bool)
        for drive in self._added.drives:
            if isinstance(drive.source, PlaneWave):
                total |= drive.inside
        if wanted.box is not None:
            inside = in_box(mesh, wanted.box)
        elif wanted.regions:
            try:
                inside = in_regions(mesh, wanted.regions)
            except InputError as error:
                raise error.within("maxwell.far_field.regions") from None
        else:
            free = np.asarray(~self._added.axes.any(axis=1), bool)
            inside = total if world.any(bool(total.any())) else free
        walls = self._kinds != OPEN
        faces = enclosing_faces(mesh, inside, walls=walls, world=world, own=own)
        outside = world.any(bool(total[faces[:, 0]].any()))
        if outside:
            faces = enclosing_faces(
                mesh, inside, from_outside=True, walls=walls, world=world, own=own
            )
        if world.any(bool((total & ~inside).any())):
            raise _refusal(
                "the surface leaves out elements that hold the total field of a wave",
                remedy="enclose all of them, or remove box and regions",
            )
        self.faces, self.outside, self._inside = faces, outside, inside

    def _note_planes(self) -> None:
        """Tell of the walls for which images stand."""
        if self.planes and self.outside:
            raise _refusal(
                "the surface around the total field of a wave ends at a wall, where the reflection of the "
                "wave itself would count as scattered",
                remedy="keep the total field off walls, or let the wave enter through a boundary "
                "(maxwell.waves boundaries)",
            )
        self.notices += [
            f"far field: image sources stand for the {'magnetic' if plane.magnetic else 'electric'} "
            f"wall {plane}; pattern and powers are those of the half space in front of it"
            for plane in self.planes
        ]

    def _first(self, chosen: NDArray[np.generic]) -> tuple[int, str]:
        """Number of elements of all ranks, and the number and place of the first of them."""
        count, number, place = first_of(self._world, self._around, chosen)
        return count, f"element {number} at {place}"

    def _note_sources(self) -> None:
        """Warn of currents outside the surface, and of dipoles in elements that it touches."""
        driven, singular = np.zeros((2, self._own), bool)
        for drive in self._added.drives:
            if not isinstance(drive.source, PlaneWave):
                driven |= drive.concerned[: self._own]
            if isinstance(drive.source, PointDipole):
                singular |= drive.concerned[: self._own]
        count, place = self._first(driven & ~self._inside[: self._own])
        if count:
            self.notices.append(
                f"warning: maxwell.far_field: sources lie in {counted(count, 'element')} outside the "
                "surface, and their waves are missing from the far field; enclose "
                f"{place} (box or regions)"
            )
        at_surface = np.zeros(self._own, bool)
        at_surface[self.faces[:, 0]] = True
        count, place = self._first(singular & at_surface)
        if count:
            self.notices.append(
                f"warning: maxwell.far_field: a dipole lies in an element at the surface, {place}, where its "
                "own field is not resolved; keep an element between them"
            )

    def _others(self, constants: tuple[float, float]) -> NDArray[np.bool_]:
        """Whether the medium of each own element is lossy, or of other constants."""
        added, own = self._added, slice(0, self._own)
        other = added.lossy[own] | (added.permittivity[own] != constants[0])
        return np.asarray(other | (added.permeability[own] != constants[1]))

    def _note_beyond(self) -> None:
        """Warn of what lies beyond the surface and is not the uniform medium that F assumes."""
        outside = ~self._inside[: self._own]
        count, place = self._first(outside & self._others((self.permittivity, self.permeability)))
        if count:
            self.notices.append(
                f"warning: maxwell.far_field: {counted(count, 'element')} outside the surface "
                f"{'has' if count == 1 else 'have'} another medium than the surface; the first is "
                f"{place}. Waves that they reflect are missing from the far field; enclose them"
            )
        names = self._unmirrored_walls(outside & ~self._added.axes[: self._own].any(axis=1))
        if names:
            self.notices.append(
                f"warning: maxwell.far_field: the walls {', '.join(map(repr, names))} lie outside the "
                "surface, and waves that they reflect are missing from the far field; extend the surface to "
                "the walls, or use absorbing boundaries there"
            )

    def _medium(self, elements: Integers) -> tuple[float, float]:
        """Permittivity and permeability of elements at the surface, of all ranks."""
        added = self._added
        count, place = self._first(elements[added.axes[elements].any(axis=1)])
        if count:
            raise _refusal(
                f"the surface runs through the absorbing layer at {place}",
                remedy="enclose only elements inside the layer",
            )
        permittivity, permeability = (
            self._world.largest(float(of[elements].max(initial=0.0)))
            for of in (added.permittivity, added.permeability)
        )
        count, place = self._first(elements[self._others((permittivity, permeability))[elements]])
        if count:
            raise _refusal(
                f"the surface runs through several media, or one with loss or memory: {place} (relative "
                f"permittivity and permeability at most {permittivity:g}, {permeability:g} elsewhere on it)",
                remedy="move the surface (box or regions) into one medium without loss",
            )
        return permittivity, permeability

    # Walls

    def _mirror_planes(self, walls: Integers) -> list[MirrorPlane]:
        """Planes whose image sources close an open surface, from the wall faces (n, 2) within."""
        world, mesh = self._world, self._mesh
        edges = _edges(mesh, self.faces)
        rim = _odd(all_rows(world, edges.reshape(-1, 2)))
        if not len(rim):
            return []
        base = int(rim.max()) + 1
        wall_edges = _edges(mesh, walls)
        at_rim = _within(wall_edges, rim, base)
        covered = all_rows(world, wall_edges[at_rim])
        bare = _within(edges, rim, base) & ~_within(edges, covered, base)
        # A rim that meets no wall: the surface ends at a periodic side.
        places = all_rows(world, mesh.face_centres(self.faces[bare.any(axis=1)]))
        if len(places):
            first = places[np.lexsort(places.T[::-1])[0]]
            raise _refusal(
                f"the surface is open: it ends at a periodic side of the mesh near {point_text(first)} m",
                remedy="enclose a body (box or regions) that does not reach through periodic sides",
            )
        planes = self._distinct_planes(walls[at_rim.any(axis=1)])
        for plane, name in planes:
            self._require_complete(plane, name)
        return [plane for plane, _ in planes]

    def _distinct_planes(self, faces: Integers) -> list[tuple[MirrorPlane, str]]:
        """The planes in which wall faces that touch the rim lie, each with the name of a boundary in it."""
        mesh, extent = self._mesh, self._extent
        element, face = faces.T
        corners = mesh.corners[element[:, None], FACE_CORNERS[face]]
        # Normals point into the mesh.
        normals = np.cross(corners[:, 3] - corners[:, 0], corners[:, 2] - corners[:, 1])
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        centres = corners.mean(axis=1)
        inward = np.einsum("fx,fx->f", normals, mesh.centres[element] - centres)
        normals *= np.where(inward < 0, -1.0, 1.0)[:, None]
        nodes = mesh.coordinates.reshape(mesh.count, -1, 3)
        nodes = nodes[element[:, None], face_nodes(mesh.order)[face]]
        bends = np.abs(np.einsum("fnx,fx->fn", nodes - centres[:, None], normals)).max(axis=1)
        offsets = np.einsum("fx,fx->f", normals, centres)
        kinds, names = self._kinds[element, face], mesh.boundaries[element, face]
        # -0.0 and 0.0 are one.
        rows = np.column_stack([kinds, names, normals, offsets, bends, centres]) + 0.0
        rows = all_rows(self._world, rows)
        planes: list[tuple[MirrorPlane, str]] = []
        for row in rows[np.lexsort(rows.T[::-1])]:
            kind, name = int(row[0]), mesh.boundary_names[int(row[1])]
            normal, offset, bend = row[2:5], float(row[5]), row[6]
            begin = (
                f"the surface ends at {name!r} ({_KIND_NAMES[kind]}) near {point_text(row[7:])} m"
            )
            if kind == LOSSY:
                raise _refusal(
                    begin, allowed="pec and pmc planes, which have image sources", remedy=_REMEDY
                )
            if bend > _FLAT * extent:
                raise _refusal(
                    f"{begin}, where the wall is curved", allowed="plane walls", remedy=_REMEDY
                )
            for plane, _ in planes:
                cosine = float(plane.direction @ normal)
                same = cosine > 1 - _PARALLEL**2 and abs(plane.offset - offset) <= _FLAT * extent
                if same and plane.magnetic == (kind == MAGNETIC):
                    break
                if same or abs(cosine) > _PARALLEL:
                    relation = "in the same plane as" if same else "not normal to"
                    raise _refusal(
                        f"{begin}, which is {relation} another wall that the surface touches",
                        allowed="up to three planes normal to each other, each of one kind",
                        remedy=_REMEDY,
                    )
            else:
                x, y, z = normal.tolist()
                planes.append((MirrorPlane((x, y, z), offset, kind == MAGNETIC), name))
        return planes

    def _require_complete(self, plane: MirrorPlane, name: str) -> None:
        """Refuse a plane that the mesh crosses, or in which something else than the wall lies."""
        world, mesh, own, kinds = self._world, self._mesh, self._own, self._kinds
        extent = self._extent
        kind = MAGNETIC if plane.magnetic else ELECTRIC
        begin = f"the surface ends at the plane wall {name!r} ({_KIND_NAMES[kind]})"
        points = mesh.coordinates.reshape(mesh.count, -1, 3)[:own]
        heights = points @ plane.direction - plane.offset
        lowest = -world.largest(-float(heights.min(initial=np.inf)))
        if lowest < -_FLAT * extent:
            raise _refusal(
                f"{begin}, but the mesh continues behind it, up to {-lowest:.4g} m",
                allowed="an unbroken plane, for image sources",
                remedy=_REMEDY,
            )
        outer = np.argwhere(mesh.neighbours[:own] < 0)
        nodes = np.abs(heights[outer[:, :1], face_nodes(mesh.order)[outer[:, 1]]])
        others = outer[(nodes.max(axis=1) <= _FLAT * extent) & (kinds[*outer.T] != kind)]
        rows = np.column_stack([mesh.boundaries[*others.T], mesh.face_centres(others)])
        rows = all_rows(world, rows)
        if len(rows):
            first = rows[np.lexsort(rows.T[::-1])[0]]
            other = mesh.boundary_names[int(first[0])]
            raise _refusal(
                f"{begin}, but {other!r} lies in the same plane, at {point_text(first[1:])} m, and is "
                "of another kind",
                allowed="a complete plane of one kind, for image sources",
                remedy="give both one kind, or move the surface off the wall (maxwell.far_field.box or "
                "regions)",
            )

    def _unmirrored_walls(self, outside: NDArray[np.bool_]) -> list[str]:
        """Names of walls beyond the surface that reflect and that no image stands for."""
        mesh = self._mesh
        faces = np.argwhere(outside[:, None] & (self._kinds[: self._own] != OPEN))
        centres = mesh.face_centres(faces)
        bare = np.ones(len(faces), bool)
        for plane in self.planes:
            bare &= np.abs(centres @ plane.direction - plane.offset) > _FLAT * self._extent
        present = np.zeros(len(mesh.boundary_names), np.int64)
        present[mesh.boundaries[*faces[bare].T]] = 1
        total = self._world.sum(present)
        return [name for name, count in zip(mesh.boundary_names, total, strict=True) if count]


def _edges(mesh: HexMesh, faces: Integers) -> Integers:
    """Edges of faces (n, 2) as ascending pairs of vertex numbers, (n, 4, 2)."""
    corners = mesh.vertices[faces[:, :1], FACE_CORNERS[faces[:, 1]]]
    return np.sort(corners[:, _EDGES], axis=-1)


def _odd(edges: Integers) -> Integers:
    """Edges (n, 2) that occur an odd number of times: a closed surface has none."""
    different, counts = np.unique(edges, axis=0, return_counts=True)
    return np.asarray(different[counts % 2 == 1])


def _within(edges: Integers, chosen: Integers, base: int) -> NDArray[np.bool_]:
    """Whether edges (..., 2) are among others (n, 2), whose vertex numbers are below `base`."""
    keys = np.where(edges.max(axis=-1) < base, edges[..., 0] * base + edges[..., 1], -1)
    return np.isin(keys, chosen[:, 0] * base + chosen[:, 1])
