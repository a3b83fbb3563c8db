"""Output of cells at intervals and at the end: files for ParaView, the table of cells and its rows after a restart, pictures."""

from __future__ import annotations

import bisect
import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError, counted
from haloscope.exchange.plan import to_root
from haloscope.exchange.ranks.world import World
from haloscope.io.atomic import append_text, write_text
from haloscope.io.vtk_arrays import TRIANGLE, CellArrays
from haloscope.io.vtkhdf import POINTS, Block, Blocks, VtkhdfWriter
from haloscope.mesh.lattice.lattice_parts import Region
from haloscope.solvers.blood.cells.local_cells import OwnCells, own_cells
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.filling.packing import LeftOut
from haloscope.solvers.blood.units import MICRO, LatticeUnits
from haloscope.solvers.blood.vessels.vessels import Vessel
from haloscope.solvers.interface import Results, saved_counts

if TYPE_CHECKING:
    from haloscope.io.figures.animations import SurfaceFrames
    from haloscope.solvers.blood.outputs.pictures import CellView

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def _state(cells: OwnCells, origin: Floats, units: LatticeUnits) -> NDArray[np.float32]:
    """Positions, velocities and forces in SI units, (n, 3, V, 3), as files hold them."""
    states = np.empty((len(cells.ids), 3, *cells.positions.shape[1:]), np.float32)
    states[:, 0] = origin + units.spacing * cells.positions
    states[:, 1] = units.velocity * cells.velocities
    states[:, 2] = units.force * cells.forces
    return states


def _portions(
    world: World, own: Sequence[tuple[Integers, NDArray[np.float32]]]
) -> Iterator[tuple[int, Integers, NDArray[np.float32]]]:
    """Kind, numbers and state of cells, rank by rank, on rank 0; all ranks go through this."""
    for kind, (ids, state) in enumerate(own):
        if not world.is_root:
            world.send(np.array([len(ids)], np.int64), 0)
            if len(ids):
                world.send(ids, 0)
                world.send(state, 0)
            continue
        yield kind, ids, state
        for rank in range(1, world.size):
            count = int(world.receive((1,), np.int64, rank)[0])
            if count:
                numbers = world.receive((count,), np.int64, rank)
                yield kind, numbers, world.receive((count, *state.shape[1:]), np.float32, rank)


# Of a row, before its first comma; steps have up to 13 digits.
_STEP = re.compile(r"[0-9]{1,18}")
_MEND = "replace it by an intact copy, or move it away to begin a new table; then restart"


