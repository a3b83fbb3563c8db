"""Walls that heat and cool the fluid, and the temperature difference that drives the flow.

Walls are heated in one of two ways. Walls named "hot" and "cold" lie symmetrically about the
reference temperature, and their difference follows from the Rayleigh number or is given in kelvin.
Walls in kelvin define the difference themselves. A case that mixes the two ways so that they
contradict each other is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from haloscope.case.tables import CaseFault
from haloscope.mesh.blocks import Side

# Points along each axis at which a wall's expression is evaluated for its range.
_MOST_SAMPLES = 257
# Relative to the temperatures: below this two of them are one, but for rounding.
_EQUAL = 1e-12

Temperature = float | str


@dataclass(frozen=True)
class WallRange:
    """Temperatures of one wall in K."""

    side: Side  # The wall
    # Of its temperature over the wall.
    lowest: float
    mean: float
    highest: float


NAMED_TEMPERATURES = ("hot", "cold", "adiabatic")
"""Words that a wall's temperature may be, in place of a number or an expression."""


def is_in_kelvin(temperature: Temperature) -> bool:
    """Whether a wall's temperature is a number or an expression."""
    return temperature not in NAMED_TEMPERATURES


def named_walls(temperatures: Mapping[str, Temperature], name: str) -> list[str]:
    """Keys of the walls with a temperature of this name."""
    return [wall for wall, temperature in temperatures.items() if temperature == name]


def kelvin_walls(temperatures: Mapping[str, Temperature]) -> list[str]:
    """Keys of the walls with a number or an expression."""
    return [wall for wall, temperature in temperatures.items() if is_in_kelvin(temperature)]


def walls_define_difference(temperatures: Mapping[str, Temperature]) -> bool:
    """Whether walls in kelvin, and not the Rayleigh number, define the difference."""
    return bool(kelvin_walls(temperatures)) and not (
        named_walls(temperatures, "hot") and named_walls(temperatures, "cold")
    )


def sample_points(
    side: Side, size: tuple[float, float, float], nodes: tuple[int, int, int]
) -> dict[str, np.ndarray]:
    """Coordinates on a wall, shapes that broadcast to (nz, ny, nx); at most 257 along an axis."""
    where = {}
    for axis, name in enumerate("xyz"):
        if axis == side.axis:
            line = np.array([0.0 if side.direction < 0 else size[axis]])
        else:
            line = np.linspace(0.0, size[axis], min(nodes[axis], _MOST_SAMPLES))
        shape = [1, 1, 1]
        shape[2 - axis] = len(line)
        where[name] = line.reshape(shape)
    return where


def require_consistent(
    temperatures: Mapping[str, Temperature],
    ranges: Mapping[str, WallRange],
    rayleigh: float | None,
    difference: float | None,
    hot_and_cold: tuple[float, float],
) -> None:
    """Refuse wall temperatures that contradict each other or the Rayleigh number.

    `ranges`: of the walls in kelvin; `hot_and_cold`: temperatures of walls named "hot" and "cold"
    in K.
    """
    hot, cold = named_walls(temperatures, "hot"), named_walls(temperatures, "cold")
    kelvin = kelvin_walls(temperatures)
    if kelvin and bool(hot) != bool(cold):
        name, wall = ("hot", hot[0]) if hot else ("cold", cold[0])
        raise CaseFault(
            f"other walls are in kelvin: {_keys(temperatures, kelvin)}",
            location=f'walls.{wall}.temperature = "{name}"',
            remedy='give all of these walls in kelvin, or name one "hot" and one "cold"',
        )
    key = "rayleigh" if rayleigh else "temperature_difference"
    value = rayleigh or difference
    if kelvin and not hot:
        lowest, highest = span_of(ranges.values())
        span = highest - lowest
        same = (
            not rayleigh and difference is not None and abs(difference - span) <= _EQUAL * highest
        )
        if value and not same:
            raise CaseFault(
                f"walls in kelvin ({_keys(temperatures, kelvin)}) define the temperature difference "
                f"of {span:.6g} K",
                location=f"{key} = {value:g}",
                remedy=f'remove cavity.{key}, or name one wall "hot" and one "cold"',
            )
        return
    if kelvin:
        low, high = hot_and_cold[1], hot_and_cold[0]
        slack = _EQUAL * high
        for wall in kelvin:
            if ranges[wall].lowest < low - slack or ranges[wall].highest > high + slack:
                raise CaseFault(
                    'it lies outside the range of the walls "cold" and "hot", whose difference '
                    "follows from cavity.rayleigh or cavity.temperature_difference",
                    location=f"walls.{wall}.temperature = {temperatures[wall]}",
                    allowed=f"{low:.6g} to {high:.6g} K",
                    remedy="give all walls in kelvin",
                )
    elif value and bool(hot) != bool(cold):
        raise CaseFault(
            f'it needs a wall "hot" and a wall "cold"; there is only '
            f"{_keys(temperatures, hot + cold)}",
            location=f"{key} = {value:g}",
            remedy='name one wall "hot" and one "cold"',
        )


def _keys(temperatures: Mapping[str, Temperature], walls: list[str]) -> str:
    return ", ".join(f"cavity.walls.{wall}.temperature = {temperatures[wall]}" for wall in walls)


def span_of(ranges: Iterable[WallRange]) -> tuple[float, float]:
    """Lowest and highest temperature of walls in K."""
    walls = list(ranges)
    return min(wall.lowest for wall in walls), max(wall.highest for wall in walls)
