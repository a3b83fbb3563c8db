"""Cells that leave through outlets, and such as come in at inlets that feed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from haloscope.counted import counted
from haloscope.domain.openings import Opening
from haloscope.domain.voxels import Lattice
from haloscope.errors import InputError
from haloscope.exchange.world import World
from haloscope.solvers.blood.case_cells import MICRO, CellsTable
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.cell_kinds import on_cores, shape_of
from haloscope.solvers.blood.feeder import Feeder
from haloscope.solvers.blood.filling import Filling
from haloscope.solvers.blood.packing import rotations
from haloscope.solvers.blood.present_cells import Present
from haloscope.solvers.blood.suspension import Suspension
from haloscope.solvers.interface import Results
from haloscope.solvers.saved_arrays import saved_counts, saved_numbers

Floats = NDArray[np.float64]

# A cell leaves once a vertex is so near to an opening's plane that its support reaches beyond.
_GOES = 1.5
# Spacings around an opening's points in which cells near its plane count as in it.
_BESIDE = 3.0
# Vertices of a cell that comes in keep so far from those of cells that are there.
_APART = 1.0
# How messages call the first column of what waits at an inlet.
_KINDS = "kinds of waiting cells"
# Length of a feeder's segment over the diameter of the widest cell.
_SEGMENT = 6.0


@dataclass
class _Inlet:
    """An opening that feeds cells.

    `waiting` has a row for each cell that has found no room yet: kind, place across and along in
    spacings, quaternion.
    """

    opening: Opening
    table: OpeningTable
    feeder: Feeder
    waiting: Floats = field(default_factory=lambda: np.zeros((0, 8)))


class Traffic:
    """Takes cells out at openings and puts new ones in; all ranks call its methods together.

    Parameters
    ----------
    world
        The ranks.
    suspension
        The cells.
    lattice, openings
        Where openings lie, and what the case says of them.
    kinds
        The case's kinds of cells, whose hematocrits are fed.
    seed
        Of what is fed.

    Attributes
    ----------
    left, entered
        Cells of each kind that went out and came in.
    left_through
        The first by opening, (openings, kinds).
    """

    def __init__(
        self,
        world: World,
        suspension: Suspension,
        lattice: Lattice,
        openings: Sequence[OpeningTable],
        kinds: Sequence[CellsTable],
        seed: int,
    ) -> None:
        self._world, self._suspension, self._lattice = world, suspension, lattice
        self._names = [table.name for table in openings]
        self._next = [given.total for given in suspension.kinds]
        self._kinds = [kind.name for kind in kinds]
        self.left, self.entered = [0] * len(kinds), [0] * len(kinds)
        self.left_through = np.zeros((len(openings), len(kinds)), np.int64)
        self._inlets: list[_Inlet] = []
        for opening, table in zip(lattice.openings, openings, strict=True):
            if table.feeds:
                self._inlets.append(self._inlet(opening, table, kinds, seed))

    def _inlet(
        self, opening: Opening, table: OpeningTable, kinds: Sequence[CellsTable], seed: int
    ) -> _Inlet:
        if not any(kind.hematocrit for kind in kinds):
            raise InputError(
                f"blood.openings {table.name} feeds cells, but no kind of blood.cells has a "
                "hematocrit; give one, or feeds = false"
            )
        lattice = self._lattice
        u, v = (axis for axis in range(3) if axis != opening.axis)
        places = lattice.coordinates(opening.numbers)
        section = np.zeros((lattice.shape[v], lattice.shape[u]), bool)
        section[places[:, v], places[:, u]] = True
        spacing = lattice.spacing / MICRO
        widest = max(2 * kind.radius_um for kind in kinds)
        try:
            feeder = Feeder(
                on_cores(self._suspension.device),
                section,
                spacing,
                (0.0, 0.0),
                _SEGMENT * widest,
                [Filling(shape_of(kind), kind.hematocrit) for kind in kinds],
                seed,
            )
        except InputError as error:
            raise InputError(f"blood.openings {table.name}: {error}") from None
        return _Inlet(opening, table, feeder)

    def look(self, carried: Mapping[str, float]) -> None:
        """Let cells out and in.

        Parameters
        ----------
        carried
            By opening: how far in m the mean flow into the vessel has gone since the last look.
        """
        for number, given in enumerate(self._suspension.kinds):
            through = self._going(given, carried)
            gone = through >= 0
            if self._world.any(bool(gone.any())):
                counts = np.bincount(through[gone], minlength=len(self._names)).astype(np.int64)
                self.left_through[:, number] += self._world.sum(counts)
                self.left[number] += self._suspension.remove(number, given.ids[gone])
        for inlet in self._inlets:
            distance = max(0.0, carried[inlet.table.name]) / MICRO
            self._queue(inlet, distance)
            self._let_in(inlet)

    def _going(self, given: Present, carried: Mapping[str, float]) -> np.ndarray:
        """By cell the opening whose plane it touches from within, unless the flow comes in there.

        -1: none, or it is another rank's.
        """
        m, lattice = given.membranes, self._lattice
        through = np.full(given.count, -1)
        if not given.count:
            return through
        cells = m.positions.reshape(3, m.capacity, m.vertices)[:, : given.count]
        low, high = (
            np.asarray(self._suspension.device.to_host(found))
            for found in (cells.min(axis=2), cells.max(axis=2))
        )
        openings = zip(self._names, lattice.openings, strict=True)
        for number, (name, opening) in enumerate(openings):
            if carried.get(name, 0.0) > 0.0:
                continue
            axis, plane = opening.axis, opening.plane
            ahead = high[axis] - plane if opening.direction > 0 else plane - low[axis]
            near = (ahead > -_GOES) & (ahead < _BESIDE + (high - low)[axis])
            places = lattice.coordinates(opening.numbers)
            for other in range(3):
                if other != axis:
                    begin, end = places[:, other].min(), places[:, other].max()
                    middle = (low[other] + high[other]) / 2
                    near &= (middle > begin - _BESIDE) & (middle < end + _BESIDE)
            through[near & given.own & (through < 0)] = number
        return through

    def _queue(self, inlet: _Inlet, distance: float) -> None:
        """Cells that a further distance in um brings."""
        found = inlet.feeder.advance(distance)
        spacing = self._lattice.spacing / MICRO
        rows = np.column_stack([found.kinds, found.places / spacing, found.quaternions])
        # Where the segment was when a cell passed does not matter to where it finds room.
        rows[:, 3] = np.minimum(rows[:, 3], 1.0)
        inlet.waiting = np.concatenate([inlet.waiting, rows])

    def _let_in(self, inlet: _Inlet) -> None:
        """Put in the cells that have room, in the order of their coming."""
        stay = []
        for row in inlet.waiting:
            kind = int(row[0])
            vertices = self._vertices(inlet.opening, kind, row)
            if self._world.any(self._blocked(vertices)):
                stay.append(row)
                continue
            number, self._next[kind] = self._next[kind], self._next[kind] + 1
            mine = int(self._suspension.owners(vertices[None])[0]) == self._world.rank
            ids = np.array([number] if mine else [], np.int64)
            self._suspension.place(kind, ids, vertices[None] if mine else vertices[None][:0])
            self.entered[kind] += 1
        inlet.waiting = np.array(stay).reshape(-1, 8)

    def _vertices(self, opening: Opening, kind: int, row: Floats) -> Floats:
        """Vertices (V, 3) of a cell that comes in, just within the opening."""
        frame = np.zeros((3, 3))
        u, v = (axis for axis in range(3) if axis != opening.axis)
        frame[[u, v, opening.axis], [0, 1, 2]] = 1, 1, -opening.direction
        mesh = self._suspension.kinds[kind].kind.mesh.vertices
        # A frame of the other hand would turn the membrane inside out; cells at rest are their own
        # mirror images.
        mesh = mesh * (1.0, 1.0, np.linalg.det(frame))
        turned = mesh @ rotations(row[None, 4:])[0].T
        along = row[3] + _GOES + 0.5 - turned[:, 2].min()
        centre = np.zeros(3)
        centre[[u, v, opening.axis]] = row[1], row[2], opening.plane - opening.direction * along
        result: Floats = centre + turned @ frame.T
        return result

    def results(self) -> Results:
        """How many cells passed openings since step 0, on rank 0; without numbers elsewhere."""
        if not self._world.is_root:
            return Results()
        waiting = np.zeros(len(self._kinds), np.int64)
        for inlet in self._inlets:
            waiting += np.bincount(inlet.waiting[:, 0].astype(int), minlength=len(waiting))
        summary, lines = {}, []
        for kind, name in enumerate(self._kinds):
            by = dict(zip(self._names, self.left_through[:, kind].tolist(), strict=True))
            summary[name] = {
                "came_in": self.entered[kind],
                "left": self.left[kind],
                "left_through": by,
                "waiting": int(waiting[kind]),
            }
            line = f"{name}: {self.entered[kind]} came in, {self.left[kind]} left"
            if self.left[kind]:
                line += f" ({', '.join(f'{opening} {count}' for opening, count in by.items())})"
            lines.append(line + (f", {waiting[kind]} found no room yet" if waiting[kind] else ""))
        return Results({"cells_through_openings": summary}, {}, lines)

    def state(self) -> dict[str, np.ndarray]:
        """What a restart needs, the same on every rank."""
        counts = np.array([self._next, self.left, self.entered], np.float64)
        found = {"traffic counts": counts, "traffic out": self.left_through}
        for inlet in self._inlets:
            found[f"feeder {inlet.table.name} moved"] = np.array([inlet.feeder.moved])
            found[f"feeder {inlet.table.name} waiting"] = inlet.waiting
        return found

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over on every rank what :meth:`state` gave.

        Raises
        ------
        InputError
            The state is of other kinds or openings.
        """
        counts = state.get("traffic counts")
        if counts is None or counts.shape != (3, len(self._next)):
            raise InputError(
                "the checkpoint does not say how many cells went in and out; restart with the case "
                "it is from"
            )
        counts = saved_counts(state, "traffic counts", counts.shape)
        self._next, self.left, self.entered = counts.tolist()
        # Checkpoints of before have none: openings are then counted from here on.
        out = state.get("traffic out", np.zeros_like(self.left_through))
        if out.shape != self.left_through.shape:
            raise InputError(
                f"the checkpoint counts cells at {counted(len(out), 'opening')} and the case has "
                f"{len(self.left_through)}; restart with the case it is from"
            )
        self.left_through = saved_counts({"traffic out": out}, "traffic out", out.shape)
        for inlet in self._inlets:
            name = inlet.table.name
            moved, waiting = (state.get(f"feeder {name} {what}") for what in ("moved", "waiting"))
            if moved is None or waiting is None or waiting.ndim != 2 or waiting.shape[1] != 8:
                raise InputError(
                    f"the checkpoint has no feeder {name!r}; restart with the case it is from"
                )
            row = saved_numbers(state, f"feeder {name} moved", (1,), least=0.0)
            rows = saved_numbers(state, f"feeder {name} waiting", (None, 8))
            saved_counts({_KINDS: rows[:, 0]}, _KINDS, (None,), most=len(self._next) - 1)
            inlet.feeder.moved = float(row[0])
            inlet.waiting = rows

    def _blocked(self, vertices: Floats) -> bool:
        """Whether a cell that is present here is in the way."""
        low, high = vertices.min(axis=0) - _APART, vertices.max(axis=0) + _APART
        for given in self._suspension.kinds:
            m = given.membranes
            # Of copies only what is near the own box is where it is.
            there = m.on_host(m.positions, given.count)[given.own].reshape(-1, 3)
            near = there[((there > low) & (there < high)).all(axis=1)]
            for begin in range(0, len(near), 1024):
                some = near[begin : begin + 1024]
                square = ((some[:, None] - vertices[None]) ** 2).sum(axis=2)
                if len(some) and float(square.min()) < _APART**2:
                    return True
        return False