def rows_up_to(path: Path, header: str, step: int) -> tuple[list[str], list[int]]:
    """Rows of a table up to a step, in the order of their steps.

    Later rows are left out, and an incomplete last row of a killed run.
    """
    rows: list[str] = []
    steps: list[int] = []
    if not path.exists():
        return rows, steps
    if not path.is_file():
        raise InputError(
            "it is not a file, but the table of cells has this path",
            location=str(path),
            remedy="move it away, then restart",
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(
            f"the table of cells cannot be read ({error.strerror})",
            location=str(path),
            remedy="make it readable, or move it away to begin a new table; then restart",
        ) from error
    *lines, _cut_off = _text(content, path).split("\n")
    if not lines or lines[0] != header:
        raise InputError(
            "it lacks the header of a table of cells of this version",
            location=f"{path}, line 1",
            remedy=_MEND,
        )
    for number, line in enumerate(lines[1:], 2):
        first = line.partition(",")[0]
        whole = line.count(",") == header.count(",") and _STEP.fullmatch(first)
        if not whole or (steps and int(first) < steps[-1]):
            raise InputError(
                "it is damaged: this is not a row of the table of cells",
                location=f"{path}, line {number}",
                remedy=_MEND,
            )
        if int(first) > step:
            break
        rows.append(line)
        steps.append(int(first))
    return rows, steps


def _text(content: bytes, path: Path) -> str:
    try:
        # A kill may have cut a character off, too.
        return codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError as error:
        raise InputError(
            "it is damaged: this is not UTF-8, the encoding of the table of cells",
            location=f"{path}, byte {error.start + 1}",
            remedy=_MEND,
        ) from None


TABLE = "cells.csv"
_TABLE_SO_FAR = "cell table"
NUMBERS = (
    *("x_um", "y_um", "z_um"),
    *("volume_um3", "area_um2", "deformation", "long_axis_um", "short_axis_um"),
    *("long_x", "long_y", "long_z", "short_x", "short_y", "short_z"),
    *("inclination_deg", "u_mm_s", "v_mm_s", "w_mm_s", "speed_mm_s"),
    *("stress_xx_pa", "stress_yy_pa", "stress_zz_pa"),
    *("stress_xy_pa", "stress_xz_pa", "stress_yz_pa"),
    *("elastic_energy_j", "bending_energy_j", "fold_energy_j", "elastic_un_m", "mesh_quality"),
)
STRETCHED = ("stretch_pn", "axial_um", "transverse_um")
"""More of them where cells are pulled apart: the force, and diameters along and across it; NaN of other kinds."""


def _header_of(names: Sequence[str]) -> str:
    return ",".join(("step", "time_s", "kind", "number", *names))


def _first_line(path: Path) -> str:
    """First line of a table, as far as it may be a header; empty where it cannot be read."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as file:
            return file.readline(_LONGEST_HEADER).decode("utf-8", "replace").rstrip("\n")
    except OSError:
        return ""


_LONGEST_HEADER = 10_000
_COMPONENTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))


def cell_numbers(cells: OwnCells, origin: Floats, units: LatticeUnits) -> Floats:
    """Columns of the table of cells, (n, len(:data:`NUMBERS`))."""
    # - ``x_um`` to ``z_um``: centroid of the volume, wrapped into the box.
    # - ``long_axis_um``, ``short_axis_um``: longest L and shortest S axis, from end to end, of the
    #   ellipsoid with the same moments of inertia; ``deformation``: D = (L - S)/(L + S).
    # - ``long_x`` to ``short_z``: their directions, turned so that the largest component is
    #   positive. The short axis is that of a disc; the long axis of a disc at rest is any.
    # - ``inclination_deg``: between the long axis and the cell's velocity, 0 to 90.
    # - ``u_mm_s`` to ``speed_mm_s``: mean velocity of the vertices.
    # - ``stress_xx_pa`` to ``stress_yz_pa``: see :attr:`OwnCells.stress`.
    # - ``elastic_energy_j``, ``bending_energy_j``, ``fold_energy_j``: the latter of the guard against
    #   folds; ``elastic_un_m``: the first by the area.
    # - ``mesh_quality``: of the worst triangle, 1 for an equilateral one.
    shapes = cells.shapes
    um = units.spacing / MICRO
    squares, directions = np.linalg.eigh(shapes.covariance)
    axes = 2 * np.sqrt(5 * np.maximum(squares, 0.0)) * um
    long, short = axes[:, 2], axes[:, 0]
    toward_long, toward_short = (_turned(directions[:, :, k]) for k in (2, 0))
    velocity = cells.velocities.mean(axis=1) * units.velocity * 1e3
    speed = np.linalg.norm(velocity, axis=1)
    stress = cells.stress * units.pressure
    area = shapes.area * units.spacing**2
    elastic = cells.elastic * units.energy
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = np.abs((toward_long * velocity).sum(axis=1)) / speed
        columns = [
            origin / MICRO + um * shapes.centre,
            shapes.volume * um**3,
            shapes.area * um**2,
            (long - short) / (long + short),
            long,
            short,
            toward_long,
            toward_short,
            np.degrees(np.arccos(np.minimum(cosine, 1.0))),
            velocity,
            speed,
            np.stack([stress[:, i, j] for i, j in _COMPONENTS], axis=1),
            elastic,
            cells.bending * units.energy,
            cells.folds * units.energy,
            elastic / area * 1e6,
            shapes.quality,
        ]
    return np.column_stack(columns)


def _turned(directions: Floats) -> Floats:
    """Directions (n, 3), each turned so that its largest component is positive."""
    rows = np.arange(len(directions))
    largest = np.abs(directions).argmax(axis=1)
    turned: Floats = directions * np.sign(directions[rows, largest])[:, None]
    return turned


@dataclass
class CellOutputs:
    """Writes what a run gives of its cells, at intervals and at the end."""

    # The cells, where they are, and the ranks.
    suspension: Suspension
    vessel: Vessel
    region: Region
    units: LatticeUnits
    world: World
    title: str  # Of the picture
    # Whether the last state is written for ParaView, and drawn.
    fields: bool = True
    picture: bool = True
    # Cells of lists without room in the vessel, by kind.
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    frames: SurfaceFrames | None = None  # Of the animation; None where the run has none
    _last: int = -1
    _rows: int = 0
    _begun: bool = False
    _saved: tuple[int, int] = (-1, 0)
    _wide: bool = (
        False  # Whether the table has columns of a part of the run in which cells were pulled
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numbers of a cell."""
        stretched = any(local.kind.stretch for local in self.suspension.kinds)
        return (*NUMBERS, *(STRETCHED if stretched or self._wide else ()))

    @property
    def _header(self) -> str:
        return _header_of(self.names)

    def _diameters(self, kind: int, cells: OwnCells) -> Floats:
        """Columns :data:`STRETCHED` of own cells of a kind."""
        stretch, pull = self.suspension.kinds[kind].kind.stretch, self.suspension.pulls[kind]
        columns = np.full((len(cells.ids), len(STRETCHED)), np.nan)
        if stretch is not None and pull is not None:
            columns[:, 0] = pull.force * self.units.force * 1e12
            diameters = np.stack(stretch.diameters(cells.positions), axis=1)
            columns[:, 1:] = diameters * self.units.spacing / MICRO
        return columns

    def at_step(self, out: Path, step: int) -> None:
        """Write cells of a step for ParaView and in the table; all ranks call this."""
        self._write(out / f"cells-{step:010d}.vtkhdf", step)
        self._tabulate(out, step)

    def table(self) -> list[tuple[Integers, Floats]]:
        """Numbers of all cells, ascending, and what :attr:`names` says, by kind; all ranks call this.

        None on ranks other than 0.
        """
        tables, stretched = [], len(self.names) > len(NUMBERS)
        for kind, local in enumerate(self.suspension.kinds):
            cells = own_cells(local, self.region)
            ids = to_root(self.world, cells.ids)
            values = cell_numbers(cells, self.vessel.lattice.origin, self.units)
            if stretched:
                values = np.column_stack([values, self._diameters(kind, cells)])
            order = np.argsort(ids, kind="stable")
            tables.append((ids[order], to_root(self.world, values)[order]))
        return tables

    def columns(self, step: int) -> dict[str, NDArray[Any]] | None:
        """Columns of the table of cells of a step, by name, on rank 0; all ranks call this."""
        tables = self.table()
        if not self.world.is_root:
            return None
        names = [local.kind.name for local in self.suspension.kinds]
        counts = [len(ids) for ids, _ in tables]
        total, values = sum(counts), np.concatenate([rows for _, rows in tables])
        return {
            "step": np.full(total, step),
            "time_s": np.full(total, step * self.units.time_step),
            "kind": np.repeat(np.array(names, np.str_), counts),
            "number": np.concatenate([ids for ids, _ in tables]),
            **dict(zip(self.names, values.T, strict=True)),
        }

    def membranes(self, step: int) -> CellArrays | None:
        """The arrays of a file of cells, on rank 0; None elsewhere. All ranks call this."""
        kinds, bodies = self._bodies()
        states = [np.empty((kind.count, 3, kind.points, 3), np.float32) for kind in kinds]
        numbers = [np.empty(kind.count, np.int64) for kind in kinds]
        for kind, places, ids, state in bodies:
            states[kind][places] = state
            numbers[kind][places] = ids
        if not self.world.is_root:
            return None
        positions, velocities, forces = (
            np.concatenate([state[:, part].reshape(-1, 3) for state in states]) for part in range(3)
        )
        triangles = [len(kind.corners) for kind in kinds]
        cell_triangles = np.multiply([kind.count for kind in kinds], triangles)
        return CellArrays(
            positions.astype(np.float64),
            np.concatenate([np.empty((0, 3), np.int64), *Blocks(TRIANGLE, kinds).connectivity()]),
            TRIANGLE,
            {"velocity": velocities, "force": forces},
            {
                "number": np.concatenate(list(map(np.repeat, numbers, triangles))),
                "kind": np.repeat(np.arange(len(kinds), dtype=np.int32), cell_triangles),
            },
            step * self.units.time_step,
        )

    def _bodies(
        self,
    ) -> tuple[list[Block], Iterator[tuple[int, Integers, Integers, NDArray[np.float32]]]]:
        """Kinds of all cells and, on rank 0, kind, places in it, numbers and state of cells, rank by rank.

        All ranks go through the second.
        """
        own = [own_cells(local, self.region) for local in self.suspension.kinds]
        ids = [np.sort(to_root(self.world, cells.ids)) for cells in own]
        origin = self.vessel.lattice.origin
        portions = _portions(
            self.world, [(cells.ids, _state(cells, origin, self.units)) for cells in own]
        )
        kinds = [
            Block(len(numbers), local.membranes.vertices, local.kind.mesh.triangles)
            for local, numbers in zip(self.suspension.kinds, ids, strict=True)
        ]
        placed = (
            (kind, np.searchsorted(ids[kind], numbers), numbers, state)
            for kind, numbers, state in portions
        )
        return kinds, placed

    def extras(self) -> dict[str, NDArray[np.generic]]:
        """State of the table for a checkpoint: its last step, -1: none, and its rows; on rank 0."""
        return {_TABLE_SO_FAR: np.array([self._last, self._rows], np.int64)}

    def restore(self, extras: Mapping[str, NDArray[np.generic]]) -> None:
        """Learn from a checkpoint what the table must hold; those of before 2026-11-26 do not tell."""
        if _TABLE_SO_FAR in extras:
            last, rows = saved_counts(extras, _TABLE_SO_FAR, (2,), least=-1).tolist()
            self._saved = last, rows

    def resume(self, out: Path, step: int) -> str:
        """Bring the table back to the step of a checkpoint; called after :meth:`restore` by all ranks."""
        path = out / TABLE
        first = _first_line(path) if self.world.is_root else ""
        wide = first == _header_of((*NUMBERS, *STRETCHED))
        self._wide = bool(self.world.broadcast(np.array([wide]))[0])
        if not self.world.is_root:
            return ""
        # Before cells were pulled the table had no columns of it.
        narrow = _header_of(NUMBERS)
        padding = "" if first != narrow or self._header == narrow else ",nan" * len(STRETCHED)
        rows, steps = rows_up_to(path, narrow if padding else self._header, step)
        self._begin(path, [row + padding for row in rows])
        self._last = steps[-1] if steps else -1
        last, wanted = self._saved
        there = bisect.bisect_right(steps, last)
        # The end of a run writes rows of a step after the checkpoint of that step.
        later, all_cells = len(steps) - there, sum(local.total for local in self.suspension.kinds)
        if 0 < later < all_cells and steps[there] == step:
            last, wanted, there = step, wanted + all_cells, len(steps)
        if there >= wanted:
            return ""
        return (
            f"{path} has lost rows: it holds {there} of the {wanted} rows written up to step {last}; to keep the "
            "others, stop the run, restore an intact copy and restart"
        )

    def finish(self, out: Path | None, step: int) -> Results:
        """Write the last state, and work out its means; all ranks call this."""
        tables = self._tabulate(out, step)
        files = {}
        if out is not None:
            files["cell table"] = out / TABLE
            if self.fields:
                files["cells"] = out / "cells.vtkhdf"
                self._write(files["cells"], step)
            if self.picture:
                files["cell picture"] = out / "cells.png"
                self._draw(files["cell picture"], step)
            if self.frames is not None:
                files["cell animation"] = out / "cells.gif"
                self._animate(files["cell animation"], step)
        if not self.world.is_root:
            return Results()
        summary, lines = {}, []
        for local, (_, values) in zip(self.suspension.kinds, tables, strict=True):
            rest = local.kind.mesh.volume() * (self.units.spacing / MICRO) ** 3
            means = _means(values, rest, stretched=local.kind.stretch is not None)
            summary[local.kind.name] = means | self._room(local.kind.name)
            lines.append(_line(local.kind.name, means))
        smoothed = self.suspension.smoothed
        if smoothed:
            lines.append(
                f"creases of cells were smoothed {counted(smoothed, 'time')}, as the mesh does not resolve "
                "them; to have fewer, lower blood.spacing_um, raise blood.cells.vertices or slow the flow down"
            )
        return Results({"cells": summary, "creases_smoothed": smoothed}, files, lines)

    def _room(self, kind: str) -> dict[str, int]:
        """Numbers of the summary on the list that a kind's cells come from."""
        if kind not in self.left_out:
            return {}
        counts = self.left_out[kind]
        names = ("listed", "outside", "walls", "overlaps", "beyond")
        return {f"list_{name}": getattr(counts, name) for name in names}

    def _write(self, path: Path, step: int) -> None:
        """Write all cells for ParaView, in m as the fields are; all ranks call this."""
        # Points have the arrays ``velocity`` (m/s) and ``force`` (N, of the membrane on the fluid),
        # triangles ``number`` and ``kind``, the latter by its place among the kinds of the case. Rank 0
        # holds the cells of one rank at a time.
        kinds, bodies = self._bodies()
        if not self.world.is_root:
            for _ in bodies:
                pass
            return
        time = step * self.units.time_step
        with VtkhdfWriter(path, Blocks(TRIANGLE, kinds, "float32"), time) as writer:
            for name in ("velocity", "force"):
                writer.create(name, np.float32, 3)
            writer.create("number", np.int64, per_cell=True)
            writer.create("kind", np.int32, per_cell=True)
            for kind, places, numbers, state in bodies:
                for part, name in enumerate((POINTS, "velocity", "force")):
                    writer.write(name, places, state[:, part], kind)
                writer.write("number", places, numbers, kind)
                writer.write("kind", places, np.full(len(numbers), kind, np.int32), kind)

    def _draw(self, path: Path, step: int) -> None:
        from haloscope.io.figures.figure import save
        from haloscope.io.figures.surface_pictures import ShadedPixels, surfaces
        from haloscope.solvers.blood.outputs.pictures import LABEL, UNIT

        cells = self._view()
        if self.world.is_root:
            pixels = ShadedPixels.of_image(cells.image, cells.walls).colours(cells.largest)
            view, largest, subtitle = cells.image.view, cells.largest, self._subtitle(step)
            save(path, surfaces(pixels, view, LABEL, largest, UNIT, self.title, subtitle))

    def _view(self, most: tuple[int, int] | None = None) -> CellView:
        from haloscope.solvers.blood.outputs.pictures import draw_cells

        return draw_cells(self.suspension, self.vessel, self.region, self.units, self.world, most)

    def _subtitle(self, step: int) -> str:
        counts = ", ".join(f"{local.total} {local.kind.name}" for local in self.suspension.kinds)
        return f"{counts}; time {step * self.units.time_step * 1e3:.4g} ms"

    def keep_frame(self, step: int) -> None:
        """Keep a picture of a step for the animation, once; all ranks call this."""
        from haloscope.io.figures.animations import FRAME_PIXELS, SurfaceFrames

        if self.frames is None:
            self.frames = SurfaceFrames()
        if step == self.frames.last_step:
            return
        cells = self._view(FRAME_PIXELS)
        self.frames.last_step = step
        if self.world.is_root:
            subtitle = self._subtitle(step)
            self.frames.add(step, cells.image, cells.walls, cells.largest, subtitle)

    def _animate(self, path: Path, step: int) -> None:
        """Write the frames with one of the last step; all ranks call this."""
        from haloscope.solvers.blood.outputs.pictures import LABEL, UNIT

        self.keep_frame(step)
        if self.world.is_root and self.frames is not None:
            self.frames.save(path, label=LABEL, unit=UNIT, title=self.title)

    def _tabulate(self, out: Path | None, step: int) -> list[tuple[Integers, Floats]]:
        """The table of a step, also added to the file, where a step appears once."""
        tables = self.table()
        if out is None or not self.world.is_root:
            return tables
        path = out / TABLE
        if not self._begun:
            self._begin(path, [])
        if step > self._last:
            time = step * self.units.time_step
            # Numbers read back exactly.
            rows = [
                f"{step},{time!r},{local.kind.name},{number},{','.join(map(repr, row))}"
                for local, (ids, values) in zip(self.suspension.kinds, tables, strict=True)
                for number, row in zip(ids.tolist(), values.tolist(), strict=True)
            ]
            append_text(path, "".join(row + "\n" for row in rows))
            self._last = step
            self._rows += len(rows)
        return tables

    def _begin(self, path: Path, rows: Sequence[str]) -> None:
        """Start the table, with what the run that goes on had written."""
        write_text(path, "\n".join([self._header, *rows]) + "\n")
        self._rows = len(rows)
        self._begun = True


def _means(values: Floats, rest: float, *, stretched: bool) -> dict[str, float | int]:
    """Numbers of all cells of a kind; `rest` is their volume at rest in um^3."""
    if not len(values):
        return {"count": 0}
    column = {name: values[:, place] for place, name in enumerate(NUMBERS)}
    more = {}
    if stretched:
        force, axial, transverse = values[:, len(NUMBERS) :].mean(axis=0).tolist()
        more = {"stretch_pn": force, "axial_um_mean": axial, "transverse_um_mean": transverse}
    return {
        "count": len(values),
        "deformation_mean": float(column["deformation"].mean()),
        "deformation_least": float(column["deformation"].min()),
        "deformation_largest": float(column["deformation"].max()),
        "speed_mm_s_mean": float(column["speed_mm_s"].mean()),
        "elastic_un_m_mean": float(column["elastic_un_m"].mean()),
        "volume_change_largest": float(np.abs(column["volume_um3"] / rest - 1).max()),
        "mesh_quality_least": float(column["mesh_quality"].min()),
        **more,
    }


def _line(name: str, numbers: Mapping[str, float | int]) -> str:
    if not numbers["count"]:
        return f"{name}: no cells"
    stretched = ""
    if "stretch_pn" in numbers:
        stretched = (
            f", pulled with {numbers['stretch_pn']:.4g} pN: {numbers['axial_um_mean']:.4g} um along and "
            f"{numbers['transverse_um_mean']:.4g} um across"
        )
    return (
        f"{name}: {counted(numbers['count'], 'cell')}, deformation {numbers['deformation_mean']:.3g} "
        f"({numbers['deformation_least']:.3g} to {numbers['deformation_largest']:.3g}), mean speed "
        f"{numbers['speed_mm_s_mean']:.3g} mm/s, volumes within "
        f"{100 * numbers['volume_change_largest']:.2g} % of that at rest{stretched}"
    )
