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
from haloscope.solvers.blood.cell_kinds import filling_of, on_cores
from haloscope.solvers.blood.feeder import Feeder
from haloscope.solvers.blood.packing import random_orientations, rotations
from haloscope.solvers.blood.packing import turned as turned_by
from haloscope.solvers.blood.present_cells import Present
from haloscope.solvers.blood.suspension import Suspension
from haloscope.solvers.blood.taken_space import TakenSpace
from haloscope.solvers.blood.vessels import relative_velocities
from haloscope.solvers.interface import Results
from haloscope.solvers.saved_arrays import saved_counts, saved_numbers

Floats = NDArray[np.float64]

# A cell leaves once a vertex is so near to an opening's plane that its support reaches beyond.
_GOES = 1.5
# Spacings around an opening's points in which cells near its plane count as in it.
_BESIDE = 3.0
# Of a block of space in which cells that are there are marked: one that comes in keeps at least so far away.
_APART = 0.25
# How messages call the first column of what waits at an inlet.
_KINDS = "kinds of waiting cells"
# No place of one is so many spacings away.
_FAR = 1e6
# Length of a feeder's segment over the diameter of the widest cell.
_SEGMENT = 6.0
# Least speed at which cells come in, over the mean.
_SLOWEST = 0.05
# Each time that the flow has gone on by a spacing the cells that have waited longest, so many, are tried at other
# places: at so many with some of their vertices, and where these have room, up to so many, with all.
_TRIED, _OTHER_PLACES, _WHOLE, _SOME = 4, 2000, 16, 100
# The best of these are moved and turned a little, so many times in so many ways, by so many spacings and radians.
_ROUNDS, _WAYS, _MOVE, _TURN = 25, 32, 0.5, 0.15


