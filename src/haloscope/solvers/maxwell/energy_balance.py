"""The energy of a run after its sources have ended: it may fall, but not grow."""

from __future__ import annotations

import math

from haloscope.errors import SolutionError

# Growth of the energy that is warned of: by rounding and the method's own oscillations it is less;
# media with memory and absorbing layers give energy back to the fields.
_DOUBTFUL, _DOUBTFUL_WITH_MEMORY = 1.01, 4.0
# Below this part of what the sources have given, energy is rounding.
_ROUNDING = 1e-9
# Growth at which a run is given up.
_UNSTABLE = 100.0


class EnergyBalance:
    """Follows the energy of a run.

    Parameters
    ----------
    sources_end
        Time after which nothing drives the fields, in natural units; inf: never.
    memory
        Whether a medium or an absorbing layer keeps energy of its own.
    """

    def __init__(self, sources_end: float, *, memory: bool) -> None:
        self._sources_end = sources_end
        self._doubtful = _DOUBTFUL_WITH_MEMORY if memory else _DOUBTFUL
        self._largest_before = 0.0
        self._first = math.nan
        self._least = math.inf
        self._growth = 1.0

    def add(self, time: float, energy: float) -> None:
        """Take the energy at a time; times ascend.

        Raises
        ------
        SolutionError
            It is far above all that the sources have given.
        """
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

    def warnings(self) -> list[str]:
        """A line where the energy has grown."""
        if self._growth <= self._doubtful:
            return []
        return [
            f"warning: the energy has grown by a factor of {self._growth:.4g} after the sources "
            "ended, though nothing drives the fields: the solution is unstable; take maxwell.curl = "
            '"covariant" and flux = "upwind", lower maxwell.cfl, or mend the mesh'
        ]
