"""All cells of a run: their step with the fluid, their number, and who holds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from haloscope.device.interface import Device
from haloscope.domain.lattice_parts import LatticePart
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.copies import Placement
from haloscope.exchange.gather_scatter import FieldByField, GatherScatter, open_gather_scatter
from haloscope.exchange.world import World
from haloscope.scope.regions import Region as TimedRegion
from haloscope.solvers.blood.cells import Region, hand_over
from haloscope.solvers.blood.coupling import Coupling, OwnBox
from haloscope.solvers.blood.flow import Flow
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
_SHARE = TimedRegion("share velocities")
_ADVANCE = TimedRegion("advance vertices")
_MEMBRANES = TimedRegion("membrane forces")
_REPULSION = TimedRegion("repulsion")
_SPREAD = TimedRegion("spread")
_INSIDE = TimedRegion("mark inside")
_HAND_OVER = TimedRegion("hand over cells")

MARGIN = 2.0
"""Spacings that a vertex may move before cells are handed over again."""
# The first steps after the start, in which cells may gain any sound speed.
_FIRST_STEPS = 4
_ROOM = 1.25


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
    ids, own
        Numbers of the cells present, ascending, and which of them are this rank's own.
    total
        How many there are on all ranks.
    """

    kind: CellKind
    membranes: Membranes
    ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    own: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    total: int = 0
    shared: GatherScatter | FieldByField[GatherScatter] | None = None

    @property
    def count(self) -> int:
        """Cells present."""
        return len(self.ids)

    @property
    def vertices(self) -> int:
        """Of all cells present."""
        return len(self.ids) * self.membranes.vertices


