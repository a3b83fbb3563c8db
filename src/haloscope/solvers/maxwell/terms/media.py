"""Media that conduct and media with memory (Drude, Lorentz, Debye), and their terms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haloscope.device.interface import Array
from haloscope.errors import InputError
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.terms import Floats, Integers, Setting, StatefulTerm

SOURCE = Path(__file__).with_name("media.cpp")

_SAMPLES = 4000
_DECADES = 3.0
# A gain that is smaller than this share of the response is rounding.
_LEAST_GAIN = 1e-12


@dataclass(frozen=True)
class Drude:
    """Free charges: adds ``-plasma^2 / (w (w + i collisions))`` to the permittivity."""

    # Radians a unit of time; reference form dJ = -a J + b E with a = collision_rate and b =
    # plasma_frequency^2.
    plasma_frequency: float
    collision_rate: float = 0.0
    states: ClassVar[int] = 1
    conductance: ClassVar[float] = 0.0

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """The a, b, c, w of media.cpp."""
        return self.collision_rate, 0.0, self.plasma_frequency**2, 1.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Frequencies at which something happens."""
        return self.plasma_frequency, self.collision_rate

    def susceptibility(self, w: NDArray[Any]) -> NDArray[np.complex128]:
        """Addition to the relative permittivity, for exp(-i w t)."""
        return np.asarray(-(self.plasma_frequency**2) / (w * (w + 1j * self.collision_rate)))


@dataclass(frozen=True)
class Lorentz:
    """Bound charges: adds ``strength w0^2 / (w0^2 - i damping w - w^2)`` to the permittivity."""

    strength: float  # What it adds at rest
    # w0 and the width of the line, radians a unit of time; reference form dJ = -a J - b P + c E, dP
    # = J with a = damping, b = w0^2, c = strength w0^2.
    resonance: float
    damping: float = 0.0
    states: ClassVar[int] = 2
    conductance: ClassVar[float] = 0.0

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """The a, b, c, w of media.cpp."""
        return self.damping, self.resonance**2, self.strength * self.resonance**2, 1.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Frequencies at which something happens."""
        return self.resonance, self.damping, self.resonance * abs(self.strength) ** 0.5

    def susceptibility(self, w: NDArray[Any]) -> NDArray[np.complex128]:
        """Addition to the relative permittivity, for exp(-i w t)."""
        b = self.resonance**2
        return np.asarray(self.strength * b / (b - 1j * self.damping * w - w * w))


@dataclass(frozen=True)
class Debye:
    """Charges that relax: adds ``strength / (1 - i w relaxation_time)`` to the permittivity."""

    strength: float  # What it adds at rest
    relaxation_time: float  # Time
    states: ClassVar[int] = 1

    @property
    def conductance(self) -> float:
        """The part of its current that goes with the field: J = conductance E - P / time."""
        return self.strength / self.relaxation_time

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """The a, b, c, w of media.cpp; the state is the polarisation P."""
        rate = 1 / self.relaxation_time
        return rate, 0.0, self.strength * rate, -rate

    @property
    def rates(self) -> tuple[float, ...]:
        """Frequencies at which something happens."""
        return (1 / self.relaxation_time,)

    def susceptibility(self, w: NDArray[Any]) -> NDArray[np.complex128]:
        """Addition to the relative permittivity, for exp(-i w t)."""
        return np.asarray(self.strength / (1 - 1j * w * self.relaxation_time))


Pole = Drude | Lorentz | Debye


@dataclass(frozen=True)
class Medium(Material):
    """A medium that may conduct and have memory."""

    # J = sigma E, and its like for H; in natural units (times the impedance of vacuum, and over
    # it): an inverse length.
    conductivity: float = 0.0
    magnetic_conductivity: float = 0.0
    poles: tuple[Pole, ...] = ()  # Each adds to the permittivity

    def __post_init__(self) -> None:
        """Refuse a medium whose poles together give energy to a wave of some frequency."""
        # Lines of no width neither take nor give energy beside their resonance.
        lines = [pole for pole in self.poles if isinstance(pole, Lorentz) and pole.damping == 0]
        _refuse_lines_of_gain(lines)
        poles = [pole for pole in self.poles if pole not in lines]
        rates = [rate for pole in poles for rate in pole.rates if rate > 0]
        if not rates:
            return
        low, high = math.log10(min(rates)) - _DECADES, math.log10(max(rates)) + _DECADES
        near = [rate * (1 + np.linspace(-0.1, 0.1, 201)) for rate in rates]
        w = np.concatenate([np.logspace(low, high, _SAMPLES), *near])
        gain = np.stack([pole.susceptibility(w).imag for pole in poles])
        loss = gain.sum(axis=0) + self.conductivity / w
        size = np.abs(gain).sum(axis=0) + self.conductivity / w
        bad = np.flatnonzero(loss < -_LEAST_GAIN * size)
        if len(bad):
            at = bad[np.argmin(loss[bad])]
            raise InputError(
                "the poles of the medium give energy to waves of "
                f"{w[at] / max(rates):.4g} times the highest of their angular frequencies and rates "
                f"(imaginary permittivity {loss[at]:.3g}), so that fields grow without bound",
                location="poles",
                remedy="make the strengths positive or add loss there",
            )

    @property
    def plain(self) -> bool:
        """Whether permittivity and permeability say it all."""
        return not (self.conductivity or self.magnetic_conductivity or self.poles)

    @property
    def singles(self) -> tuple[Pole, ...]:
        """Poles with one state."""
        return tuple(pole for pole in self.poles if pole.states == 1)

    @property
    def pairs(self) -> tuple[Pole, ...]:
        """Poles with two states, J and P."""
        return tuple(pole for pole in self.poles if pole.states == 2)

    @property
    def constants(self) -> dict[str, int]:
        """Constants of the kernel that its poles decide."""
        return {"SINGLES": len(self.singles), "PAIRS": len(self.pairs)}

    @property
    def states(self) -> int:
        """States a component and node: those of the first kind, then J and P of each other."""
        return sum(pole.states for pole in self.poles)

    @property
    def electric_rate(self) -> float:
        """Share of E that is lost a unit of time at once."""
        conductance = self.conductivity + sum(pole.conductance for pole in self.poles)
        return conductance / self.permittivity

    @property
    def magnetic_rate(self) -> float:
        """Share of H that is lost a unit of time."""
        return self.magnetic_conductivity / self.permeability

    def permittivity_at(self, w: ArrayLike) -> NDArray[np.complex128]:
        """Complex relative permittivity at angular frequencies, for exp(-i w t)."""
        w = np.asarray(w, np.complex128)
        permittivity = self.permittivity + 1j * self.conductivity / w
        return np.asarray(permittivity + sum(pole.susceptibility(w) for pole in self.poles))

    def matrix(self) -> Floats:
        """Rates of change of E and the states at a node where curl H vanishes."""
        rates = np.zeros((1 + self.states, 1 + self.states))
        rates[0, 0] = -self.electric_rate
        at = 1
        for pole in (*self.singles, *self.pairs):
            a, b, c, w = pole.numbers
            rates[0, at] = -w / self.permittivity
            rates[at, 0], rates[at, at] = c, -a
            if pole.states == 2:
                rates[at, at + 1], rates[at + 1, at] = -b, 1.0
            at += pole.states
        return rates

    @property
    def fastest(self) -> float:
        """Largest magnitude of an eigenvalue that it adds; the curl's own come on top."""
        return float(max(np.abs(np.linalg.eigvals(self.matrix())).max(), self.magnetic_rate))


