"""All cells of a run: their step with the fluid, their number, and who holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.domain.lattice_parts import LatticePart
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.shared_rows import SharedRows
from haloscope.exchange.world import World
from haloscope.scope.regions import Region as TimedRegion
from haloscope.solvers.blood.cells import Held, Region
from haloscope.solvers.blood.coupling import Coupling, OwnBox, SomeCells
from haloscope.solvers.blood.flow import Flow
from haloscope.solvers.blood.holders import Holders, raise_together, room_for
from haloscope.solvers.blood.inside import Insides, Surfaces
from haloscope.solvers.blood.membrane_meshes import MembraneMesh
from haloscope.solvers.blood.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.repulsion import (
    CellsOfKind,
    Repulsion,
    RepulsionLaw,
    WallRepulsion,
)

_INTERPOLATE = TimedRegion("interpolate")
_SHARE = {what: TimedRegion(f"share {what}") for what in ("velocities", "forces")}
_ADVANCE = TimedRegion("advance vertices")
_MEMBRANES = TimedRegion("membrane forces")
_REPULSION = TimedRegion("repulsion")
_SPREAD = TimedRegion("spread")
_INSIDE = TimedRegion("mark inside")
_HAND_OVER = TimedRegion("hand over cells")

MARGIN = 2.0
"""Spacings that a vertex may move before cells are handed over again."""
# Own cells that no other rank holds; others of a rank's own; copies of others'; the last two together.
_ALONE, _OWN, _COPIES, _SHARED = range(4)
# The first steps after the start, in which cells may gain any sound speed.
_FIRST_STEPS = 4


@dataclass(frozen=True)
class CellKind:
    """What cells of a kind are made of, in lattice units.

    Attributes
    ----------
    name
        For people.
    mesh
        Shape at rest.
    law
        Of the membrane.
    elements
        ``loop`` or ``linear``.
    contrast
        Whether the fluid inside is more or less viscous.
    """

    name: str
    mesh: MembraneMesh
    law: MembraneLaw
    elements: Literal["loop", "linear"] = "loop"
    contrast: bool = False


@dataclass
class Present:
    """The cells of one kind that are present on a rank: own ones, and copies of others'.

    Attributes
    ----------
    kind
        What they are made of.
    membranes
        Positions, velocities and forces of their vertices.
    held
        Which cells these are, and who else holds them.
    total
        How many there are on all ranks.
    rows
        Rows of the arrays that are worked on: those of the cells present, and some in which a cell
        is parked outside all lattices, so that launches suit other numbers of cells, too.
    shared
        What gives all copies of a cell the velocities that one of them knows.
    """

    kind: CellKind
    membranes: Membranes
    held: Held
    total: int = 0
    rows: int = 0
    shared: SharedRows | None = None

    @property
    def ids(self) -> np.ndarray:
        """Numbers of the cells present, ascending."""
        return self.held.ids

    @property
    def own(self) -> np.ndarray:
        """Which of them are this rank's own."""
        return self.held.own

    @property
    def count(self) -> int:
        """Cells present."""
        return len(self.held.ids)

    def has(self, part: int) -> bool:
        """Whether there is any cell of a part."""
        parts = self.membranes.parts
        return any(parts[_OWN:]) if part == _SHARED else parts[part] > 0

    @property
    def vertices(self) -> int:
        """Of all rows that are worked on."""
        return self.rows * self.membranes.vertices