class Suspension:
    """Cells in the fluid of a rank.

    A rank holds whole copies of all cells that reach into its box, widened by the support of the
    smoothed delta function and by a margin. It gives velocities to the vertices in its own box;
    sums over ranks, of which all terms but one are 0, give them to all copies. Each copy is then
    moved and strained alike, so that forces need not travel. All sums run over cells by number,
    so that results do not depend, to the last bit, on the ranks.

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
        self._repulsions: list[Repulsion | WallRepulsion] = []
        if repulsion is not None:
            self._reach += repulsion.cutoff
            self._repulsions.append(Repulsion(device, box, repulsion))
        if repulsion is not None and distances is not None:
            walls = WallRepulsion(device, box, part.halo, part.table, distances, repulsion)
            self._repulsions.append(walls)
        self._insides = Insides(device, box, part.halo, part.table)
        self._triangles = [device.from_host(kind.mesh.triangles.astype(np.int32)) for kind in kinds]
        self.kinds = [Present(kind, self._room(kind, 1)) for kind in kinds]
        self._due, self._last = 0, _FIRST_STEPS
        self._step = 0

    def _room(self, kind: CellKind, cells: int) -> Membranes:
        return Membranes(self.device, kind.mesh, cells, kind.law, elements=kind.elements)

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
        still = np.stack([vertices, np.zeros_like(vertices)], axis=1)
        all_ids = np.concatenate([given.ids[given.own], np.asarray(ids, np.int64)])
        values = np.concatenate([self._own_state(given), still])
        given.total += int(self._world.sum(np.array([len(ids)]))[0])
        self._hand_over(given, all_ids, values)

    def remove(self, kind: int, gone: np.ndarray) -> int:
        """Take out own cells by their numbers; all ranks call this. Returns how many in all."""
        given = self.kinds[kind]
        own = given.ids[given.own]
        keep = ~np.isin(own, gone)
        removed = int(self._world.sum(np.array([len(gone)]))[0])
        given.total -= removed
        self._hand_over(given, own[keep], self._own_state(given)[keep])
        return removed

    def owners(self, vertices: np.ndarray) -> np.ndarray:
        """Ranks of cells with vertices (n, V, 3) in lattice units."""
        return self._region.owners(vertices.mean(axis=1))

    def _own_state(self, given: Present) -> np.ndarray:
        """Positions and velocities of own cells' vertices, (n, 2, V, 3)."""
        m, own = given.membranes, given.own
        return np.stack([m.on_host(a, given.count)[own] for a in (m.positions, m.velocities)], 1)

    def hand_over(self) -> None:
        """Give cells to all ranks that they reach now, and count them; all ranks call this."""
        with _HAND_OVER:
            if self._world.size == 1 and all(self._finite(given) for given in self.kinds):
                # All cells are here, and stay on the device.
                self._due = self._step + self._interval
                return
            fastest = 0.0
            for given in self.kinds:
                values = self._own_state(given)
                fastest = max(fastest, float(np.abs(values[:, 1]).max(initial=0.0)))
                self._hand_over(given, given.ids[given.own], values)
            self._plan(self._world.largest(fastest))

    def _finite(self, given: Present) -> bool:
        """Whether all vertices have numbers as positions and velocities."""
        m, isfinite = given.membranes, self.device.xp.isfinite
        cells = (m.capacity, m.vertices)
        return all(
            bool(isfinite(array.reshape(3, *cells)[:, : given.count]).all())
            for array in (m.positions, m.velocities)
        )

    def _plan(self, fastest: float) -> None:
        """When to hand over next: before a vertex at twice its speed can have left the margin."""
        steps = _FIRST_STEPS
        if self._step:
            steps = int(MARGIN / max(2 * fastest, 1e-6))
            # Speeds grow no faster than this looks again.
            steps = max(1, min(steps, self._interval, 2 * max(self._last, _FIRST_STEPS)))
        self._last = steps
        self._due = self._step + steps

    def _hand_over(self, given: Present, ids: np.ndarray, values: np.ndarray) -> None:
        fault = ""
        for bad in ids[~np.isfinite(values).all(axis=(1, 2, 3))][:1]:
            fault = f"{given.kind.name} {bad} has a vertex whose position is no number"
        self._raise_together(fault)
        vertices = given.membranes.vertices
        # Positions along x, y, z, then velocities.
        state = np.moveaxis(values, 3, 2).reshape(len(ids), 6, vertices)
        own = np.ones(len(ids), bool)
        found, own, state, sharers = hand_over(
            self._world, self._region, ids, own, state, self._reach
        )
        counted = int(self._world.sum(np.array([int(own.sum())]))[0])
        if counted != given.total:
            raise SolutionError(
                f"{given.total - counted} of {given.total} cells of kind {given.kind.name} are lost"
            )
        if len(found) > given.membranes.capacity:
            given.membranes = self._room(given.kind, int(_ROOM * len(found)) + 1)
        given.ids, given.own = found, own
        m = given.membranes
        for array, first in ((m.positions, 0), (m.velocities, 3)):
            cells = array.reshape(3, m.capacity, vertices)
            part = np.ascontiguousarray(np.moveaxis(state[:, first : first + 3], 1, 0))
            cells[:, : len(found)] = self.device.from_host(part)
        if self._world.size > 1:
            numbers = found[:, None] * vertices + np.arange(vertices) + 1
            numbers[sharers == 1] = 0
            given.shared = open_gather_scatter(
                self._world,
                self.device,
                numbers.ravel(),
                3,
                np.float64,
                self._flow.transport,
                placement=Placement(0, 1, given.membranes.capacity * vertices),
                state=given.membranes.velocities,
            )

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
        state = self._own_state(given)
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
            given.ids, given.own = np.zeros(0, np.int64), np.zeros(0, bool)
            given.total = len(ids)
            self._hand_over(given, ids[mine], values[mine])
        self._put_forces()

    # A step

    def start(self) -> None:
        """Set the forces on the fluid of the present positions."""
        self.hand_over()
        self._put_forces()

    def step(self) -> None:
        """Move with the fluid, which has just collided, and set the forces of its next step."""
        self._move()
        self.count_step()
        if self._step >= self._due:
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
            one for given in self.kinds for one in (given.membranes, given.count, given.shared)
        )

    def launch_step(self) -> None:
        """Do what :meth:`step` does on the device where no cells are handed over."""
        self._move()
        self._put_forces()

    def count_step(self) -> None:
        """Take note that a step was done."""
        self._step += 1

    def _move(self) -> None:
        """Give vertices the fluid's velocities, and move them."""
        self._flow.fetch_velocities()
        u, coupling = self._flow.fluid.velocity, self._coupling
        for given in self.kinds:
            m = given.membranes
            with _INTERPOLATE:
                coupling.interpolate(u, m.positions, m.velocities, given.vertices)
            if given.shared is not None:
                with _SHARE:
                    given.shared.swap(m.velocities)
            with _ADVANCE:
                coupling.advance(m.positions, m.velocities, given.vertices)

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
        self._raise_together(fault)

    def _raise_together(self, fault: str) -> None:
        """Give up on every rank where one has a fault."""
        if self._world.any(bool(fault)):
            raise SolutionError(next(t for t in self._world.gather_texts(fault) if t))

    def _put_forces(self) -> None:
        force = self._flow.fluid.force
        for given in self.kinds:
            with _MEMBRANES:
                given.membranes.compute_forces(given.count)
        with _REPULSION:
            cells = [
                CellsOfKind(m.positions, m.forces, given.count, m.vertices)
                for given, m in ((given, given.membranes) for given in self.kinds)
            ]
            for repulsion in self._repulsions:
                repulsion.apply(cells)
        with _SPREAD:
            force.fill(0)
            for given in self.kinds:
                m = given.membranes
                self._coupling.spread(force, m.positions, m.forces, given.vertices)
