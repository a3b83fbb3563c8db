"""The energy of a run after its sources have ended: it may fall, but not grow."""

from __future__ import annotations

import math

from haloscope.errors import SolutionError

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
_REMEDY = 'take maxwell.curl = "covariant" and flux = "upwind", lower maxwell.cfl, or mend the mesh'


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
                    f"the energy has grown by a factor of {growth:.3g} while time doubled, and steady "
                    "sources give at most a factor of 4: the solution is unstable"
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
                f"the energy has grown to {energy / reference:.3g} times its value when the sources "
                "ended, though nothing drives the fields: the solution is unstable"
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
                "warning: the energy is 0 at all times: the sources send nothing; look at their moments "
                "and densities"
            ]
        growth = self._growth_of_octaves()
        if growth > _UNSTABLE:
            return [
                f"warning: the energy grows by a factor of {growth:.4g} while time doubles, and steady "
                f"sources give at most a factor of 4: the solution is unstable; {_REMEDY}"
            ]
        if self._growth <= self._doubtful:
            return []
        return [
            f"warning: the energy has grown by a factor of {self._growth:.4g} after the sources "
            f"ended, though nothing drives the fields: the solution is unstable; {_REMEDY}"
        ]
