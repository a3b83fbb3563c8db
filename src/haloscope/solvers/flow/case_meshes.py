"""Keys of a flow case that make or name its mesh."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from haloscope.case.tables import Position, Table

_LARGEST = 1e30

Positive = Annotated[float, Field(ge=1e-30, le=_LARGEST)]
Component = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
_Ratio = Annotated[float, Field(ge=1.0, le=1000.0)]
_Resolution = Annotated[int, Field(ge=4, le=10_000)]
_TETS_OF_A_BRICK = 6


class Box(Table):
    """A box of bricks, each cut into six tetrahedra; its sides are x_low, x_high, ..., z_high."""

    cells: tuple[Count, Count, Count]
    """Bricks along x, y, z."""
    lower: Position = (0.0, 0.0, 0.0)
    """Corner in m."""
    upper: Position = (1.0, 1.0, 1.0)
    """The opposite corner in m."""
    grading: Position = (1.0, 1.0, 1.0)
    """Size of the last brick over that of the first along each axis."""
    to_walls: Annotated[float, Field(ge=0.0, le=0.99)] = 0.0
    """How far bricks are drawn towards both ends of each axis: 0 leaves them as they are."""

    def tetrahedra(self) -> int:
        """How many there are."""
        x, y, z = self.cells
        return _TETS_OF_A_BRICK * x * y * z


class CylinderChannel(Table):
    """Channel with a cylinder across it, 2.5 m x 0.41 m x 0.41 m, D = 0.1 m: DFG 3D-1Z to 3D-3Z.

    Boundaries: inlet, outlet, walls, cylinder.
    """

    resolution: _Resolution = 14
    """Cells from wall to wall, and on each quarter of the cylinder; 14 makes 118,440 elements with
    15 layers, 29 about a million."""
    layers: Count | None = None
    """Layers of cells along the cylinder; by default as many as the resolution."""
    rings: Count | None = None
    """Rings of cells around the cylinder; by default as many as the resolution."""
    growth: _Ratio = 6.0
    """Thickness of the outermost ring over the innermost."""
    stretch: _Ratio = 6.0
    """Length of the last cell before the outlet over the first behind the cylinder's block."""


class CylinderSlice(Table):
    """Thin slice of a channel around a cylinder, 2.2 m x 0.41 m, D = 0.1 m: DFG 2D-2.

    Boundaries: inlet, outlet, walls, cylinder, back (z = 0), front.
    """

    resolution: _Resolution = 24
    """Cells from wall to wall, and on each quarter of the cylinder."""
    layers: Count = 1
    """Layers of cells along z."""
    thickness: Positive | None = None
    """Along z, in m; by default such that layers are as thick as cells are high."""
    rings: Count | None = None
    """Rings of cells around the cylinder; by default as many as the resolution."""
    growth: _Ratio = 8.0
    """Thickness of the outermost ring over the innermost."""
    stretch: _Ratio = 3.0
    """Length of the last cell before the outlet over the first behind the cylinder's block."""


class MeshFile(Table):
    """A mesh of tetrahedra in a file; physical groups name boundaries and zones."""

    file: Name
    """Path of a Gmsh file (.msh, 2.2 or 4.1), or of a .vtu or .vtk file."""
    scale: Positive = 1.0
    """From the file's unit of length to metres: 0.001 for millimetres."""
    smallest_quality: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.01
    """Elements with a lower quality (Gmsh's SICN: 1 is regular, 0 is flat) are refused as slivers."""
