"""The fluid of a rank with the cells in it, and their steps, which a GPU replays as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device, Graph
from haloscope.exchange.plan import to_root
from haloscope.exchange.ranks.world import World
from haloscope.mesh.lattice.lattice_parts import LatticePart, Region
from haloscope.mesh.lattice.point_fields import PointFields
from haloscope.mesh.lattice.tilted_openings import TiltedOpening
from haloscope.mesh.lattice.voxels import Lattice
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.coupling.repulsion import FAR_FROM_WALLS, RepulsionLaw
from haloscope.solvers.blood.filling.filling import kind_of, vertices_of
from haloscope.solvers.blood.filling.packing import Cells
from haloscope.solvers.blood.fluid.boundaries import AnyOpening
from haloscope.solvers.blood.fluid.flow import Flow
from haloscope.solvers.blood.fluid.fluid import Fluid, WallLinks
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, share_out, wanted_by_others
from haloscope.solvers.blood.fluid.populations import choose_way
from haloscope.solvers.blood.fluid.reaction import Reaction
from haloscope.solvers.blood.sizing import bytes_beside_populations
from haloscope.solvers.blood.units import MICRO

MANY = 20
"""Steps of one graph where nothing else is to be done between them: each graph costs a GPU 2 to 3 us."""


class Stepping:
    """Takes time steps."""

    # A step is launched piece by piece when what it works on is new: launches are bound then. The
    # next one alike is captured, and those after it are replayed; without cells several at once. A
    # step in which cells are handed over is never captured.

    def __init__(
        self, device: Device, flow: Flow, suspension: Suspension | None, *, graphs: bool = True
    ) -> None:
        self._device, self._flow, self._suspension = device, flow, suspension
        # By the kind of step that the fluid takes first and the number of steps, for the cells present.
        self._captured: dict[tuple[int, int], Graph] = {}
        self._launched: set[int] = set()
        self._cells: tuple[object, ...] = ()
        self._wanted = graphs and device.kind != "cpu" and flow.capturable
        self._beside, self._counted = False, True

    def take(self, at_most: int = 1) -> int:
        """Advance fluid and cells."""
        count = self.begin(at_most)
        self.end()
        return count

    def begin(self, at_most: int = 1, *, beside: bool = False) -> int:
        """Do what :meth:`take` does but for what :meth:`end` does."""
        if not self._wanted or (self._suspension is not None and self._suspension.due):
            self._flow.fluid.step()
            if self._suspension is not None:
                self._suspension.step()
            return 1
        cells = () if self._suspension is None else self._suspension.bound_to
        if cells != self._cells:
            # Launches that are bound anew give up what graphs of the old ones work on.
            self._cells = cells
            self._launched.clear()
            self._captured.clear()
        phase = self._flow.fluid.state.phase
        if phase not in self._launched:
            self._launched.add(phase)
            self._launch()
            count = 1
        else:
            count = MANY if self._suspension is None and at_most >= MANY else 1
            self._replay(phase, count, beside)
        self._counted = False
        return count

    def end(self) -> None:
        """Let what comes follow the steps that were begun, and look at cells when it is time."""
        if self._beside:
            self._beside = False
            self._device.join(self._device.beside)
        if not self._counted:
            self._counted = True
            if self._suspension is not None:
                self._suspension.count_step()

    def _replay(self, phase: int, count: int, beside: bool) -> None:
        """Take steps that begin with one of a kind that was launched before."""
        graph = self._captured.get((phase, count))
        if graph is None:

            def work() -> None:
                for _ in range(count):
                    self._launch()

            graph = self._captured[phase, count] = self._device.graph(work)
        else:
            for _ in range(count):
                self._flow.fluid.state.go_on()
        if beside:
            self._beside = True
            self._device.fork(self._device.beside)
            graph.replay(self._device.beside)
        else:
            graph.replay()

    def _launch(self) -> None:
        self._flow.fluid.step()
        if self._suspension is not None:
            self._suspension.launch_step()


Floats = NDArray[np.float64]

# Work of a vertex over that of a point: 9 on two cores and 11 on an H200 with a support of four points, 8 with two.
_POINTS_A_VERTEX = 10


class FluidWithCells:
    """A rank's part of a lattice full of fluid, and of the cells in it.

    `cells`: where cells start, in um; None: there are none.
    """

    def __init__(
        self,
        case: BloodCase,
        device: Device,
        world: World,
        lattice: Lattice,
        *,
        cells: Cells | None,
        openings: Callable[[LatticePart], Sequence[AnyOpening]] = lambda part: (),
        reactions: Sequence[Reaction] = (),
        walls: Callable[[LatticePart], WallLinks | None] = lambda part: None,
        distances: Callable[[LatticePart, float], Floats],
        log: Callable[[str], None],
    ) -> None:
        self.case, table, machine = case, case.blood, case.machine
        # The points, how ranks share them, this rank's, and the cuboid in which they lie.
        self.lattice, self.table, self.device, self.world = lattice, table, device, world
        work = None if cells is None else self._work_of(cells)
        self.boxes, self.part = share_out(
            world, lattice, table.halo, work, order=self._order_of_points()
        )
        part = self.part
        if world.size > 1:
            log(self.boxes.describe())
        # Viscosity in lattice units where it depends on the shear rate.
        self.law = None if table.carreau is None else table.carreau.law(table.units)
        links = walls(part)
        way = choose_way(
            device,
            world,
            table.streaming,
            part.count,
            table.stored_bytes,
            log,
            bytes_beside_populations(table, lattice.count) / world.size,
            links=links is not None,
        )
        # Its populations, and what goes between ranks.
        self.fluid = Fluid(
            device,
            part,
            tau=table.tau,
            collision=table.collision,
            magic=table.magic,
            real=table.precision,
            storage=table.storage,
            way=way,
            openings=openings(part),
            walls=links,
            with_cells=bool(table.cells),
            inside_tau=table.inside_tau,
            carreau=self.law,
            wanted=wanted_by_others(part) if table.cells else None,
            reactions=reactions,
            total=world.sum if world.size > 1 else None,
        )
        self.flow = Flow(
            device,
            world,
            part,
            lattice.shape,
            self.boxes,
            self.fluid,
            transport=machine.transport,
            overlap=machine.overlap,
            with_cells=bool(table.cells),
            graphs=machine.graphs,
            log=log,
        )
        self.region = Region(lattice.shape, lattice.periodic, self.boxes)
        # Its cells; None: there are none.
        self.suspension = None if cells is None else self._suspend(cells, distances)
        # What takes the steps of both.
        self.stepping = Stepping(device, self.flow, self.suspension, graphs=machine.graphs)

    def _order_of_points(self) -> Literal["longest rows", "small planes"] | None:
        # Coupling takes points along x side by side, and GPUs gain nothing from longer rows.
        if self.table.cells:
            return None
        if self.device.kind == "cpu":
            return "longest rows"
        askew = any(isinstance(opening, TiltedOpening) for opening in self.lattice.openings)
        return "small planes" if askew else None

    def _work_of(self, cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where cells start, on rank 0, and their work in that of points."""
        lattice = self.lattice
        chosen = np.arange(cells.count if self.world.is_root else 0)
        places = np.rint((cells.positions[chosen] * MICRO - lattice.origin) / lattice.spacing)
        vertices = np.array([kind.vertex_count for kind in self.table.cells])
        work = _POINTS_A_VERTEX * vertices[cells.kinds[chosen]]
        last = np.array(lattice.shape) - 1
        return np.clip(places.astype(np.int64), 0, last), work.astype(np.int64)

    def _suspend(
        self, cells: Cells, distances: Callable[[LatticePart, float], Floats]
    ) -> Suspension:
        """Put cells where they start."""
        table = self.table
        kinds = [kind_of(cell_table, table.units) for cell_table in table.cells]
        law, from_walls = None, None
        if table.repulsion.strength_pn > 0:
            law = RepulsionLaw(
                table.repulsion.strength_pn * 1e-12 / table.units.force,
                table.repulsion.range_um / table.spacing_um,
            )
            from_walls = distances(self.part, law.cutoff + FAR_FROM_WALLS)
        suspension = Suspension(
            self.device,
            self.world,
            self.part,
            self.region,
            self.flow,
            kinds,
            kernel=table.delta,
            interval=table.cell_interval,
            repulsion=law,
            distances=from_walls,
        )
        for number, local in enumerate(suspension.kinds):
            vertices = vertices_of(cells, number, local.kind.mesh, self.lattice)
            suspension.ownership.place(local, np.arange(len(vertices)), vertices)
        return suspension

    def start(self) -> None:
        """Let cells push, and mark what is inside of them."""
        if self.suspension is not None:
            self.suspension.start()
            self.mark_inside()

    def layout_of(self, points: slice | NDArray[np.int64]) -> PointFields:
        """Layout of fields at some own points in the lattice."""
        lattice = self.lattice
        x, y, z = lattice.origin.tolist()
        return PointFields(
            self.world,
            self.part.numbers[points],
            lattice.shape,
            origin=(x, y, z),
            spacing=lattice.spacing,
            periodic=lattice.periodic,
        )

    @property
    def points_shape(self) -> tuple[int, int]:
        """Of what :meth:`points` gives: a row for each population, and one of flags where cells are viscous."""
        return DIRECTIONS + (self.table.inside_tau is not None), self.lattice.count

    def points(self) -> np.ndarray:
        """Values that the next step of all points depends on, by their numbers, on rank 0; all ranks call this.

        Populations as :meth:`Fluid.populations` has them, and whether a point is inside of a cell.
        """
        part, world = self.part, self.world
        values = self.fluid.populations()
        if self.table.inside_tau is not None:
            flags = self.device.to_host(self.fluid.inside[: part.owned])
            values = np.concatenate([values, flags[None].astype(values.dtype)])
        order = np.argsort(to_root(world, part.numbers[: part.owned]))
        return np.ascontiguousarray(to_root(world, values.T)[order].T)

    def restore_points(self, values: np.ndarray) -> None:
        """Take over on every rank what :meth:`points` gave."""
        own = self.part.numbers[: self.part.owned]
        mine = values[:, np.searchsorted(self.lattice.runs.numbers(), own)]
        self.fluid.set_populations(mine[:DIRECTIONS])
        if self.table.inside_tau is not None:
            flags = self.device.from_host((mine[DIRECTIONS] != 0).astype(np.uint8))
            self.fluid.inside[: self.part.owned] = flags

    def mark_inside(self) -> None:
        """Flag the points inside of cells where these are of another viscosity."""
        if self.suspension is not None and self.table.inside_tau is not None:
            self.suspension.mark_inside()
