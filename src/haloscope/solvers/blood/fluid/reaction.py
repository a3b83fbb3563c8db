"""Openings whose pressure follows the flow through them, on the device: sums of what passed, laws, new densities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.program import MAIN, SIDE, Field, Step
from haloscope.device.targets import KernelFile
from haloscope.regions import Region

Floats = NDArray[np.float64]
OUTLETS = Region("outlets that react")
NAME = "reacting outlets"
"""Of the state in checkpoints."""
STATE = 5
"""Numbers of an outlet."""

_SOURCE = Path(__file__).with_name("reaction.cpp")
# As in reaction.cpp.
_LANES, _PIECES, _MOST = 256, 16, 64
# Bits behind the point of what passes a point or a link.
_FRACTION = 40


@dataclass(frozen=True)
class Reaction:
    """How the pressure of one opening follows its flow, in lattice units."""

    number: int  # Of the opening
    # Factors of c and of the flow rate in c after a step, for the c of a Windkessel.
    held: float = 0.0
    gain: float = 0.0
    proximal: float = 0.0
    # Pressure outside; with a share of the outflow the reference pressure.
    outside: float = 0.0
    impedance: float = 1.0  # rho c_s over the area
    # Of the fluid, and c, at the start.
    start: float = 0.0
    held_at_start: float = 0.0
    share: float | None = None  # Of the outflow; None: a Windkessel
    # Of the impedance: pressure that a share of the outflow takes on for what its flow lacks.
    eagerness: float = 0.1

    def law(self, of_mass: bool) -> tuple[float, ...]:
        """Rows of `laws` of reaction.cpp."""
        damping = 1.0 / (1.0 + (self.proximal + self.gain) / self.impedance)
        share = -1.0 if self.share is None else self.share
        eager = self.eagerness * self.impedance
        first = (self.held, self.gain, self.proximal, self.outside, damping, self.start)
        return (*first, share, eager, float(of_mass))


def kernel_file(real: str) -> KernelFile:
    """The kernels; `real`: type of the fluid."""
    return KernelFile(_SOURCE, {"real": real})


class ReactingOutlets:
    """All openings of a fluid that react; all ranks make one together.

    `places`: of the outlets in `passed`, for each; `of_mass`: whether mass passes there, for each; `total`: sum of
    integers over ranks; None: there is one.
    """

    def __init__(
        self,
        device: Device,
        real: str,
        reactions: Sequence[Reaction],
        places: Sequence[NDArray[np.integer[Any]]],
        of_mass: Sequence[bool],
        drive: Array,
        passed: Array,
        total: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None,
    ) -> None:
        count = len(reactions)
        assert 0 < count <= _MOST
        self._device, self.count, self._total = device, count, total
        self._drive = drive
        file = kernel_file(real)
        self._kernels = {
            name: device.kernel(file.source, name, file.constants)
            for name in ("sum_passed", "react")
        }
        give = device.from_host
        self.numbers = np.array([one.number for one in reactions], np.int32)
        laws = np.array([one.law(mass) for one, mass in zip(reactions, of_mass, strict=True)])
        starts = np.concatenate([[0], np.cumsum([len(one) for one in places])]).astype(np.int32)
        listed = np.concatenate([np.asarray(one, np.int32) for one in places])
        self._sums = Field("sums", device.zeros((count * _PIECES,), np.int64), whole=("all",))
        self._totals = self._sums
        if total is not None:
            self._totals = Field(
                "totals", device.zeros((count * _PIECES,), np.int64), whole=("all",)
            )
        # The sums on the host, and what waits until they are there.
        self._host = device.staging(count * _PIECES, np.int64)
        self._copied: Callable[[], None] = device.synchronise
        self._coming = device.from_host(np.ones(1))
        state = np.zeros((STATE, count))
        state[0] = [one.held_at_start for one in reactions]
        state[1] = [one.outside + one.held_at_start for one in reactions]
        state[3] = [one.start for one in reactions]
        self._state = give(state.ravel())
        self._set_densities(state)
        self._sum = {
            "passed": passed,
            "places": give(listed if len(listed) else np.zeros(1, np.int32)),
            "starts": give(starts),
            "outlets": count,
            "scale": 2.0**_FRACTION,
            "extent": (count * _PIECES * _LANES,),
            "block": (_LANES,),
        }
        self._react = {
            "outlets": count,
            "scale": 2.0**_FRACTION,
            "laws": give(np.ascontiguousarray(laws.T).ravel()),
            "numbers": give(self.numbers),
            "coming": self._coming,
            "state": self._state,
            "drive": drive,
            "extent": (_MOST,),
            "block": (_MOST,),
        }

    def record_sums(self, step: Step) -> None:
        """Sum what passed, once the openings are done."""
        step.kernel(
            self._kernels["sum_passed"],
            on=SIDE,
            region=OUTLETS,
            **self._sum,
            sums=self._sums["all"],
        )

        if self._total is not None:
            # On its way while points that are in no opening are taken.
            step.host("copy of sums", self._copy, reads=[self._sums], writes=[], on=SIDE)

    def record_laws(self, step: Step) -> None:
        """Set the densities of the next step; on several ranks the host adds their sums up."""
        if self._total is not None:
            step.host("sum over ranks", self._add_up, reads=[self._sums], writes=[self._totals])
        step.kernel(
            self._kernels["react"], on=MAIN, region=OUTLETS, **self._react, sums=self._totals["all"]
        )

    def _copy(self) -> None:
        self._copied = self._device.copy_out(self._sums.array, self._host, self._device.side)

    def _add_up(self) -> None:
        assert self._total is not None
        self._copied()
        sums = self._host.reshape(self.count, _PIECES)
        total = self._total(sums.sum(axis=1))
        sums[:] = 0
        sums[:, 0] = total
        self._device.copy_in(self._totals.array, self._host)

    def come_up(self, share: float) -> None:
        """Set the share of the pressures that has come up in the step after the next one."""
        self._coming[...] = share

    def values(self) -> Floats:
        """State on the host: c, pressure of the law, flow rate, pressure set, and what passed last, (5, outlets)."""
        return np.array(self._device.to_host(self._state), np.float64).reshape(STATE, self.count)

    def state(self) -> Mapping[str, Floats]:
        """State for a checkpoint."""
        return {NAME: self.values()}

    def restore(self, values: Floats) -> None:
        """Take over what :meth:`values` gave."""
        self._state[...] = self._device.from_host(np.ascontiguousarray(values).ravel())
        self._set_densities(values)

    def _set_densities(self, values: Floats) -> None:
        for number, pressure in zip(self.numbers.tolist(), values[3].tolist(), strict=True):
            self._drive[number] = 1 + 3 * pressure