@dataclass
class _Inlet:
    """An opening that feeds cells.

    `mean` is that of its profile, `space` the vessel behind it; `waiting` has a row for each cell that has found no room yet: kind, place across and along in
    spacings, quaternion.
    """

    opening: Opening
    table: OpeningTable
    feeder: Feeder
    seed: int
    mean: float
    space: TakenSpace
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
        self._looks = 0
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
                [filling_of(kind) for kind in kinds],
                seed,
            )
        except InputError as error:
            raise InputError(f"blood.openings {table.name}: {error}") from None
        speeds = np.zeros(section.shape)
        speeds[places[:, v], places[:, u]] = relative_velocities(table, opening, lattice)
        mean = float(speeds[section].mean())
        inlet = _Inlet(opening, table, feeder, seed, mean, self._behind(opening))
        self._carry(inlet, speeds, spacing)
        return inlet

    def _carry(self, inlet: _Inlet, speeds: Floats, spacing: float) -> None:
        """Let the cells of a segment come in as fast as the flow at their places, as whole cells."""
        cells = inlet.feeder.cells
        at = np.rint(cells.positions[:, 1::-1] / spacing).astype(int)
        row, column = (np.clip(at[:, n], 0, speeds.shape[n] - 1) for n in range(2))
        behind = np.zeros(cells.count)
        for number, (kind, turn) in enumerate(zip(cells.kinds, cells.quaternions, strict=True)):
            turned = self._turned(inlet.opening, int(kind), turn)
            behind[number] = -spacing * turned[:, 2].min()
        inlet.feeder.carry(np.maximum(speeds[row, column], _SLOWEST * speeds.mean()), behind)

    def look(self, carried: Mapping[str, float]) -> bool:
        """Let cells out and in.

        Parameters
        ----------
        carried
            By opening: how far in m the flow into the vessel has gone since the last look, by the value
            that the case gives and its signal.

        Returns
        -------
        bool
            Whether any cell has gone or come, the same on every rank.
        """
        counted = *self.left, *self.entered
        self._looks += 1
        for number, given in enumerate(self._suspension.kinds):
            through = self._going(given, carried)
            gone = through >= 0
            if self._world.any(bool(gone.any())):
                counts = np.bincount(through[gone], minlength=len(self._names)).astype(np.int64)
                self.left_through[:, number] += self._world.sum(counts)
                self.left[number] += self._suspension.remove(number, given.ids[gone])
        for inlet in self._inlets:
            distance = max(0.0, inlet.mean * carried[inlet.table.name]) / MICRO
            before = inlet.feeder.moved
            waited = self._queue(inlet, distance)
            spacing = self._lattice.spacing / MICRO
            on = int(inlet.feeder.moved / spacing) > int(before / spacing)
            self._let_in(inlet, waited, elsewhere=on)
        return counted != (*self.left, *self.entered)

    def _going(self, given: Present, carried: Mapping[str, float]) -> np.ndarray:
        """By cell the opening whose plane it touches from within and to which it moves.

        None goes where the case says that the flow comes in.

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
        moving = m.velocities.reshape(3, m.capacity, m.vertices)[:, : given.count]
        speeds = np.asarray(self._suspension.device.to_host(moving.mean(axis=2)))
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
            # What has just been put there stays, whichever way the flow will go.
            outward = opening.direction * speeds[axis] > 0.0
            through[near & outward & given.own & (through < 0)] = number
        return through

    def _queue(self, inlet: _Inlet, distance: float) -> int:
        """Add the cells that a further distance in um brings; how many were waiting before."""
        found = inlet.feeder.advance(distance)
        spacing = self._lattice.spacing / MICRO
        rows = np.column_stack([found.kinds, found.places / spacing, found.quaternions])
        # Where the segment was when a cell passed does not matter to where it finds room.
        rows[:, 3] = np.minimum(rows[:, 3], 1.0)
        waited = len(inlet.waiting)
        inlet.waiting = np.concatenate([inlet.waiting, rows])
        return waited

    def _let_in(self, inlet: _Inlet, waited: int, *, elsewhere: bool) -> None:
        """Put in the cells that have room, in the order of their coming.

        Those that have waited may take other places of the section, which others have left.
        """
        stay, tried = [], 0
        if not len(inlet.waiting):
            return
        taken = self._taken(inlet)
        for place, row in enumerate(inlet.waiting):
            kind = int(row[0])
            found = self._first_free(taken, kind, [self._vertices(inlet.opening, kind, row)])
            if found is None and elsewhere and place < waited and tried < _TRIED:
                tried += 1
                found = self._first_free(taken, kind, self._elsewhere(inlet, taken, row, place))
            if found is None:
                stay.append(row)
                continue
            vertices = found
            number, self._next[kind] = self._next[kind], self._next[kind] + 1
            mine = int(self._suspension.owners(vertices[None])[0]) == self._world.rank
            ids = np.array([number] if mine else [], np.int64)
            self._suspension.place(kind, ids, vertices[None] if mine else vertices[None][:0])
            self.entered[kind] += 1
            taken.add(vertices[None], self._triangles(kind))
        inlet.waiting = np.array(stay).reshape(-1, 8)

    def _triangles(self, kind: int) -> NDArray[np.integer]:
        return self._suspension.kinds[kind].kind.mesh.triangles

    def _first_free(self, taken: TakenSpace, kind: int, ways: Sequence[Floats]) -> Floats | None:
        """The first of some ways to put a cell in, (V, 3) each, in which it meets none on any rank."""
        blocked = np.array([taken.meets(way, self._triangles(kind)) for way in ways], np.int64)
        free = np.flatnonzero(self._world.sum(blocked) == 0) if len(ways) else blocked
        return ways[int(free[0])] if free.size else None

    def _elsewhere(self, inlet: _Inlet, taken: TakenSpace, row: Floats, place: int) -> list[Floats]:
        """Other ways to put a cell in that may have room: places of the section, turns, up to its width deep."""
        kind, opening = int(row[0]), inlet.opening
        random = np.random.default_rng([inlet.seed, self._looks, place, self._next[kind]])
        u, v = (axis for axis in range(3) if axis != opening.axis)
        section = self._lattice.coordinates(opening.numbers)[:, [u, v]]
        mesh = self._suspension.kinds[kind].kind.mesh.vertices
        width = 2 * np.abs(mesh).max()
        some = mesh[np.linspace(0, len(mesh) - 1, min(_SOME, len(mesh))).astype(int)]
        some = some * _hand(opening)

        def blocked(ways: Floats) -> NDArray[np.int64]:
            turned = np.einsum("nij,kj->nki", rotations(ways[:, 4:]), some)
            return taken.count(self._behind_plane(opening, turned, ways))

        ways = np.repeat(row[None], _OTHER_PLACES, axis=0)
        ways[:, 1:3] = random.choice(section, _OTHER_PLACES)
        ways[:, 1:3] += random.uniform(-0.5, 0.5, (_OTHER_PLACES, 2))
        ways[:, 3] = random.uniform(0.0, width, _OTHER_PLACES)
        ways[:, 4:] = random_orientations(random, _OTHER_PLACES)
        counts = blocked(ways)
        best = np.argsort(counts, kind="stable")[:_WHOLE]
        ways, counts = ways[best], counts[best]
        for _ in range(_ROUNDS):
            if not counts.any():
                break
            more = np.repeat(ways, _WAYS, axis=0)
            more[:, 1:4] += random.normal(0.0, _MOVE, (len(more), 3))
            more[:, 3] = np.clip(more[:, 3], 0.0, width)
            more[:, 4:] = turned_by(more[:, 4:], random.normal(0.0, _TURN, (len(more), 3)))
            each = blocked(more).reshape(len(ways), _WAYS)
            least = each.argmin(axis=1)
            better = each.min(axis=1) < counts
            moved = more.reshape(len(ways), _WAYS, -1)[np.arange(len(ways)), least]
            ways = np.where(better[:, None], moved, ways)
            counts = np.minimum(counts, each.min(axis=1))
        return [self._vertices(opening, kind, way) for way in ways[counts == 0]]

    def _turned(self, opening: Opening, kind: int, quaternion: Floats) -> Floats:
        """Vertices (V, 3) about the centre, along the section's two axes and the flow, in spacings."""
        mesh = self._suspension.kinds[kind].kind.mesh.vertices
        result: Floats = (mesh * _hand(opening)) @ rotations(quaternion[None])[0].T
        return result

    def _vertices(self, opening: Opening, kind: int, row: Floats) -> Floats:
        """Vertices (V, 3) of a cell that comes in, just within the opening."""
        turned = self._turned(opening, kind, row[4:])
        result: Floats = self._behind_plane(opening, turned[None], row[None])[0]
        return result

    @staticmethod
    def _behind_plane(opening: Opening, turned: Floats, rows: Floats) -> Floats:
        """Points (n, k, 3) of turned cells so deep in the vessel as rows (n, 8) say, within its plane."""
        u, v = (axis for axis in range(3) if axis != opening.axis)
        along = rows[:, 3] + _GOES + 0.5 - turned[:, :, 2].min(axis=1)
        centres = np.zeros((len(rows), 3))
        centres[:, [u, v]] = rows[:, 1:3]
        centres[:, opening.axis] = opening.plane - opening.direction * along
        result: Floats = centres[:, None] + turned @ _frame(opening).T
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
            if waiting[kind]:
                share = self.entered[kind] / (self.entered[kind] + int(waiting[kind]))
                line += f", {waiting[kind]} found no room yet: {share:.2g} of those that were to come in did"
            lines.append(line)
        return Results({"cells_through_openings": summary}, {}, lines)

    def state(self) -> dict[str, np.ndarray]:
        """What a restart needs, the same on every rank."""
        counts = np.array([self._next, self.left, self.entered], np.float64)
        found = {"traffic counts": counts, "traffic out": self.left_through}
        if self._inlets:
            found["traffic looks"] = np.array([float(self._looks)])
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
        if "traffic looks" in state:
            self._looks = int(saved_counts(state, "traffic looks", (1,))[0])
        else:
            self._looks = 0
        for inlet in self._inlets:
            name = inlet.table.name
            moved, waiting = (state.get(f"feeder {name} {what}") for what in ("moved", "waiting"))
            if moved is None or waiting is None or waiting.ndim != 2 or waiting.shape[1] != 8:
                raise InputError(
                    f"the checkpoint has no feeder {name!r}; restart with the case it is from"
                )
            row = saved_numbers(state, f"feeder {name} moved", (1,), least=0.0)
            rows = saved_numbers(state, f"feeder {name} waiting", (None, 8), least=-_FAR, most=_FAR)
            saved_counts({_KINDS: rows[:, 0]}, _KINDS, (None,), most=len(self._next) - 1)
            inlet.feeder.moved = float(row[0])
            inlet.waiting = rows

    def _reach(self) -> float:
        """How deep behind an opening cells lie that come in."""
        widest = max(2 * np.abs(each.kind.mesh.vertices).max() for each in self._suspension.kinds)
        return float(_GOES + 2.5 + 2 * widest)

    def _behind(self, opening: Opening) -> TakenSpace:
        """The vessel behind an opening, without cells."""
        places = self._lattice.coordinates(opening.numbers).astype(float)
        low, high = places.min(axis=0) - 2.0, places.max(axis=0) + 2.0
        ends = opening.plane, opening.plane - opening.direction * self._reach()
        low[opening.axis], high[opening.axis] = min(ends), max(ends)
        found = TakenSpace(low, high, _APART)
        found.add_walls(self._lattice)
        return found

    def _taken(self, inlet: _Inlet) -> TakenSpace:
        """Where walls and cells of all ranks are that one which comes in may meet; inside which, own ones."""
        opening, reach = inlet.opening, self._reach()
        axis, found = opening.axis, inlet.space.copy()
        for given in self._suspension.kinds:
            m = given.membranes
            if not given.count:
                continue
            cells = m.positions.reshape(3, m.capacity, m.vertices)[:, : given.count]
            nearest = cells[axis].max(axis=1) if opening.direction > 0 else -cells[axis].min(axis=1)
            depth = opening.plane * opening.direction - self._suspension.device.to_host(nearest)
            # Of copies only what is near the own box is where it is.
            which = np.flatnonzero(given.own & (depth < reach))
            if which.size:
                some = cells[:, self._suspension.device.from_host(which)]
                vertices = np.moveaxis(self._suspension.device.to_host(some), 0, 2)
                found.add(vertices, given.kind.mesh.triangles)
        found.share(self._world)
        return found


def _hand(opening: Opening) -> Floats:
    """What a mesh is multiplied with, that its membrane is not turned inside out in an opening's frame.

    Cells at rest are their own mirror images.
    """
    return np.array([1.0, 1.0, np.linalg.det(_frame(opening))])


def _frame(opening: Opening) -> Floats:
    """The section's two axes and the flow's in those of the lattice, as columns."""
    frame = np.zeros((3, 3))
    u, v = (axis for axis in range(3) if axis != opening.axis)
    frame[[u, v, opening.axis], [0, 1, 2]] = 1, 1, -opening.direction
    return frame
