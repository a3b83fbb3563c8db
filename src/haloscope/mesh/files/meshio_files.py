"""Mesh files read with meshio after a check of their sizes: cells that fill space, cells that name their faces, the groups of both."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import math
import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.mesh.files.file_sizes import check_hdf5, check_vtk, check_xdmf
from haloscope.mesh.files.gmsh import check_gmsh_counts, read_gmsh_groups
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
    with in_file(path):
        return _read(path, endings)


def _read(path: Path, endings: tuple[str, ...]) -> Any:
    ending = path.suffix.lower()
    if path.is_dir():
        raise InputError(
            "it is a folder", remedy=f"give a file in it that ends in {', '.join(endings)}"
        )
    if ending not in endings:
        raise InputError("unknown ending", allowed=", ".join(endings), remedy=_CONVERT)
    require_meshio()
    if not path.is_file():
        raise InputError("it does not exist", remedy="give the path of a file")
    meshio = importlib.import_module("meshio")
    if path.stat().st_size == 0:
        raise InputError("it is empty", remedy="write it anew")
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
            f"it holds {dropped[0]}, which would be left out", remedy="save it without them"
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
        return (place, f"it lacks {name[:_LONGEST_NAME]!r}, or its value is unknown")
    if isinstance(error, IndexError):
        return place, "it refers to a part that does not exist, for example a node"
    if "gmsh:physical" in str(error):
        return place, "some of its elements are in no physical group, and others are in one"
    if type(error).__module__.startswith("meshio") and str(error):
        return place, " ".join(str(error).split())[:_LONGEST_REASON]
    return place, "it is cut off or damaged"


def block_nodes(file: Any, block: int) -> Integers:
    """Node numbers of a block of cells, (cells, nodes)."""
    points = len(file.points)
    kind, cells = file.cells[block].type, np.asarray(file.cells[block].data)
    shape_fits = cells.ndim == 2 and cells.size
    if not (shape_fits and np.issubdtype(cells.dtype, np.integer)):
        raise InputError(f"cells of type {kind} are damaged", remedy="save it anew")
    # Unsigned numbers beyond the range of int64 turn negative, and are caught below.
    cells = cells.astype(np.int64)
    wrong = np.flatnonzero((cells.min(axis=1) < 0) | (cells.max(axis=1) >= points))
    if len(wrong):
        row = cells[wrong[0]]
        node = row.min() if row.min() < 0 else row.max()
        raise InputError(
            f"{counted(len(wrong), 'cell')} of type {kind} with nodes that are not in the file, the "
            f"first is number {wrong[0]} with node {node} of {points} (both counted from 0)",
            remedy="save it anew",
        )
    return cells


Numbers = NDArray[np.int32]

# Names under which meshio hands on the tags of the formats it reads.
_TAGS = (
    *("gmsh:physical", "medit:ref", "cell_tags", "CellEntityIds", "nastran:ref"),
    *("avsucd:material", "su2:tag", "ugrid:ref", "region", "material"),
)
UNNAMED_ZONE = "volume"
"""Zone of elements without a group."""
# Pairs of groups that are listed.
_SHOWN = 8
_ENTITY = "gmsh:geometrical"
_FLAT = ("quad", "triangle", "polygon", "pixel", "VTK_LAGRANGE_QUAD", "VTK_LAGRANGE_TRI")
_BELOW_FLAT = ("vertex", "line", "VTK_LAGRANGE_CURVE", "empty")


def dimension(cell_type: str) -> int:
    """Topological dimension of a cell type by meshio's name; 0 also stands for lines."""
    if cell_type.startswith(_BELOW_FLAT):
        return 0
    return 2 if cell_type.startswith(_FLAT) else 3


