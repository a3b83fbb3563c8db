"""Runs of cases: the simulation, its time loop, checkpoints, outputs and summary; no physics.

Imported by study, checks and commands; imports solvers and all below.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.case.tables import CaseTable, case_from, naming_file, read_case
from haloscope.case.toml_files import Settings, file_or_shipped
from haloscope.device import open_device, require_known
from haloscope.device.interface import Device
from haloscope.device.meters import EnergyMeter, EnergyTally
from haloscope.errors import InputError, counted, imported
from haloscope.exchange.engine import require_suited
from haloscope.exchange.ranks.world import World, open_world, threads_of_rank
from haloscope.io import checkpoint as checkpoints
from haloscope.io.atomic import remove_leftovers, write_json
from haloscope.io.interrupts import Interrupted, handled_by
from haloscope.io.vtk_arrays import pyvista_grid
from haloscope.regions import Profile, SetupPhase
from haloscope.run.checkpointing import restore
from haloscope.run.loop import TimeLoop
from haloscope.run.records import alone_in, make_folder, write_last
from haloscope.run.state import (
    RESULTS,
    Progress,
    RunState,
    StopRequest,
    data_set,
    present_arrays,
    shown,
)
from haloscope.run.summary import (
    ceilings_of_share,
    cut_short,
    divergence,
    energy_used,
    log_least_time,
    not_final,
    note_crowded_cores,
    require_memory,
    summarise,
)
from haloscope.run.tables import data_frame
from haloscope.solvers import registry
from haloscope.solvers.interface import WithCells

_SETTING_UP = SetupPhase("setting up the solver")
_READING = SetupPhase("reading the checkpoint")
_MEASURING = SetupPhase("measuring the memory bandwidth")

__all__ = ["Simulation", "load"]


class Simulation(RunState):
    """A case on its device and ranks, ready to run.

    Parameters
    ----------
    case
        A checked case; :func:`load` makes one from a file.
    name
        Name for output folders; the case file's.
    device
        ``cpu``, ``cuda`` or ``auto`` in place of the case's own; or an opened device.
    world
        The ranks; those that the process was started with by default.

    Attributes
    ----------
    case
        The checked case; ``case.run.steps`` is the value of the key ``run.steps``.
    step
        Steps taken since the start of the case.
    solver
        The solver, with its fields on the device. ``solver.time`` is the physical time in s, None
        of a steady state; ``solver.fields`` holds unit and meaning of each field.
    history
        Rows (step, residuals or energy by name), one for each diagnostic interval.

    Examples
    --------
    >>> import haloscope
    >>> simulation = haloscope.load("cases/cavity-demo.toml", settings={"cavity.nodes": 17})
    >>> summary = simulation.run(steps=100)
    >>> simulation.field("T").shape
    (17, 17, 17)
    """

    def __init__(
        self,
        case: CaseTable,
        *,
        name: str = "case",
        device: str | Device | None = None,
        world: World | None = None,
    ) -> None:
        world = open_world() if world is None else world
        if device is None or isinstance(device, str):
            kind = device or case.machine.device
            threads = case.machine.threads or threads_of_rank(world)
            device = open_device(kind, local_rank=world.local_rank, threads=threads)
        # On one rank nothing is sent, and nothing else would look at it.
        require_suited(case.machine.transport, device.kind)
        require_memory(case, device, world)
        with _SETTING_UP:
            solver = registry.make_solver(case, device, world)
        super().__init__(case, name, device, world, solver)
        for probe in case.output.probes:
            solver.layout.require_inside(f"probe {probe.name}", probe.position)

    def field(self, name: str) -> np.ndarray | None:
        """A whole field on rank 0; None on other ranks. All ranks call this.

        Parameters
        ----------
        name
            One of :attr:`fields`: p (Pa), u, v, w (m/s) and T (K) of the cavity; Ex to Ez (V/m) and
            Hx to Hz (A/m) of Maxwell's equations; u, v, w (m/s) and p (Pa) of blood and flow.
            Cases of Maxwell with ``units = "natural"`` have units of their own.

        Returns
        -------
        ndarray
            (nz, ny, nx) for the cavity, (elements, N + 1, N + 1, N + 1) for Maxwell's equations on
            elements of order N, indexed [element, k, j, i], (points,) for blood and (nodes,) for
            flow.

        Raises
        ------
        InputError
            The solver has no such field.
        """
        if name not in self.solver.fields:
            known = ", ".join(self.solver.fields)
            raise InputError(
                "the solver has no such field", location=f"field {name!r}", allowed=known
            )
        layout = self.solver.layout
        return layout.collect(self.solver.relative(name), 0, layout.shape[0])

    @property
    def fields(self) -> dict[str, np.ndarray | None]:
        """All fields by name, each as by :meth:`field`."""
        return {name: self.field(name) for name in self.solver.fields}

    def points(self) -> NDArray[np.float64] | None:
        """Positions of the values of a field on rank 0; None on other ranks. All ranks call this.

        Returns
        -------
        ndarray of float64
            x, y and z in m along the last axis: the shape of a field and 3, (nz, ny, nx, 3) for
            the cavity, (elements, N + 1, N + 1, N + 1, 3) for Maxwell's equations, (points, 3) for
            blood and (nodes, 3) for flow. ``points()[i]`` is the position of ``field(name)[i]``.
        """
        return self.solver.layout.points()

    def dataset(self) -> Any:
        """All fields of a case on a regular grid (cavity, blood); needs the extra `notebook`.

        Returns
        -------
        xarray.Dataset
            On rank 0; None on other ranks. All ranks call this. A variable for each field with the
            dimensions z, y and x and the attributes `units` and `long_name`; coordinates `x`, `y`
            and `z` in m, `step`, and `time` in s where the solver has a physical time. The grid of
            blood is the bounding box of the vessel, nan outside the lumen. A cavity in two
            dimensions has one plane along z.

        Raises
        ------
        InputError
            The values are on a mesh: use :meth:`field` with :meth:`points`.
        MachineError
            xarray is not installed.
        """
        return data_set(self, self.fields)

    def grid(self) -> Any:
        """All fields as a PyVista grid, for pictures and filters; needs the extra `notebook`.

        Of the cavity it is an image; of blood the bounding box of the vessel as an image, nan
        outside the lumen (``grid.threshold(0.5, scalars="inside", all_scalars=True)`` has the
        grid cells without nan); of flow its
        tetrahedra, with ``zone`` in cells; of Maxwell's equations a Lagrange hexahedron of each
        element, with ``region`` in cells and values interpolated to equally spaced nodes.
        ``grid.plot(scalars="T")`` draws a field.

        Returns
        -------
        pyvista.ImageData or pyvista.UnstructuredGrid
            On rank 0; None on other ranks. All ranks call this. Positions are in m. Point data are
            all :attr:`fields` under their names, and beside them vectors such as ``velocity``,
            (points, 3).

        Raises
        ------
        MachineError
            PyVista is not installed.
        """
        # First of all, so that all ranks refuse and nothing is gathered in vain.
        imported("pyvista", "grid")
        arrays = present_arrays(self)
        return None if arrays is None else pyvista_grid(arrays)

    def cells(self) -> Any:
        """The present cells of a blood run, a row each.

        Returns
        -------
        pandas.DataFrame or dict of ndarray
            On rank 0; None on other ranks. All ranks call this. The columns of ``cells.csv``, each
            (cells,): a data frame if pandas is installed, else arrays by column name.

        Raises
        ------
        InputError
            The case has no cells.
        """
        columns = self._with_cells("cells").cell_columns()
        if columns is None:
            return None
        frame = data_frame(columns)
        return dict(columns) if frame is None else frame

    def membranes(self) -> Any:
        """The membranes of a blood run's cells as a PyVista surface; needs the extra `notebook`.

        Returns
        -------
        pyvista.PolyData
            On rank 0; None on other ranks. All ranks call this. Positions are in m, as of
            :meth:`grid`. Point data are ``velocity`` (m/s) and ``force`` (N, of the membrane on
            the fluid), (points, 3). Each triangle has the ``number`` of its cell and its ``kind``,
            the place of the cell's table among ``blood.cells``, from 0.

        Raises
        ------
        InputError
            The case has no cells.
        MachineError
            PyVista is not installed.
        """
        solver = self._with_cells("membranes")
        imported("pyvista", "membranes")
        arrays = solver.membranes()
        return None if arrays is None else pyvista_grid(arrays)

    def _with_cells(self, location: str) -> WithCells:
        if not isinstance(self.solver, WithCells):
            raise InputError(
                f"{self.solver.name} has no cells", location=location, allowed="cases of blood"
            )
        return self.solver

    def diagnostics(self) -> dict[str, float]:
        """Main numbers of the present state by name, as under `diagnostics` of the summary.

        They are the same on every rank; all ranks call this.
        """
        return self.solver.diagnostics()

    def run(
        self,
        steps: int | None = None,
        *,
        out: str | Path | None = None,
        restart: bool = False,
        progress: Progress | bool | None = None,
        ceilings: bool = True,
        profile: bool = False,
    ) -> dict[str, Any]:
        """Run to the case's last step, to steady state, or until a signal.

        SIGINT and SIGTERM end the steps, not what is written after them; a second Ctrl-C ends
        the run where it is, and leaves a short summary.

        Parameters
        ----------
        steps
            Last step, in place of the case's ``run.steps``.
        out
            Folder for outputs, made when absent; without one nothing is written.
        restart
            Go on from the newest checkpoint in `out`.
        progress
            True: a line with step, rate and time left, in a notebook or a terminal, of runs that
            take longer than a second, and warnings. None: only in a notebook. False: never. Or an
            object with the methods of :class:`haloscope.run.state.Progress`.
        ceilings
            Measure this machine's memory ceilings for the summary.
        profile
            Add the time of each named region to the summary.

        Returns
        -------
        dict
            The summary, as written to ``summary.json``.

        Raises
        ------
        SolutionError
            The solution broke; the last good checkpoint is named. Or it diverged: the residual
            ends far above its first value; all results are written first.
        InputError, MachineError
            A checkpoint does not fit; a file cannot be written.
        Interrupted
            By a second Ctrl-C.
        """
        begun, out = self.step, None if out is None else Path(out)
        stop = StopRequest()
        with handled_by(stop.note), contextlib.ExitStack() as held:
            shows = held.enter_context(shown(progress, self.world))
            if out is not None and self.world.is_root:
                make_folder(out)
                if held.enter_context(alone_in(out)):
                    _clear(out, shows)
            try:
                return self._run(
                    steps, out, restart, shows, stop, ceilings=ceilings, profile=profile
                )
            except Interrupted as interrupted:
                if out is not None and self.world.is_root:
                    write_json(out / "summary.json", cut_short(self, begun, out, interrupted))
                raise

    def _run(
        self,
        steps: int | None,
        out: Path | None,
        restart: bool,
        progress: Progress,
        stop: StopRequest,
        *,
        ceilings: bool,
        profile: bool,
    ) -> dict[str, Any]:
        if out is not None:
            # All ranks work these out; a rank that fails later writes its checkpoint alone.
            self.grid_marks()
        if restart:
            if out is None:
                raise InputError("a restart needs the folder of the checkpoint", remedy="set out")
            with _READING:
                restore(self, out, progress)
        end = self.solver.last_step if steps is None else steps
        begun = self.step
        if begun > end:
            raise InputError(
                f"the state is at step {begun}, past the last step {end}",
                remedy=f"set --steps or run.steps to more than {begun} (steps count from the start of the "
                "case), or a later end time in the case",
            )
        measured = None
        if ceilings:
            with _MEASURING:
                measured = ceilings_of_share(self)
        if measured is not None:
            note_crowded_cores(self, progress)
        if measured is not None and end > begun:
            log_least_time(self, end - begun, measured, progress)
        meter = EnergyMeter(self.device)
        tally = EnergyTally(meter)
        loop = TimeLoop(self, out, stop, tally, progress)
        listener = Profile() if profile else None
        with listener or contextlib.nullcontext():
            converged = loop.run(end)
        regions = listener.table() if listener else None
        summary = summarise(self, begun, converged, measured, regions)
        summary["energy"] = energy_used(self, meter, tally, self.step - begun)
        with RESULTS:
            results = self.solver.finish(out, self.probe_rows)
        summary.update(results.summary)
        summary["headline"] = [*summary["headline"], *results.lines]
        ended_by = stop.name if stop.reached(self.world) else None
        diverged = divergence(self, f"the results in {out} are" if out else "this is")
        unfinished = not_final(self, end, converged=converged, stopped_by=ended_by)
        summary["notices"] += [*results.notices, *unfinished]
        summary["diverged"] = diverged is not None
        failure = None if out is None else write_last(self, out, summary, results.files)
        self._close(out, summary, stop, loop)
        if failure is not None:
            raise failure
        if diverged is not None:
            raise diverged
        return summary

    def _close(
        self, out: Path | None, summary: dict[str, Any], stop: StopRequest, loop: TimeLoop
    ) -> None:
        """Note a signal that came after the last step, too, and write the summary."""
        stopped = stop.reached(self.world)
        summary["stopped_by"] = stop.name
        if out is None:
            return
        if stopped and self.last_checkpoint != checkpoints.checkpoint_path(out, self.step):
            loop.save(out)
        if self.last_checkpoint is not None:
            summary["files"]["checkpoint"] = str(self.last_checkpoint)
        if self.world.is_root:
            write_json(out / "summary.json", summary)


def _clear(out: Path, progress: Progress) -> None:
    """Remove what runs that were killed while they wrote have left in a folder."""
    sizes = remove_leftovers(out)
    if sizes:
        progress.line(
            f"removed {counted(len(sizes), 'partial file')} ({sum(sizes) / 1e6:.3g} MB) that a "
            f"killed run left in {out}"
        )


def load(
    case: str | Path | Mapping[str, Any],
    *,
    settings: Settings = (),
    device: str | None = None,
    world: World | None = None,
) -> Simulation:
    """Make a simulation from a case file, a shipped case or a dict.

    Parameters
    ----------
    case
        Path of a TOML case file; the name of a shipped case if there is no such file (``haloscope
        cases`` lists them); or the tables of a case as a dict with the keys of such a file.
        Paths of meshes in it are relative to the current folder.
    settings
        Values in place of the case's own: a dict of dotted keys, ``{"cavity.nodes": 33}``, or a
        list of texts as after ``--set``, ``["cavity.nodes=33"]``. Items of lists are numbered from
        0: ``{"blood.cells.0.hematocrit": 0.3}``.
    device
        ``cpu``, ``cuda`` or ``auto`` in place of the case's own.
    world
        The ranks; those that the process was started with by default.

    Returns
    -------
    Simulation
        Set up, at its first step.

    Raises
    ------
    InputError
        The case or a setting is wrong: names the key, the file and the allowed values.
    MachineError
        The machine lacks something.

    Examples
    --------
    >>> import haloscope
    >>> tables = {"solver": "cavity", "cavity": {"nodes": 17}}
    >>> haloscope.load(tables, settings={"run.steps": 10}).case.run.steps
    10
    """
    if device is not None:
        require_known(device)
    if isinstance(case, Mapping):
        name, source = "case", "case"
        checked = case_from(case, settings, registry.case_model)
    elif isinstance(case, str | os.PathLike):
        path = file_or_shipped(Path(case))
        source = str(path)
        # A file's name may be no text; what is written is.
        name = os.fsencode(path.stem).decode(errors="replace")
        checked = read_case(path, settings, registry.case_model)
    else:
        raise InputError(
            f"it is of the type {type(case).__name__}",
            location="case",
            allowed="the path of a case file or a dict of its tables",
        )
    with naming_file(source):
        return Simulation(checked, name=name, device=device, world=world)
