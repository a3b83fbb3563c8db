"""Lattices of hexahedra with shells around them: what cylinders and spheres are made of.

A core of nx x ny x nz cells stands in the middle. Around some of its axes' faces lie layers of
shells, and around those, where wanted, a margin of plain boxes. All vertices are numbered by
their place in this arrangement; no coordinates are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from haloscope.domain.hex_mappings import BlockMap, BlockMapping, between
from haloscope.domain.hexes import FACES, Floats, HexMesh, Integers, connect

Triple = tuple[int, int, int]
CORNERS = np.array([(c & 1, c >> 1 & 1, c >> 2) for c in range(8)])
"""Place (i, j, k) of each corner."""


def equidistant(order: int) -> Floats:
    """Nodes of equal distance in the reference cube, ((order + 1)^3, 3), i fastest."""
    line = (2.0 * np.arange(order + 1) - order) / order
    k, j, i = np.meshgrid(line, line, line, indexing="ij")
    return np.stack([i, j, k], axis=-1).reshape(-1, 3)


def lattice_cells(cells: Triple) -> Integers:
    """Places (i, j, k) of all cells of a lattice, (cells, 3), i fastest."""
    k, j, i = np.indices(cells[::-1])
    return np.stack([i, j, k], axis=-1).reshape(-1, 3)


def lattice_numbers(places: Integers, cells: Triple) -> Integers:
    """Numbers of lattice points at places (..., 3); there is one more of them than cells."""
    nx, ny, _ = cells
    return np.asarray(places[..., 0] + (nx + 1) * (places[..., 1] + (ny + 1) * places[..., 2]))


@dataclass(frozen=True)
class Shell:
    """Layers between two surfaces.

    Attributes
    ----------
    inner, outer
        Maps of the cube's surface.
    layers
        Elements from one to the other.
    region
        Index of the region.
    """

    inner: BlockMap
    outer: BlockMap
    layers: int
    region: int


class Arrangement:
    """A core with shells, built up part by part.

    Parameters
    ----------
    cells
        Cells of the core along each axis.
    axes
        Axes whose faces bear shells.
    core
        Map of the core's parameter cube.
    """

    def __init__(self, cells: Triple, axes: tuple[int, ...], core: BlockMap) -> None:
        self._cells, self._axes = cells, axes
        self._levels = 0
        self._vertices: list[Integers] = []
        self._lower: list[Floats] = []
        self._upper: list[Floats] = []
        self._blocks: list[Integers] = []
        self._regions: list[Integers] = []
        self._maps: list[BlockMap] = []
        self._outermost: list[tuple[int, int, Integers]] = []
        self._count = 0
        points = lattice_cells((cells[0] + 1, cells[1] + 1, cells[2] + 1))
        self._core_points = len(points)
        outside = np.zeros(len(points), bool)
        for axis in axes:
            outside |= (points[:, axis] == 0) | (points[:, axis] == cells[axis])
        self._surface_number = np.cumsum(outside) - 1
        self._surface_points = int(outside.sum())
        places = lattice_cells(cells)
        ends = -1 + 2 * places / np.array(cells), -1 + 2 * (places + 1) / np.array(cells)
        self._add(lattice_numbers(places[:, None] + CORNERS, cells), ends, core, 0)

    def _add(
        self, vertices: Integers, ends: tuple[Floats, Floats], block: BlockMap, region: int
    ) -> Integers:
        count = len(vertices)
        self._vertices.append(vertices)
        self._lower.append(ends[0])
        self._upper.append(ends[1])
        self._blocks.append(np.full(count, len(self._maps)))
        self._regions.append(np.full(count, region))
        self._maps.append(block)
        self._count += count
        return np.arange(self._count - count, self._count)

    def _point(self, places: Integers, level: Integers) -> Integers:
        """Numbers of points on the surface, on a level of the shells; level 0 is the core's."""
        number = lattice_numbers(places, self._cells)
        raised = self._core_points + (level - 1) * self._surface_points
        return np.where(level == 0, number, raised + self._surface_number[number])

    def add_shell(self, shell: Shell) -> None:
        """Put layers around what is there."""
        self._outermost = []
        cells = np.array(self._cells)
        for axis in self._axes:
            flat = list(self._cells)
            flat[axis] = 1
            for side in (-1, 1):
                block = between(shell.inner, shell.outer, axis, side)
                places = np.tile(lattice_cells((flat[0], flat[1], flat[2])), (shell.layers, 1))
                layer = np.repeat(np.arange(shell.layers), len(places) // shell.layers)
                corners = places[:, None] + CORNERS
                # Away from the core the level rises: along the axis on its high side only.
                level = layer[:, None] + (CORNERS[:, axis] if side > 0 else 1 - CORNERS[:, axis])
                corners[..., axis] = 0 if side < 0 else cells[axis]
                lower = -1 + 2 * places / cells
                upper = -1 + 2 * (places + 1) / cells
                near = -1 + 2 * layer / shell.layers
                far = -1 + 2 * (layer + 1) / shell.layers
                lower[:, axis], upper[:, axis] = (near, far) if side > 0 else (-far, -near)
                added = self._add(
                    self._point(corners, self._levels + level), (lower, upper), block, shell.region
                )
                face = 2 * axis + (side > 0)
                self._outermost.append((axis, face, added[layer == shell.layers - 1]))
        self._levels += shell.layers

    def add_margin(self, layers: int, block: BlockMap, region: int) -> None:
        """Put boxes around the shells, `layers` on each side, with parameters up to +-2.

        The map takes parameters beyond [-1, 1]: from 1 to 2 across the margin.
        """
        cells = (
            self._cells[0] + 2 * layers,
            self._cells[1] + 2 * layers,
            self._cells[2] + 2 * layers,
        )
        inner = np.array(self._cells)
        points = lattice_cells((cells[0] + 1, cells[1] + 1, cells[2] + 1)) - layers
        within = ((points >= 0) & (points <= inner)).all(axis=1)
        numbers = np.empty(len(points), np.int64)
        numbers[within] = self._point(points[within], np.asarray(self._levels))
        first = self._core_points + self._levels * self._surface_points
        numbers[~within] = first + np.arange((~within).sum())
        places = lattice_cells(cells)
        shifted = places - layers
        outside = ~((shifted >= 0) & (shifted < inner)).all(axis=1)
        places, shifted = places[outside], shifted[outside]

        def parameter(place: Integers) -> Floats:
            beyond = np.where(place < 0, place, np.where(place > inner, place - inner, 0))
            return np.asarray(-1 + 2 * np.clip(place, 0, inner) / inner + beyond / layers)

        vertices = numbers[lattice_numbers(places[:, None] + CORNERS, cells)]
        ends = parameter(shifted), parameter(shifted + 1)
        added = self._add(vertices, ends, block, region)
        self._outermost = [
            (axis, 2 * axis + side, added[places[:, axis] == side * (cells[axis] - 1)])
            for axis in range(3)
            for side in (0, 1)
        ]

    def finish(
        self,
        order: int,
        region_names: tuple[str, ...],
        outer_names: tuple[str, ...],
        end_names: tuple[str, ...] = (),
    ) -> HexMesh:
        """Connect the parts.

        Parameters
        ----------
        order
            Geometric order of the stored coordinates.
        region_names
            Names of the regions.
        outer_names
            One name for the outermost surface, or six, one a side.
        end_names
            Names of the low and the high end along z where the shells leave it open.
        """
        blocks = np.concatenate(self._blocks)
        mapping = BlockMapping(
            blocks,
            np.concatenate(self._lower),
            np.concatenate(self._upper),
            tuple(self._maps),
        )
        boundaries = np.full((self._count, FACES), -1, np.int32)
        for _, face, elements in self._outermost:
            boundaries[elements, face] = face if len(outer_names) == FACES else 0
        names = outer_names
        for side, name in enumerate(end_names):
            ends = (mapping.lower, mapping.upper)[side][:, 2] == 2 * side - 1
            boundaries[ends, 4 + side] = len(names)
            names = (*names, name)
        size = order + 1
        coordinates = mapping(np.arange(self._count), equidistant(order))
        vertices = np.concatenate(self._vertices)
        return connect(
            coordinates.reshape(self._count, size, size, size, 3),
            np.unique(vertices, return_inverse=True)[1].reshape(-1, 8),
            boundaries=boundaries,
            boundary_names=names,
            regions=np.concatenate(self._regions).astype(np.int32),
            region_names=region_names,
            mapping=mapping,
        )
