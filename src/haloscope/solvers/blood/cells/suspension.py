"""All cells of a run: their step with the fluid, and their state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.errors import InputError, SolutionError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart, Region
from haloscope.regions import Region as TimedRegion
from haloscope.solvers.blood.cells.local_cells import CellKind, EnteringCells, LocalCells
from haloscope.solvers.blood.cells.ownership import CellOwnership, raise_together
from haloscope.solvers.blood.cells.shared_vertices import MARGIN
from haloscope.solvers.blood.coupling.coupling import Coupling, OwnBox, SomeCells
from haloscope.solvers.blood.coupling.inside import Insides, Surfaces
from haloscope.solvers.blood.coupling.repulsion import (
    CellsOfKind,
    Repulsion,
    RepulsionLaw,
    WallRepulsion,
)
from haloscope.solvers.blood.fluid.flow import Flow
from haloscope.solvers.blood.membranes.membranes import ALONE, OWN, SHARED
from haloscope.solvers.blood.membranes.meshes import smoothed
from haloscope.solvers.blood.membranes.stretching import Pull
from haloscope.solvers.interface import saved_counts, saved_numbers

_INTERPOLATE = TimedRegion("interpolate")
_SHARE = {quantity: TimedRegion(f"share {quantity}") for quantity in ("velocities", "forces")}
_COMPLETE = TimedRegion("complete copies of cells")
_ADVANCE = TimedRegion("advance vertices")
_MEMBRANES = TimedRegion("membrane forces")
_REPULSION = TimedRegion("repulsion")
_SPREAD = TimedRegion("spread")
_INSIDE = TimedRegion("mark inside")
_HAND_OVER = TimedRegion("hand over cells")
_LOOK = TimedRegion("look at cells")
# Of the state of cells that are not viscous, and of others.
_ARRAYS = (2, 4)
# Of the largest coordinate: machines differ in the last bits of a sine.
_SAME_SHAPE = 1e-6
# No coordinate of a vertex in spacings is beyond it, nor a velocity in spacings a step.
_FAR = 1e9


class Suspension:
    """Cells in the fluid of a rank.

    `distances`: of this rank's points from walls, (count,), infinite where far; with repulsion.
    """

    # A rank holds copies of all cells that reach into its box, widened by the support of the
    # smoothed delta function and by a margin. It gives velocities to the vertices in its own box,
    # and 0 to others; ranks that share a cell then give each other what they know, as far as it is
    # of use. What is near a rank's box is moved alike on all ranks, to the last bit; the rest of a
    # copy is put right before cells are handed over, so that it can stay where it is: only what a
    # rank did not hold before passes through the host. What a membrane resists its owner finds, and
    # tells the others. All sums run over cells by number, so that results do not depend, to the
    # last bit, on the ranks.

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
        self.device, self._world, self._flow = device, world, flow
        self._box = box = OwnBox(*part.box, shape=region.shape, periodic=region.periodic)
        self._coupling = Coupling(
            device, box, part.halo, part.table, flow.fluid.stride, kernel=kernel
        )
        reach = part.halo + MARGIN
        self._between_cells: list[Repulsion] = []
        if repulsion is not None:
            reach += repulsion.cutoff
            self._between_cells.append(Repulsion(device, box, repulsion))
        self._walls: list[WallRepulsion] = []
        if repulsion is not None and distances is not None:
            walls = WallRepulsion(device, box, part.halo, part.table, distances, repulsion)
            self._walls.append(walls)
        self._insides = Insides(device, box, part.halo, part.table)
        self._triangles = [device.from_host(kind.mesh.triangles.astype(np.int32)) for kind in kinds]
        # Who owns and holds which cells.
        self.ownership = CellOwnership(
            device,
            world,
            region,
            kinds,
            reach=reach,
            transport=flow.transport,
            interval=interval,
            forget=self._forget,
        )
        self.kinds = self.ownership.kinds
        # What pulls cells of each kind apart.
        self.pulls = [
            None if kind.stretch is None else Pull(device, kind.stretch, kind.mesh)
            for kind in kinds
        ]
        self.entering: list[EnteringCells] = []  # Such as are on their way in, and are led
        self.smoothed = 0  # How often creases were smoothed out of a cell

    # Cells come and go

    def smooth(self, below: float, spared: Sequence[np.ndarray]) -> None:
        """Smooth creases out of cells whose worst triangle is poor; all ranks call this."""
        before = self.smoothed
        for kind, local in enumerate(self.kinds):
            m = local.membranes
            poor = np.zeros(local.count, bool)
            if local.count:
                quality = m.shapes(local.count).quality
                poor = local.own & (quality < below) & ~np.isin(local.ids, spared[kind])
            creased = np.sort(all_rows(self._world, local.ids[poor]))
            if not len(creased):
                continue
            states = self.ownership.states_of(local, creased)
            for state in states:
                state[0] = smoothed(state[0], m.mesh)
            # Springs in series with a viscosity begin at rest.
            states[:, 2:] = m.settled(states[:, 0])[:, 2:]
            self.ownership.remove(local, local.ids[poor])
            self.ownership.place(local, creased, states[:, 0], states)
            self.smoothed += len(creased)
        if self.smoothed > before:
            self.migrate()
            self.put_forces()

    def _forget(self, positions: Array) -> None:
        self._coupling.forget(positions)
        for between in self._between_cells:
            between.forget(positions)
        for walls in self._walls:
            walls.forget(positions)

    def migrate(self) -> None:
        """Give cells to all ranks that they reach now, and count them; all ranks call this."""
        with _HAND_OVER:
            self.ownership.migrate()
            if self._world.size > 1:
                # Who has other cells, or copies that were left behind, needs new lists, and others
                # would wait for that: from now on all make theirs in step, as far as vertices are as
                # fast.
                self._coupling.renew()
                for repulsion in self._between_cells:
                    repulsion.renew()
            self._let_lists_grow()

    def look(self) -> None:
        """See that all cells have places, and how fast they are; all ranks call this."""
        with _LOOK:
            self.ownership.look()
            self._let_lists_grow()

    def _let_lists_grow(self) -> None:
        cells = self._repelling_cells()
        for between in self._between_cells:
            between.grow(cells)

    def complete(self) -> None:
        """Put copies of others' cells where these are, as a whole; all ranks call this."""
        with _COMPLETE:
            self.ownership.complete(self.kinds)

    def table(self, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and states of all cells of a kind; see :meth:`CellOwnership.table`."""
        return self.ownership.table(self.kinds[kind])

    def state(self) -> dict[str, np.ndarray]:
        """State for a restart, whole on rank 0; all ranks call this."""
        state = {}
        for number, local in enumerate(self.kinds):
            ids, values = self.table(number)
            state[f"{local.kind.name} numbers"] = ids
            state[f"{local.kind.name} vertices"] = values
            state[f"{local.kind.name} at rest"] = local.membranes.mesh.vertices
        state["creases smoothed"] = np.array([float(self.smoothed)])
        return state

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Take over on every rank what :meth:`state` gave."""
        for local in self.kinds:
            name, m = local.kind.name, local.membranes
            ids, values = (state.get(f"{name} {key}") for key in ("numbers", "vertices"))
            if (
                ids is None
                or values is None
                or ids.ndim != 1
                or values.ndim != 4
                or values.shape[1] not in _ARRAYS
                or values.shape[::2] != (len(ids), m.vertices)
            ):
                raise InputError(
                    f"it holds no cells {name!r} of {m.vertices} vertices",
                    location="checkpoint",
                    remedy="restart with the case that wrote it",
                )
            saved_counts(state, f"{name} numbers", (None,))
            saved_numbers(
                state, f"{name} vertices", (None, None, m.vertices, 3), least=-_FAR, most=_FAR
            )
            if len(np.unique(ids)) != len(ids):
                raise InputError(
                    f"it is damaged: two of its cells {name!r} have the same number",
                    location="checkpoint",
                    remedy="restart from an earlier one",
                )
            rest, wanted = state.get(f"{name} at rest"), m.mesh.vertices
            # Files of before 2026-11-26 do not tell it.
            if rest is not None and not (
                rest.shape == wanted.shape
                and rest.dtype.kind == "f"
                and bool((np.abs(rest - wanted) <= _SAME_SHAPE * np.abs(wanted).max()).all())
            ):
                raise InputError(
                    f"its cells {name!r} have another shape at rest",
                    location="checkpoint",
                    remedy="restart with the shape, size and spacing of the case that wrote it",
                )
            local.clear()
            values = m.fitted(values)
            self.ownership.add(local, ids, values[:, 0], values)
        (count,) = saved_counts(state, "creases smoothed", (1,))
        self.smoothed = int(count)
        self.ownership.migrate_kinds(self.kinds)
        self.put_forces()

    # A step

    def start(self) -> None:
        """Set the forces on the fluid of the present positions."""
        self.migrate()
        self.put_forces()

    def step(self) -> None:
        """Move with the fluid, which has just collided, and set the forces of its next step."""
        if not self.due:
            self.launch_step()
            self.count_step()
            return
        self._move()
        self.ownership.step += 1
        self.migrate()
        self.put_forces()

    @property
    def due(self) -> bool:
        """Whether cells are handed over in the next step."""
        return self.ownership.step + 1 >= self.ownership.due

    @property
    def bound_to(self) -> tuple[object, ...]:
        """Values that the launches of a step depend on; they are rebuilt when these change."""
        bound_anew = (between.times_grown for between in self._between_cells)
        led = (one for cells in self.entering for one in cells.bound_to)
        return (
            *bound_anew,
            *led,
            *(
                one
                for local in self.kinds
                for one in (
                    *(local.membranes, local.rows),
                    *(() if local.shared is None else local.shared.exchanges),
                    *(count > 0 for count in local.membranes.parts),
                    self._beside(local),
                )
            ),
        )

    def launch_step(self) -> None:
        """Do what :meth:`step` does on the device where no cells are handed over."""
        self._move()
        self.put_forces()

    def _move(self) -> None:
        """Give vertices the fluid's velocity, and move them.

        Cells that other ranks hold, too, have a GPU's side stream: their velocities travel while all
        others get theirs.
        """
        with self._aside():
            self._interpolate(SHARED)
            self._share("start", "velocities")
            self._interpolate(ALONE)
            self._lead(ALONE)
            self._advance(ALONE)
            self._share("finish", "velocities")
        self._lead(SHARED)
        self._advance(SHARED)
        for local in self.kinds:
            for part in (ALONE, OWN):
                if local.has(part) and local.membranes.natural:
                    with _MEMBRANES:
                        local.membranes.relax(part)

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Side stream of a GPU: its work follows earlier work and precedes later work."""
        if self._world.size > 1:
            self.device.fork()
        yield
        if self._world.size > 1:
            self.device.join()

    def count_step(self) -> None:
        """Take note that a step was done, and look at cells when it is time."""
        self.ownership.step += 1
        if self.ownership.step >= self.ownership.look_at:
            self.look()

    def _interpolate(self, part: int) -> None:
        """Give vertices of a part in the own box the fluid's velocities, and 0 to others.

        Shared cells have the side stream.
        """
        stream = self.device.side if part == SHARED else None
        for local in self.kinds:
            m = local.membranes
            if not local.has(part):
                continue
            rows = SomeCells(
                *(*m.part(part), m.vertices, part == SHARED and self._beside(local)),
                positions=m.view(m.positions, part),
                velocities=m.view(m.velocities, part),
            )
            with _INTERPOLATE:
                self._coupling.interpolate(
                    *(self._flow.fluid.velocity, m.positions, m.velocities),
                    m.capacity * m.vertices,
                    rows,
                    stream,
                )

    def _beside(self, local: LocalCells) -> bool:
        """Whether there is enough to interpolate beside shared cells, of whose vertices half are elsewhere."""
        alone, *shared = local.membranes.parts
        fills = self._coupling.fills_device(alone * local.membranes.vertices)
        return fills and 2 * alone >= sum(shared)

    def _share(
        self, phase: Literal["start", "finish"], quantity: Literal["velocities", "forces"]
    ) -> None:
        """Give each other what belongs to the vertices of cells that several ranks hold."""
        pairs = [
            (local.shared, local.membranes) for local in self.kinds if local.shared is not None
        ]
        if pairs:
            with _SHARE[quantity]:
                for shared, cells in pairs:
                    getattr(getattr(shared, quantity), phase)(getattr(cells, quantity))

    def _advance(self, part: int) -> None:
        for local in self.kinds:
            if local.has(part):
                with _ADVANCE:
                    local.membranes.advance(part)

    def _lead(self, part: int) -> None:
        for cells in self.entering:
            cells.lead(part)

    def _strain(self, part: int) -> None:
        """Set the forces of a part's cells; own cells that others hold, too, have the side stream."""
        stream = self.device.side if part == OWN else None
        for local, pull in zip(self.kinds, self.pulls, strict=True):
            if local.has(part):
                with _MEMBRANES:
                    local.membranes.compute_forces_of(part, stream)
                    if pull is not None:
                        pull.apply(local.membranes, part, stream)

    def mark_inside(self) -> None:
        """Flag the points inside cells of another viscosity.

        The far side of a copy may be where it was at the last hand-over: the surface is closed all the
        same, and does not come near own points there.
        """
        with _INSIDE:
            cells = self._surfaces()
            viscous = [
                one for local, one in zip(self.kinds, cells, strict=True) if local.kind.contrast
            ]
            self._insides.mark(viscous, self._flow.fluid.inside)

    def flags_inside(self, owned: int) -> np.ndarray:
        """Whether own points lie inside cells, on the host: (owned,), 1 inside, either on a surface."""
        flags = self.device.zeros((owned,), np.uint8)
        self._insides.mark(self._surfaces(), flags)
        return self.device.to_host(flags)

    def _surfaces(self) -> list[Surfaces]:
        return [
            Surfaces(m.positions, local.count, m.vertices, triangles)
            for local, triangles in zip(self.kinds, self._triangles, strict=True)
            for m in (local.membranes,)
        ]

    def require_sound(self) -> None:
        """Refuse to go on if a membrane has folded over; the same on every rank."""
        self.complete()
        fault: SolutionError | None = None
        for local in self.kinds:
            try:
                local.membranes.require_sound(local.count, local.ids, local.kind.name)
            except SolutionError as error:
                fault = fault or error
        raise_together(self._world, fault)

    def put_forces(self) -> None:
        """Set the forces on the fluid; those of cells that others hold, too, travel meanwhile."""
        force = self._flow.fluid.force
        cells = self._repelling_cells()
        with self._aside():
            self._strain(OWN)
            self._share("start", "forces")
            self._strain(ALONE)
            with _REPULSION:
                for between in self._between_cells:
                    between.look(cells)
            self._share("finish", "forces")
        with _REPULSION:
            for between in self._between_cells:
                between.apply(cells, looked=True)
            for walls in self._walls:
                walls.apply(cells)
        with _SPREAD:
            for number, local in enumerate(self.kinds):
                m, first = local.membranes, number == 0
                self._coupling.spread(force, m.positions, m.forces, local.vertices, afresh=first)

    def _repelling_cells(self) -> list[CellsOfKind]:
        return [
            CellsOfKind(m.positions, m.forces, local.rows, m.vertices)
            for local, m in ((local, local.membranes) for local in self.kinds)
        ]