def _refuse_lines_of_gain(lines: Sequence[Lorentz]) -> None:
    """Refuse poles without damping that give energy at their resonance."""
    for line in lines:
        strength = sum(one.strength for one in lines if one.resonance == line.resonance)
        if strength < 0:
            raise InputError(
                "out of range for a Lorentz pole without damping, since the medium would be unstable",
                location=f"Lorentz pole: strength = {strength:g}",
                allowed="a number 0 or more",
            )


def _medium_term(
    setting: Setting, medium: Medium, elements: Integers, beyond: Array, beyond_at: Integers
) -> StatefulTerm:
    """Elements of one medium."""
    poles = (*medium.singles, *medium.pairs)
    numbers = np.array([pole.numbers for pole in poles]).reshape(-1, 4)
    numbers[:, 3] /= medium.permittivity
    width = 3 * medium.states
    states, steps = (setting.zeros(len(elements) * width * setting.nodes) for _ in range(2))
    arguments = {
        "states": states,
        "steps": steps,
        "beyond": beyond,
        "elements": setting.put(elements, np.int64),
        "beyond_at": setting.put(beyond_at, np.int64),
        "count": len(elements),
        "poles": setting.put(numbers),
        "electric_rate": medium.electric_rate,
        "magnetic_rate": medium.magnetic_rate,
        **setting.blocks(len(elements), 3 * setting.nodes),
    }
    return StatefulTerm(
        f"medium_{width}",
        setting.kernel(SOURCE, "media", **medium.constants),
        arguments,
        ("fields", "increments", "dt"),
        {"rka": LSERK4.a, "rkb": LSERK4.b},
        setting,
        elements,
        [(states, steps)],
        width,
    )


def media_terms(
    setting: Setting,
    media: Mapping[int, Medium],
    regions: NDArray[np.integer],
    beyond: Array,
    beyond_at: Integers,
) -> list[StatefulTerm]:
    """A term for each medium that needs one; regions of equal media share it."""
    by_medium: dict[Medium, list[int]] = {}
    for region, medium in media.items():
        if not medium.plain:
            by_medium.setdefault(medium, []).append(region)
    result = []
    for medium, own in by_medium.items():
        elements = np.flatnonzero(np.isin(regions, own))
        if len(elements):
            result.append(_medium_term(setting, medium, elements, beyond, beyond_at[elements]))
    return result
