"""What a Maxwell case asks to be worked out of its run, as the solver hands it on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError, SolutionError
from haloscope.solvers.interface import Results
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.probe_spectra import ProbeSpectra
from haloscope.solvers.maxwell.radiation import Radiation
from haloscope.solvers.maxwell.radiation_files import far_field_results
from haloscope.solvers.maxwell.shares import SetUp
from haloscope.solvers.maxwell.waveform_spans import sources_end


class RunResults:
    """Spectra at probes and the far field, where the case asks for them."""

    def __init__(self, case: MaxwellCase, set_up: SetUp) -> None:
        self._case, self._world = case, set_up.world
        world, added = set_up.world, set_up.added
        product = (added.permittivity * added.permeability).max(initial=0.0)
        slowness = math.sqrt(world.largest(float(product)))
        places = set_up.part.mesh.coordinates.reshape(-1, 3)
        ends = np.stack([places, -places]).max(axis=1, initial=-math.inf)
        widths = np.array([world.largest(float(end)) for end in ends.ravel()]).reshape(2, 3).sum(0)
        self.across = slowness * float(np.linalg.norm(widths))
        """Longest time in which a wave crosses the mesh."""
        self._spectra: ProbeSpectra | None = None
        self.radiation: Radiation | None = None
        """The far field; None where none is asked for."""
        self.notices: list[str] = []
        """Warnings of the set-up."""
        if case.maxwell.far_field is not None:
            self.radiation = Radiation(case.maxwell, set_up)
            self.notices += self.radiation.notices

    def set_step(self, dt: float, last_step: int) -> None:
        """Know the time step, in the units of the case, and where the run ends."""
        table = self._case.maxwell
        self._last_step = last_step
        if table.spectrum is not None:
            _, currents, waves = table.additions()
            ends = sources_end(currents, waves, self.across) / table.speed
            self._spectra = ProbeSpectra(self._case, dt, last_step, ends)
        if self.radiation is not None:
            self.radiation.set_step(dt * table.speed, last_step)

    def advance(self, step: int, count: int, take: Callable[[int], None], fields: Array) -> None:
        """Take steps, with stops for samples."""
        if self.radiation is None:
            take(count)
            return
        interval, end = self.radiation.interval, step + count
        while step < end:
            target = min(end, (step // interval + 1) * interval)
            take(target - step)
            step = target
            if step % interval == 0:
                self.radiation.sample(fields, step)

    def extras(self) -> Mapping[str, NDArray[np.generic]]:
        """What a checkpoint has to hold, whole on rank 0."""
        return {} if self.radiation is None else self.radiation.extras()

    def restore(self, extras: Mapping[str, NDArray[np.generic]], step: int) -> None:
        """Go on from a checkpoint."""
        if self.radiation is not None:
            self.radiation.restore(extras, step)

    def finish(
        self,
        out: Path | None,
        probes: Mapping[str, Sequence[Sequence[float]]],
        fields: Array,
        step: int,
    ) -> Results:
        """See :class:`haloscope.solvers.interface.Solver`; with the fields and steps at the end."""
        results = []
        title = self._case.title
        if self._spectra is not None:
            folder = out if self._world.is_root else None
            results.append(self._spectra.finish(folder, probes, title, step))
        if self.radiation is not None:
            results.append(self._far_field(self.radiation, out, fields, step))
        return Results(
            {key: value for result in results for key, value in result.summary.items()},
            {key: value for result in results for key, value in result.files.items()},
            [line for result in results for line in result.lines],
            [notice for result in results for notice in result.notices],
        )

    def _far_field(
        self, radiation: Radiation, out: Path | None, fields: Array, step: int
    ) -> Results:
        title = self._case.title or "Far field"
        table, root = self._case.maxwell, self._world.is_root
        unfinished: list[str] = []
        try:
            radiation.require_ended(step)
            # Fields of charges stay, however long a run is: they have a line of their own.
            if not radiation.leaves_charges:
                unfinished = radiation.unfinished(fields, step, self._last_step)
            results = far_field_results(radiation, table, out, root, title)
        except (InputError, SolutionError) as error:
            # The run itself is good: its other results are kept.
            notices = [*unfinished, f"warning: no far field: {error}"]
            return Results({"far_field": []}, notices=notices)
        notices = [*unfinished, *results.notices]
        return Results(results.summary, results.files, results.lines, notices)
