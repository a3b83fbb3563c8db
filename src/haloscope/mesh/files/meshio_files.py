"""Mesh files read with meshio after a check of their sizes; lengths in messages in the user's unit."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import re
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.mesh.files.file_sizes import check_hdf5, check_vtk, check_xdmf
from haloscope.mesh.files.gmsh import check_gmsh_counts
from haloscope.mesh.files.vtk_xml import check_vtu
from haloscope.mesh.hexes.hexes import point_text


@dataclass(frozen=True)
class LengthUnit:
    """In which messages give lengths and places."""

    name: str  # As it is written behind a number
    metres: float  # What one is in m

    def length(self, value: float) -> str:
        """A length in m as it stands in messages."""
        return f"{value / self.metres:.6g} {self.name}"

    def place(self, point: NDArray[np.float64]) -> str:
        """A place in m as it stands in messages."""
        return f"{point_text(point / self.metres)} {self.name}"


METRE = LengthUnit("m", 1.0)
MICROMETRE = LengthUnit("um", 1e-6)


Integers = NDArray[np.int64]

ENDINGS = (".msh", ".vtu", ".vtk")
"""Endings of files of tetrahedra: Gmsh 2.2 or 4.1, and VTK with an unstructured grid."""
HEX_ENDINGS = (
    *ENDINGS,
    *(".xdmf", ".xmf", ".med", ".inp", ".mesh", ".meshb", ".bdf", ".fem", ".nas", ".su2", ".avs"),
    ".ugrid",
)
"""Endings of files of hexahedra."""

_CONVERT = "convert it with Gmsh, or with meshio convert (pip install netCDF4 for Exodus)"

_LONGEST_REASON = 200
_LONGEST_NAME = 60
# Parts of a file by the functions of meshio that read them.
_SECTIONS = {
    "_read_physical_names": ", section $PhysicalNames",
    "_read_entities": ", section $Entities",
    "_read_nodes": ", section $Nodes",
    "_read_elements": ", section $Elements",
    "_read_cells": ", section $Elements",
    "_read_periodic": ", section $Periodic",
    "_read_data": ", a section of data",
    "_read_data_item": ", a data item",
}
# Of meshio's warnings those about cells and data that it leaves out.
_DROPPED = re.compile(r"cells that meshio cannot handle \(type \d+\)")


def require_meshio() -> None:
    """Refuse to go on without what reads mesh files."""
    try:
        there = importlib.util.find_spec("meshio") is not None
    except ValueError:
        there = False
    if not there:
        raise MachineError(
            "reading mesh files needs meshio", remedy=f"run {install_command('mesh')}"
        )


def read_with_meshio(path: Path, endings: tuple[str, ...] = ENDINGS) -> Any:
    """Read a mesh file after a check of the sizes that it states."""
    ending = path.suffix.lower()
    if path.is_dir():
        raise InputError(
            "it is a folder",
            location=f"mesh file {path}",
            remedy=f"give a file in it that ends in {', '.join(endings)}",
        )
    if ending not in endings:
        raise InputError(
            "unknown ending",
            location=f"mesh file {path}",
            allowed=", ".join(endings),
            remedy=_CONVERT,
        )
    require_meshio()
    if not path.is_file():
        raise InputError(
            "it does not exist", location=f"mesh file {path}", remedy="give the path of a file"
        )
    meshio = importlib.import_module("meshio")
    if path.stat().st_size == 0:
        raise InputError("it is empty", location=f"mesh file {path}", remedy="write it anew")
    _check_sizes(path)
    said = io.StringIO()
    try:
        # meshio prints the reason for a failure, and ends the program where no reader accepts the file.
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            np.errstate(all="ignore"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            file = meshio.read(path)
    except (Exception, SystemExit) as error:
        place, reason = _reason(error, said.getvalue())
        hint = (
            "in Gmsh, put every volume and outer surface into physical groups and save those alone "
            "(Mesh.SaveAll = 0) as version 2.2 or 4.1, without parametric nodes"
            if ending == ".msh"
            else "save it as Gmsh 2.2 or 4.1 (.msh) or VTK (.vtu)"
        )
        raise InputError(
            f"it cannot be read: {reason}", location=f"mesh file {path}{place}", remedy=hint
        ) from None
    if dropped := _DROPPED.search(said.getvalue()):
        raise InputError(
            f"it holds {dropped[0]}, which would be left out",
            location=f"mesh file {path}",
            remedy="save it without them",
        )
    return file


def _check_sizes(path: Path) -> None:
    """Refuse counts that a file cannot hold, and data that would unfold to far more than its size."""
    checks: dict[str, Callable[[Path], None]] = {
        ".msh": check_gmsh_counts,
        ".vtu": check_vtu,
        ".vtk": check_vtk,
        ".xdmf": check_xdmf,
        ".xmf": check_xdmf,
        ".med": check_hdf5,
    }
    check = checks.get(path.suffix.lower())
    if check is not None:
        check(path)


def _reason(error: BaseException, printed: str) -> tuple[str, str]:
    """In plain words where reading failed, and why."""
    if isinstance(error, SystemExit | Warning):
        text = " ".join(printed.replace("Error:", " ").split())
        return "", text[:_LONGEST_REASON] or "its content does not match its ending"
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        place = _SECTIONS.get(frame.name, place)
    if isinstance(error, MemoryError):
        return place, "it states more data than fit into memory"
    if isinstance(error, ImportError):
        return place, f"the package {error.name} is not installed"
    if isinstance(error, UnicodeError):
        return place, "it holds bytes that are no text"
    if isinstance(error, KeyError):
        missing = re.search(r"object '([^']+)'", str(error))
        name = missing[1] if missing else str(error.args[0] if error.args else "")
        return (
            place,
            f"it lacks {name[:_LONGEST_NAME]!r}, or its value is unknown",
        )
    if isinstance(error, IndexError):
        return place, "it refers to a part that does not exist, for example a node"
    if "gmsh:physical" in str(error):
        return place, "some of its elements are in no physical group, and others are in one"
    if type(error).__module__.startswith("meshio") and str(error):
        return place, " ".join(str(error).split())[:_LONGEST_REASON]
    return place, "it is cut off or damaged"


def block_nodes(file: Any, block: int, path: Path, nodes: int | None = None) -> Integers:
    """Node numbers of a block of cells, (cells, nodes); checks the nodes per cell if requested."""
    points = len(file.points)
    kind, cells = file.cells[block].type, np.asarray(file.cells[block].data)
    shape_fits = cells.ndim == 2 and cells.size and cells.shape[1] == (nodes or cells.shape[1])
    if not (shape_fits and np.issubdtype(cells.dtype, np.integer)):
        raise InputError(
            f"cells of type {kind} are damaged", location=f"mesh file {path}", remedy="save it anew"
        )
    # Unsigned numbers beyond the range of int64 turn negative, and are caught below.
    cells = cells.astype(np.int64)
    wrong = np.flatnonzero((cells.min(axis=1) < 0) | (cells.max(axis=1) >= points))
    if len(wrong):
        row = cells[wrong[0]]
        node = row.min() if row.min() < 0 else row.max()
        raise InputError(
            f"{counted(len(wrong), 'cell')} of type {kind} with nodes that are not in the file, the "
            f"first is number {wrong[0]} with node {node} of {points} (both counted from 0)",
            location=f"mesh file {path}",
            remedy="save it anew",
        )
    return cells