class Suspension:
    """Cells in the fluid of a rank.

    A rank holds whole copies of all cells that reach into its box, widened by the support of the
    smoothed delta function and by a margin. It gives velocities to the vertices in its own box, and
    0 to others; ranks that share a cell then give each other what they know. Each copy is moved alike,
    to the last bit, so that it stays where it is when cells are handed over: only what a rank did
    not hold before travels whole. What a membrane resists its owner finds, and tells the others. All
    sums run over cells by number, so that results do not depend, to the last bit, on the ranks.

    Parameters
    ----------
    device, world
        Where to compute, and the ranks.
    part, region
        This rank's points, and how ranks share the lattice.
    flow
        The fluid, with the arrays for forces and velocities.
    kinds
        What there is.
    kernel
        Name of the smoothed delta function.
    interval
        Most steps between two times at which cells are handed over and counted.
    repulsion
        Between cells, and between cells and walls; None: none.
    distances
        Of this rank's points from walls, (count,), infinite where far; with repulsion.
    """

    def __init__(
        self,
        device: Device,
        world: World,
        part: LatticePart,
        region: Region,
        flow: Flow,
        kinds: Sequence[CellKind],
        *,
        kernel: str,
        interval: int,
        repulsion: RepulsionLaw | None = None,
        distances: np.ndarray | None = None,
    ) -> None:
        self.device, self._world, self._region = device, world, region
        self._flow, self._interval, self._part = flow, interval, part
        self._box = box = OwnBox(*part.box, shape=region.shape, periodic=region.periodic)
        self._coupling = Coupling(
            device, box, part.halo, part.table, flow.fluid.stride, kernel=kernel
        )
        self._reach = part.halo + MARGIN
        self._between_cells: list[Repulsion] = []
        if repulsion is not None:
            self._reach += repulsion.cutoff
            self._between_cells.append(Repulsion(device, box, repulsion))
        self._repulsions: list[Repulsion | WallRepulsion] = [*self._between_cells]
        if repulsion is not None and distances is not None:
            walls = WallRepulsion(device, box, part.halo, part.table, distances, repulsion)
            self._repulsions.append(walls)
        self._insides = Insides(device, box, part.halo, part.table)
        self._triangles = [device.from_host(kind.mesh.triangles.astype(np.int32)) for kind in kinds]
        self._holders = Holders(
            device, world, region, self._reach, flow.transport, self._coupling.forget
        )
        nothing = Held.nothing(world.size)
        self.kinds = [Present(kind, room_for(device, kind, 1), nothing) for kind in kinds]
        self._due, self._last = 0, _FIRST_STEPS
        self._step = 0

    # Cells come and go

    def place(self, kind: int, ids: np.ndarray, vertices: np.ndarray) -> None:
        """Put cells into the fluid; all ranks call this, with any cells each, a cell once.

        Parameters
        ----------
        kind
            Place in `kinds`.
        ids
            Numbers of the cells, above those of all cells of this kind so far.
        vertices
            (n, V, 3) positions in lattice units.
        """
        given = self.kinds[kind]
        given.total += int(self._world.sum(np.array([len(ids)]))[0])
        still = np.zeros_like(vertices)
        self._holders.add(given, np.asarray(ids, np.int64), np.stack([vertices, still], axis=1))
        self._holders.hand_over([given])

    def remove(self, kind: int, gone: np.ndarray) -> int:
        """Take out own cells by their numbers; all ranks call this. Returns how many in all."""
        given = self.kinds[kind]
        removed = int(self._world.sum(np.array([len(gone)]))[0])
        given.total -= removed
        held = given.held
        # What nobody owns is held by nobody after a hand-over.
        given.held = Held(held.ids, held.own & ~np.isin(held.ids, gone), held.holders)
        self._holders.hand_over([given])
        return removed

    def owners(self, vertices: np.ndarray) -> np.ndarray:
        """Ranks of cells with vertices (n, V, 3) in lattice units."""
        return self._region.owners(vertices.mean(axis=1))

    def hand_over(self) -> None:
        """Give cells to all ranks that they reach now, and count them; all ranks call this."""
        with _HAND_OVER:
            if self._world.size == 1:
                # All cells are here, and stay.
                self._holders.look(self.kinds)
                self._due = self._step + self._interval
                return
            fastest, moved = self._holders.hand_over(self.kinds, all_owned=True)
            self._plan(fastest)
            if moved:
                # Who has cells in other rows needs new lists, and others would wait for that: from now
                # on all make theirs in step, as far as vertices are as fast.
                self._coupling.renew()
                for repulsion in self._between_cells:
                    repulsion.renew()

    def _plan(self, fastest: float) -> None:
        """When to hand over next: before a vertex at twice its speed can have left the margin."""
        steps = _FIRST_STEPS
        if self._step:
            steps = int(MARGIN / max(2 * fastest, 1e-6))
            # Speeds grow no faster than this looks again.
            steps = max(1, min(steps, self._interval, 2 * max(self._last, _FIRST_STEPS)))
        self._last = steps
        self._due = self._step + steps

    def table(self, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """All cells of a kind on rank 0, by number; all ranks call this.

        Returns
        -------
        ids
            (n,); none on other ranks.
        state
            (n, 2, V, 3): positions and velocities of vertices in lattice units.
        """
        given = self.kinds[kind]
        state = self._holders.own_states(given)
        nothing = np.empty(0, np.uint8)
        parts = [nothing] * self._world.size
        parts[0] = np.ascontiguousarray(given.ids[given.own]).view(np.uint8)
        ids = self._world.exchange(parts)
        parts[0] = np.ascontiguousarray(state).reshape(-1).view(np.uint8)
        states = self._world.exchange(parts)
        # Bytes that arrive may begin anywhere.
        found = np.frombuffer(b"".join(part.tobytes() for part in ids), np.int64)
        values = np.frombuffer(b"".join(part.tobytes() for part in states))
        order = np.argsort(found, kind="stable")
        return found[order], values.reshape(-1, 2, given.membranes.vertices, 3)[order]

    def state(self) -> dict[str, np.ndarray]:
        """What a restart needs, whole on rank 0; all ranks call this."""
        found = {}
        for number, given in enumerate(self.kinds):
            ids, values = self.table(number)
            found[f"{given.kind.name} numbers"] = ids
            found[f"{given.kind.name} vertices"] = values
        return found

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over on every rank what :meth:`state` gave.

        Raises
        ------
        InputError
            The state is that of other kinds of cells.
        """
        for given in self.kinds:
            name, m = given.kind.name, given.membranes
            ids, values = (state.get(f"{name} {what}") for what in ("numbers", "vertices"))
            if ids is None or values is None or values.shape != (len(ids), 2, m.vertices, 3):
                raise InputError(
                    f"the checkpoint holds no cells {name!r} of {m.vertices} vertices; restart "
                    "with the case it is from"
                )
            mine = self.owners(values[:, 0]) == self._world.rank
            given.held = Held.nothing(self._world.size)
            given.total = len(ids)
            self._holders.add(given, ids[mine], values[mine])
        self._holders.hand_over(self.kinds)
        self._put_forces()

    # A step

    def start(self) -> None:
        """Set the forces on the fluid of the present positions."""
        self.hand_over()
        self._put_forces()

    def step(self) -> None:
        """Move with the fluid, which has just collided, and set the forces of its next step."""
        if not self.due:
            self.launch_step()
            self.count_step()
            return
        self._move()
        self.count_step()
        self.hand_over()
        self._put_forces()

    @property
    def due(self) -> bool:
        """Whether cells are handed over in the next step."""
        return self._step + 1 >= self._due

    @property
    def bound_to(self) -> tuple[object, ...]:
        """What the launches of a step depend on; others are needed where it differs."""
        return tuple(
            one
            for given in self.kinds
            for one in (
                *(given.membranes, given.rows, given.shared),
                *(count > 0 for count in given.membranes.parts),
            )
        )

    def launch_step(self) -> None:
        """Do what :meth:`step` does on the device where no cells are handed over."""
        self._move()
        self._put_forces()

    def _move(self) -> None:
        """Give vertices the fluid's velocity, and move them.

        Cells that other ranks hold, too, come first: their velocities travel meanwhile.
        """
        self._interpolate(_SHARED)
        self._start_sharing("velocities")
        self._interpolate(_ALONE)
        self._advance(_ALONE)
        self._finish_sharing("velocities")
        self._advance(_SHARED)

    def count_step(self) -> None:
        """Take note that a step was done."""
        self._step += 1

    def _interpolate(self, part: int) -> None:
        """Give vertices of a part in the own box the fluid's velocities, and 0 to others."""
        for given in self.kinds:
            m = given.membranes
            if not given.has(part):
                continue
            some = SomeCells(*m.part(part), m.vertices)
            with _INTERPOLATE:
                self._coupling.interpolate(
                    *(self._flow.fluid.velocity, m.positions, m.velocities),
                    m.capacity * m.vertices,
                    some,
                )

    def _start_sharing(self, what: Literal["velocities", "forces"]) -> None:
        """Begin to give each other what belongs to the vertices of cells that several ranks hold."""
        shared = self._shared_by_ranks(what)
        if shared:
            with _SHARE[what]:
                self.device.fork()
                for rows, values in shared:
                    rows.start(values)

    def _finish_sharing(self, what: Literal["velocities", "forces"]) -> None:
        shared = self._shared_by_ranks(what)
        if shared:
            with _SHARE[what]:
                for rows, values in shared:
                    rows.finish(values)
                self.device.join()

    def _shared_by_ranks(
        self, what: Literal["velocities", "forces"]
    ) -> list[tuple[SharedRows, Array]]:
        return [
            (given.shared, getattr(given.membranes, what))
            for given in self.kinds
            if given.shared is not None
        ]

    def _advance(self, part: int) -> None:
        for given in self.kinds:
            if given.has(part):
                with _ADVANCE:
                    given.membranes.advance(part)

    def _strain(self, part: int) -> None:
        for given in self.kinds:
            if given.has(part):
                with _MEMBRANES:
                    given.membranes.compute_forces_of(part)

    def mark_inside(self) -> None:
        """Flag the points inside cells of another viscosity."""
        with _INSIDE:
            cells = [
                Surfaces(m.positions, given.count, m.vertices, triangles)
                for given, m, triangles in (
                    (given, given.membranes, triangles)
                    for given, triangles in zip(self.kinds, self._triangles, strict=True)
                )
                if given.kind.contrast
            ]
            self._insides.mark(cells, self._flow.fluid.inside)

    def require_sound(self) -> None:
        """See that no membrane has folded over; the same on every rank.

        Raises
        ------
        SolutionError
            Names the cell.
        """
        fault = ""
        for given in self.kinds:
            try:
                given.membranes.require_sound(given.count, given.ids)
            except SolutionError as error:
                fault = fault or str(error)
        raise_together(self._world, fault)

    def _put_forces(self) -> None:
        """Set the forces on the fluid; those of cells that others hold, too, travel meanwhile."""
        force = self._flow.fluid.force
        self._strain(_OWN)
        for given in self.kinds:
            if given.has(_COPIES):
                given.membranes.clear_forces_of(_COPIES)
        self._start_sharing("forces")
        self._strain(_ALONE)
        self._finish_sharing("forces")
        with _REPULSION:
            cells = [
                CellsOfKind(m.positions, m.forces, given.rows, m.vertices)
                for given, m in ((given, given.membranes) for given in self.kinds)
            ]
            for repulsion in self._repulsions:
                repulsion.apply(cells)
        with _SPREAD:
            force.fill(0)
            for given in self.kinds:
                m = given.membranes
                self._coupling.spread(force, m.positions, m.forces, given.vertices)