class CellGroups:
    """All groups of each cell of a file.

    Tags count first, with names from the file's table of them where it has one; otherwise sets. Of
    a Gmsh file of version 4 the groups of the entities count: a tag names the first of them only.
    """

    def __init__(self, file: Any, path: Path) -> None:
        self.names: list[str] = []  # Names of the groups; a group without one goes by its number
        self._sizes = [len(block.data) for block in file.cells]
        # Of each block pairs of cells and their common group.
        self._members: list[list[tuple[Integers, int]]] = [[] for _ in file.cells]
        # A surface and a volume may have one name, and are two groups.
        self._group_numbers: dict[tuple[int, str], int] = {}
        gmsh = path.suffix.lower() == ".msh"
        tag = next((name for name in _TAGS if self._is_tag(file, name)), None)
        groups = read_gmsh_groups(path) if gmsh else None
        if groups is not None and groups.entities and self._is_tag(file, _ENTITY):
            self._take_entities(file, groups.entities, groups.names)
        elif tag is None:
            self._take_sets(file)
        else:
            names = _tag_names(file, tag)
            if groups is not None:
                names = {key: (name,) for key, name in groups.names.items()}
            self._take_tags(file, tag, names)

    def _is_tag(self, file: Any, name: str) -> bool:
        parts = file.cell_data.get(name, ())
        return len(parts) == len(self._sizes) and all(
            np.size(part) == size and _are_whole(np.asarray(part))
            for part, size in zip(parts, self._sizes, strict=True)
        )

    def _number(self, size: int, name: str) -> int:
        key = size, name
        if key not in self._group_numbers:
            self._group_numbers[key] = len(self.names)
            self.names.append(name)
        return self._group_numbers[key]

    def _take_entities(
        self,
        file: Any,
        entities: dict[tuple[int, int], tuple[int, ...]],
        names: dict[tuple[int, int], str],
    ) -> None:
        parts = zip(self._members, file.cells, file.cell_data[_ENTITY], strict=True)
        for members, block, part in parts:
            tags = np.asarray(part).ravel().astype(np.int64)
            size = dimension(block.type)
            for tag in np.unique(tags):
                cells = np.flatnonzero(tags == tag)
                for group in entities.get((size, int(tag)), ()):
                    name = names.get((size, group), str(group))
                    members.append((cells, self._number(size, name)))

    def _take_tags(
        self, file: Any, tag: str, names: dict[tuple[int, int], tuple[str, ...]]
    ) -> None:
        parts = zip(self._members, file.cells, file.cell_data[tag], strict=True)
        for members, block, part in parts:
            tags = np.nan_to_num(np.asarray(part).ravel()).astype(np.int64)
            size = dimension(block.type)
            for value in np.unique(tags[tags != 0]):
                cells = np.flatnonzero(tags == value)
                for name in names.get((size, int(value)), (str(value),)):
                    members.append((cells, self._number(size, name)))

    def _take_sets(self, file: Any) -> None:
        for name, parts in file.cell_sets.items():
            if name.startswith("gmsh:") or len(parts) != len(self._sizes):
                continue
            for members, block, part, size in zip(
                self._members, file.cells, parts, self._sizes, strict=True
            ):
                cells = np.asarray([] if part is None else part, np.int64).ravel()
                cells = np.unique(cells[(cells >= 0) & (cells < size)])
                if len(cells):
                    members.append((cells, self._number(dimension(block.type), name)))

    def any_in(self, block: int) -> str | None:
        """A group of some cell of a block, if there is one."""
        members = self._members[block]
        return self.names[members[0][1]] if members else None

    def pairs(self, blocks: list[int]) -> tuple[Integers, Numbers]:
        """Cells of some blocks, counted through one after the other, and a group of each.

        A cell comes once for each of its groups, one without a group not at all.
        """
        cells: list[Integers] = [np.empty(0, np.int64)]
        groups: list[Numbers] = [np.empty(0, np.int32)]
        before = 0
        for block in blocks:
            for members, group in self._members[block]:
                cells.append(members + before)
                groups.append(np.full(len(members), group, np.int32))
            before += self._sizes[block]
        return np.concatenate(cells), np.concatenate(groups)


def _are_whole(values: NDArray[Any]) -> bool:
    """Whether an array has whole numbers: a field of fractions is no tag."""
    if np.issubdtype(values.dtype, np.integer):
        return True
    if not np.issubdtype(values.dtype, np.floating):
        return False
    numbers = np.nan_to_num(values)
    return bool((numbers == np.round(numbers)).all())


@dataclass(frozen=True)
class ChosenGroups:
    """One group of each item (a face or a cell)."""

    numbers: Numbers  # Index into `names` of each item; -1: it is in none
    names: tuple[str, ...]  # Of the groups that items have
    notes: tuple[str, ...]  # Which groups share items, and which of them counts, a line each


