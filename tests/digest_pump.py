"""Writes a small mesh with the zones and boundaries of the blood pump, without Gmsh."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np

ZONES = ("straightener", "rotor", "diffuser")
VANES = {"straightener": "straightener_vanes", "rotor": "blades", "diffuser": "diffuser_vanes"}
HUB_RADIUS, HOUSING_RADIUS, LENGTH = 3e-3, 6e-3, 30e-3  # m
AROUND, OUTWARD, ALONG = 12, 3, 9  # cells
# Cells left out for vanes: two in a row around, in the middle of a zone; blades leave a tip gap.
VANES_AROUND = (0, 6)
LAYERS_OF_ZONE = ALONG // len(ZONES)


def _is_fluid(cell: tuple[int, int, int]) -> bool:
    outward, around, along = cell
    in_vane = along % LAYERS_OF_ZONE == 1 and around in VANES_AROUND
    tip = along // LAYERS_OF_ZONE == 1 and outward == OUTWARD - 1
    return tip or not in_vane


def _node(place: tuple[int, ...]) -> int:
    outward, around, along = place
    return (along * AROUND + around % AROUND) * (OUTWARD + 1) + outward


def _boundary(face: list[tuple[int, ...]], zone: str) -> str:
    """Name of the boundary of a face of one tetrahedron, by the planes that hold its nodes."""
    outward, _, along = ({node[axis] for node in face} for axis in range(3))
    if along in ({0}, {ALONG}):
        return "inlet" if along == {0} else "outlet"
    if outward in ({0}, {OUTWARD}):
        return f"{zone}_hub" if outward == {0} else "housing"
    return VANES[zone]


def write_pump(path: Path) -> None:
    """Write the mesh as a Gmsh file of version 2.2: an annulus of bricks of six tetrahedra each."""
    tets: list[tuple[str, list[tuple[int, ...]]]] = []
    for cell in filter(_is_fluid, itertools.product(*map(range, (OUTWARD, AROUND, ALONG)))):
        for axes in itertools.permutations(range(3)):
            corner = list(cell)
            corners = [tuple(corner)]
            for axis in axes:
                corner[axis] += 1
                corners.append(tuple(corner))
            if np.linalg.det(np.diff(corners, axis=0)) < 0:
                corners[1:3] = corners[2:0:-1]
            tets.append((ZONES[cell[2] // LAYERS_OF_ZONE], corners))
    faces: dict[frozenset[int], list[tuple[str, list[tuple[int, ...]]]]] = {}
    for zone, corners in tets:
        for face in map(list, itertools.combinations(corners, 3)):
            faces.setdefault(frozenset(map(_node, face)), []).append((zone, face))
    outer = [(_boundary(*rows[0][::-1]), rows[0][1]) for rows in faces.values() if len(rows) == 1]
    cells = [(2, name, nodes) for name, nodes in outer] + [(3, name, nodes) for name, nodes in tets]
    groups = {key: number for number, key in enumerate(dict.fromkeys(c[:2] for c in cells), 1)}
    lines = ["$MeshFormat", "2.2 0 8", "$EndMeshFormat", "$PhysicalNames", str(len(groups))]
    lines += [f'{dimension} {number} "{name}"' for (dimension, name), number in groups.items()]
    lines += ["$EndPhysicalNames", "$Nodes", str((OUTWARD + 1) * AROUND * (ALONG + 1))]
    for along, around, outward in itertools.product(*map(range, (ALONG + 1, AROUND, OUTWARD + 1))):
        radius = HUB_RADIUS + (HOUSING_RADIUS - HUB_RADIUS) * outward / OUTWARD
        angle = 2 * math.pi * around / AROUND
        point = radius * math.cos(angle), radius * math.sin(angle), LENGTH * along / ALONG
        lines.append(" ".join(map(str, (_node((outward, around, along)) + 1, *point))))
    lines += ["$EndNodes", "$Elements", str(len(cells))]
    for number, (dimension, name, nodes) in enumerate(cells, 1):
        kind, group = {2: 2, 3: 4}[dimension], groups[dimension, name]
        corners = " ".join(str(_node(node) + 1) for node in nodes)
        lines.append(f"{number} {kind} 2 {group} {group} {corners}")
    path.write_text("\n".join([*lines, "$EndElements", ""]))
