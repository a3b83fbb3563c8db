"""Results that a Maxwell case asks for, as the solver passes them on, and the balance of energy."""

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
from haloscope.solvers.maxwell.meshes import SetUp
from haloscope.solvers.maxwell.outputs.probe_spectra import ProbeSpectra
from haloscope.solvers.maxwell.outputs.radiation import Radiation
from haloscope.solvers.maxwell.outputs.radiation_files import far_field_results
from haloscope.solvers.maxwell.terms.additions import sources_end

# Growth of the energy that is warned of: by rounding and the method's own oscillations it is less;
# media with memory and absorbing layers give energy back to the fields.
_DOUBTFUL, _DOUBTFUL_WITH_MEMORY = 1.01, 4.0
# Below this part of what the sources have given, energy is rounding.
_ROUNDING = 1e-9
# Growth at which a run is given up: after the sources, and while time doubles under sources that never
# end. The latter is warned of from _UNSTABLE on: fields grow in proportion to time at most, as in a
# cavity at its resonance.
_UNSTABLE, _UNSTABLE_IF_DRIVEN = 100.0, 1e4
# Energies before that such growth is counted from: a single one may be that of a beat's node.
_FEWEST_SAMPLES = 4
_REMEDY = (
    'set maxwell.curl = "covariant" and flux = "upwind", lower maxwell.cfl, or repair the mesh'
)


class EnergyBalance:
    """Follows the energy of a run."""

    def __init__(
        self, sources_end: float, *, memory: bool, driven: bool = False, steady_from: float = 0.0
    ) -> None:
        self._sources_end = sources_end
        self._driven, self._steady_from = driven, steady_from
        self._octaves: dict[int, tuple[int, float]] = {}
        self._latest, self._largest = 0.0, 0.0
        self._doubtful = _DOUBTFUL_WITH_MEMORY if memory else _DOUBTFUL
        self._largest_before = 0.0
        self._first = math.nan
        self._least = math.inf
        self._growth = 1.0

    def add(self, time: float, energy: float) -> None:
        """Take the energy at a time; times ascend."""
        self._latest, self._largest = time, max(self._largest, energy)
        if math.isinf(self._sources_end) and time > 0 and time >= self._steady_from:
            octave = math.floor(math.log2(time / (self._steady_from or 1.0)))
            count, largest = self._octaves.get(octave, (0, 0.0))
            self._octaves[octave] = (count + 1, max(largest, energy))
            growth = self._growth_of_octaves()
            if growth > _UNSTABLE_IF_DRIVEN:
                raise SolutionError(
                    f"the solution is unstable: the energy has grown by a factor of {growth:.3g} while time "
                    "doubled",
                    allowed="a factor of 4 at most with steady sources",
                )
        if time < self._sources_end:
            self._largest_before = max(self._largest_before, energy)
            return
        if math.isnan(self._first):
            self._first = energy
        reference = max(self._first, self._largest_before)
        self._least = min(self._least, max(energy, _ROUNDING * reference))
        if self._least > 0:
            self._growth = max(self._growth, energy / self._least)
        if reference > 0 and energy > _UNSTABLE * reference:
            raise SolutionError(
                f"the solution is unstable: the energy has grown to {energy / reference:.3g} times its value "
                "when the sources ended, though nothing drives the fields",
            )

    def _growth_of_octaves(self) -> float:
        """Largest energy while time doubles over the largest before, where that is of some samples."""
        growth, before, count = 0.0, 0.0, 0
        for octave in sorted(self._octaves):
            samples, largest = self._octaves[octave]
            if count >= _FEWEST_SAMPLES and before > 0:
                growth = max(growth, largest / before)
            before, count = max(before, largest), count + samples
        return growth

    def warnings(self) -> list[str]:
        """A line where the energy has grown, or stayed 0 in spite of sources."""
        if self._driven and self._latest > 0 and self._largest == 0:
            return [
                "warning: the energy is 0 at all times, so the sources radiate nothing; check their moments "
                "and densities"
            ]
        growth = self._growth_of_octaves()
        if growth > _UNSTABLE:
            return [
                f"warning: the solution is unstable: the energy grows by a factor of {growth:.4g} while time "
                f"doubles (at most 4 with steady sources); {_REMEDY}"
            ]
        if self._growth <= self._doubtful:
            return []
        return [
            f"warning: the solution is unstable: the energy has grown by a factor of {self._growth:.4g} "
            f"after the sources ended, though nothing drives the fields; {_REMEDY}"
        ]


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
        """State for a checkpoint, whole on rank 0."""
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
        return Results.joined(results)

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
