"""What meshio makes of a mesh file, after a look at the sizes that the file states."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import mmap
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.counted import counted
from haloscope.domain.gmsh_counts import check_gmsh_counts
from haloscope.errors import InputError, MachineError

Integers = NDArray[np.int64]

ENDINGS = (".msh", ".vtu", ".vtk")
"""Endings of the files whose sizes are looked at before they are read."""

_LONGEST_REASON = 200
# Bytes at the beginning of a VTK file that hold what kind of grid it is.
_HEAD = 1024
_COUNTED = re.compile(
    rb"^[ \t]*(POINTS|CELLS|CELL_TYPES|OFFSETS|CONNECTIVITY|POINT_DATA|CELL_DATA|FIELD)"
    rb"[ \t]+([^\r\n]{0,120})",
    re.MULTILINE,
)
_NUMBER = re.compile(rb"-?\d+")


def require_meshio() -> None:
    """Refuse to go on without what reads mesh files.

    Raises
    ------
    MachineError
        meshio is not installed.
    """
    try:
        there = importlib.util.find_spec("meshio") is not None
    except ValueError:
        there = False
    if not there:
        raise MachineError("reading mesh files needs meshio; run pip install 'haloscope[mesh]'")


def read_with_meshio(path: Path, *, checked_alone: bool = True) -> Any:
    """Read a Gmsh (.msh 2.2 or 4.1) or VTK (.vtu, or .vtk with an unstructured grid) file.

    Parameters
    ----------
    path
        The file.
    checked_alone
        Refuse other formats, whose sizes nobody looks at before meshio does.

    Raises
    ------
    MachineError
        meshio is not installed.
    InputError
        The file is not there, of another format, or damaged.
    """
    ending = path.suffix.lower()
    if checked_alone and ending not in ENDINGS:
        raise InputError(
            f"mesh file {path} has an unknown ending; {', '.join(ENDINGS)} are read, Gmsh and "
            "meshio convert others"
        )
    require_meshio()
    if not path.is_file():
        raise InputError(f"mesh file {path} is not there; give the path of a file")
    meshio = importlib.import_module("meshio")
    if path.stat().st_size == 0:
        raise InputError(f"mesh file {path} is empty; write it anew")
    if ending == ".msh":
        check_gmsh_counts(path)
    elif ending in ENDINGS:
        _check_vtk(path, legacy=ending == ".vtk")
    said = io.StringIO()
    try:
        # meshio prints why it fails, and ends the program where no reader accepts the file.
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            np.errstate(all="ignore"),
        ):
            return meshio.read(path)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        spoken = said.getvalue() if kind == "SystemExit" else f"{kind}: {error}"
        reason = " ".join(spoken.split())[:_LONGEST_REASON]
        hint = (
            "in Gmsh, put every volume and outer surface into physical groups and save those alone "
            "(Mesh.SaveAll = 0) as version 2.2 or 4.1, without parametric nodes"
            if ending == ".msh"
            else "save it as Gmsh 2.2 or 4.1 (.msh) or VTK (.vtu)"
        )
        raise InputError(f"mesh file {path} cannot be read: {reason}; {hint}") from None


def _check_vtk(path: Path, *, legacy: bool) -> None:
    """Refuse counts that a file cannot hold, and what would unfold to far more than its size."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if not legacy:
            for mark, what in (
                (b"<!DOCTYPE", "declarations of XML"),
                (b"<!ENTITY", "declarations of XML"),
                (b"vtkLZMADataCompressor", "data packed by LZMA"),
            ):
                if text.find(mark) >= 0:
                    raise InputError(
                        f"mesh file {path} holds {what}, which are not read; save it as plain "
                        ".vtu, packed by zlib or not at all"
                    )
            return
        head = text[:_HEAD].upper()
        if b"UNSTRUCTURED_GRID" not in head:
            raise InputError(
                f"mesh file {path} holds no unstructured grid; save the tetrahedra and the named "
                "triangles as one"
            )
        for found in _COUNTED.finditer(text):
            for number in _NUMBER.findall(found[2]):
                if not 0 <= int(number) <= size:
                    raise InputError(
                        f"mesh file {path}: {found[1].decode()} states a count of {int(number)}, "
                        f"which a file of {size} bytes cannot hold; it is damaged, save it anew"
                    )


def block_nodes(file: Any, block: int, path: Path, nodes: int | None = None) -> Integers:
    """Node numbers of a block of cells, of so many nodes each if that is given, (cells, nodes).

    Raises
    ------
    InputError
        They are no whole numbers, not as many, or some nodes do not exist.
    """
    points = len(file.points)
    kind, cells = file.cells[block].type, np.asarray(file.cells[block].data)
    shape_fits = cells.ndim == 2 and cells.size and cells.shape[1] == (nodes or cells.shape[1])
    if not (shape_fits and np.issubdtype(cells.dtype, np.integer)):
        raise InputError(f"mesh file {path}: cells of type {kind} are damaged; save it anew")
    # Unsigned numbers beyond the range of int64 turn negative, and are caught below.
    cells = cells.astype(np.int64)
    wrong = np.flatnonzero((cells.min(axis=1) < 0) | (cells.max(axis=1) >= points))
    if len(wrong):
        row = cells[wrong[0]]
        node = row.min() if row.min() < 0 else row.max()
        raise InputError(
            f"mesh file {path}: {counted(len(wrong), 'cell')} of type {kind} with nodes that are not in the "
            f"file, the first is number {wrong[0]} with node {node} of {points} (both counted "
            "from 0); save it anew"
        )
    return cells