def choose_groups(
    items: Integers,
    groups: Numbers,
    names: list[str],
    count: int,
    used: Collection[str],
    kind: str,
    setting: str,
) -> ChosenGroups:
    """Choose one group of each item that is in several.

    Groups that the case uses come before others, and smaller groups before larger ones.
    """
    pairs = np.unique(np.stack([items, groups.astype(np.int64)], axis=1), axis=0)
    items, groups = pairs[:, 0], pairs[:, 1].astype(np.int32)
    sizes = np.bincount(groups, minlength=len(names))
    order = sorted(range(len(names)), key=lambda g: (names[g] not in used, sizes[g], g))
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    best = np.full(count, len(names), np.int64)
    np.minimum.at(best, items, rank[groups])
    numbers = np.append(np.array(order, np.int32), -1)[best].astype(np.int32)
    notes = []
    lost = np.flatnonzero(numbers[items] != groups)
    if len(lost):
        overlaps, counts = np.unique(
            np.stack([numbers[items[lost]], groups[lost]], axis=1), axis=0, return_counts=True
        )
        for (winner, loser), number in zip(overlaps.tolist(), counts.tolist(), strict=True):
            notes.append(
                _overlap(
                    *(names[winner], names[loser], number, kind, setting),
                    both=names[winner] in used and names[loser] in used,
                    equal=bool(sizes[winner] == sizes[loser]),
                )
            )
    if len(notes) > _SHOWN:
        notes[_SHOWN:] = [f"{counted(len(notes) - _SHOWN, 'more pair')} of groups share {kind}s"]
    kept = np.unique(numbers[numbers >= 0])
    for group in np.setdiff1d(groups, kept):
        if names[group] in used:
            winners = np.unique(numbers[items[groups == group]])
            raise InputError(
                f"every {kind} of the group '{names[group]}' is also in a smaller group with a "
                f"{setting} ({', '.join(names[n] for n in winners)})",
                remedy=f"give '{names[group]}' no {setting}",
            )
    renumbered = np.full(len(names) + 1, -1, np.int32)
    renumbered[kept] = np.arange(len(kept))
    return ChosenGroups(renumbered[numbers], tuple(names[n] for n in kept), tuple(notes))


def _overlap(
    winner: str, loser: str, number: int, kind: str, setting: str, *, both: bool, equal: bool
) -> str:
    """A line about items that are in two groups."""
    shared = f"{counted(number, kind)} in both of the groups '{winner}' and '{loser}'"
    if not both:
        return f"{shared}: '{winner}' applies there; '{loser}' has no {setting} there"
    if equal:
        raise InputError(
            f"{shared}, which are equally large and both have a {setting}",
            remedy=f"give only one of them a {setting}",
        )
    return (
        f"{shared}: the {setting} of '{winner}', the smaller group, applies there; results of "
        f"'{loser}' do not include these {kind}s"
    )


def _tag_names(file: Any, tag: str) -> dict[tuple[int, int], tuple[str, ...]]:
    """Names of tags by dimension and number; a family of a MED file may be in several groups."""
    names: dict[tuple[int, int], tuple[str, ...]] = {}
    if tag == "cell_tags":
        for value, sets in getattr(file, "cell_tags", {}).items():
            for size in (2, 3):
                names[size, int(value)] = tuple(map(str, sets))
    return names


def equal_cells(cells: Integers) -> tuple[Integers, Integers]:
    """The first of all cells with the same nodes, and for each cell which of them it equals."""
    ordered = np.sort(cells, axis=1)
    factors = np.random.default_rng(0).integers(1, 2**62, cells.shape[1]) | 1
    with np.errstate(over="ignore"):
        keys = ordered @ factors
    order = np.argsort(keys, kind="stable")
    new = np.ones(len(order), bool)
    new[1:] = (keys[order[1:]] != keys[order[:-1]]) | (
        ordered[order[1:]] != ordered[order[:-1]]
    ).any(axis=1)
    first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
    leader = np.empty(len(cells), np.int64)
    leader[order] = first
    firsts = np.unique(leader)
    return firsts, np.searchsorted(firsts, leader)


def zones_of(
    groups: CellGroups, blocks: list[int], cells: Integers, used: Collection[str]
) -> tuple[Integers, ChosenGroups]:
    """Elements of some blocks, each once, and the zone of each; those without a group have one, too.

    Gmsh's format 2.2 holds an element in several groups several times.
    """
    items, numbers = groups.pairs(blocks)
    if len(np.unique(numbers)) > 1 and len(items) == len(cells):
        first, place = equal_cells(cells)
        cells, items = cells[first], place[items]
    chosen = choose_groups(items, numbers, groups.names, len(cells), used, "element", "setting")
    without = chosen.numbers < 0
    if not without.any():
        return cells, chosen
    names = chosen.names if UNNAMED_ZONE in chosen.names else (*chosen.names, UNNAMED_ZONE)
    zones = np.where(without, names.index(UNNAMED_ZONE), chosen.numbers).astype(np.int32)
    return cells, ChosenGroups(zones, names, chosen.notes)


@dataclass(frozen=True)
class VolumeKind:
    """The cells that a mesh is made of."""

    plural: str
    cells: str  # Pattern of meshio's types
    allowed: str
    remedy: str
    endings: tuple[str, ...]  # Of files
    # Pattern of the types of cells that name faces, their corners, and what they are called.
    faces: str
    corners: int
    faces_text: str


@dataclass(frozen=True, eq=False)
class VolumeCells:
    """The cells of a file that fill space, each once, and the faces that have a name."""

    path: Path
    points: NDArray[np.float64]  # (points, 3) in the file's unit of length
    kind: str  # meshio's type of the cells
    cells: Integers  # (elements, nodes): numbers of points in the file's order
    zones: ChosenGroups
    faces: Integers  # (n, corners): points of the named faces, each once
    face_groups: ChosenGroups  # Of these faces


def read_volumes(
    kind: VolumeKind,
    path: Path | str,
    scale: float,
    conditions: Collection[str],
    settings: Collection[str],
) -> VolumeCells:
    """Read the cells of a mesh file, which all must be of a kind.

    `conditions`, `settings`: names of faces and of zones that the case uses.
    """
    path = Path(path)
    if not (math.isfinite(scale) and scale > 0):
        raise InputError("out of range", location=f"scale = {scale:g}", allowed="a factor above 0")
    file = read_with_meshio(path, kind.endings)
    points = np.asarray(file.points, np.float64)
    with in_file(path):
        if points.ndim != 2 or points.shape[1] != 3:
            raise InputError("it has no points in three dimensions")
        blocks = volume_blocks(kind, file)
        cells = np.concatenate([block_nodes(file, block) for block in blocks])
        groups = CellGroups(file, path)
        cells, zones = zones_of(groups, blocks, cells, settings)
        faces, face_groups = _named_faces(kind, file, groups, conditions)
    return VolumeCells(path, points, file.cells[blocks[0]].type, cells, zones, faces, face_groups)


@contextlib.contextmanager
def in_file(path: Path | str) -> Iterator[None]:
    """Put a mesh file before the location of an error that does not name it."""
    location = f"mesh file {path}"
    try:
        yield
    except InputError as error:
        raise (error if error.location.startswith(location) else error.within(location)) from None


def volume_blocks(kind: VolumeKind, file: Any) -> list[int]:
    """Numbers of the blocks of cells of a kind; nothing else may fill space."""
    counts: Counter[str] = Counter()
    for block in file.cells:
        if dimension(block.type) == 3 and len(block.data):
            counts[block.type] += len(block.data)
    listed = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if not counts:
        surface = Counter(block.type for block in file.cells if len(block.data))
        raise InputError(
            f"it holds no {kind.plural}, only {', '.join(sorted(surface)) or 'points'}",
            remedy="in Gmsh, put the volumes into a physical group, so that they are saved",
        )
    if not all(re.fullmatch(kind.cells, name) for name in counts):
        raise InputError(f"it holds {listed}", allowed=kind.allowed, remedy=kind.remedy)
    blocks = [n for n, block in enumerate(file.cells) if block.type in counts and len(block.data)]
    if len({(file.cells[n].type, np.shape(file.cells[n].data)[1]) for n in blocks}) > 1:
        raise InputError(
            f"it mixes {kind.plural} of several orders ({listed})",
            remedy="save the mesh with one order",
        )
    return blocks


def _named_faces(
    kind: VolumeKind, file: Any, groups: CellGroups, conditions: Collection[str]
) -> tuple[Integers, ChosenGroups]:
    """Corners of the faces that have a group, each once, and one of its groups."""
    blocks = [
        number
        for number, block in enumerate(file.cells)
        if dimension(block.type) == 2 and groups.any_in(number) is not None
    ]
    for number in blocks:
        name = file.cells[number].type
        if not re.fullmatch(kind.faces, name):
            raise InputError(
                f"the surface '{groups.any_in(number)}' is made of {name} cells",
                allowed=kind.faces_text,
            )
    rows = [block_nodes(file, number)[:, : kind.corners] for number in blocks]
    faces = np.concatenate([np.empty((0, kind.corners), np.int64), *rows])
    first, place = equal_cells(faces)
    cells, numbers = groups.pairs(blocks)
    chosen = choose_groups(
        place[cells], numbers, groups.names, len(first), conditions, "face", "condition"
    )
    named = chosen.numbers >= 0
    return faces[first[named]], replace(chosen, numbers=chosen.numbers[named])
