"""Labels of axes that have room: ticks, powers of ten, units of length, lines of text."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axis import Axis

CHARACTER_WIDTH = 0.6  # of the font size, on average
TICK_SIZE = 8.0  # points
TICK_HEIGHT = 0.28  # inch, least distance of labels above one another
TICK_GAP = 0.15  # inch, between labels beside one another
MOST_INTERVALS = 7
# Powers of ten from which the label has them and the ticks do not.
_POWERS = (-2, 5)
_DIGITS = 6
_STEPS = (1, 2, 2.5, 5, 10)
# Units of length by the largest extent, in m, that is shown in them.
_LENGTHS = ((2e-8, 1e9, "nm"), (2e-5, 1e6, "um"), (2e-2, 1e3, "mm"))


def fit_ticks(axis: Axis, ends: tuple[float, float], room: float, *, upright: bool = False) -> str:
    """Set as many ticks on an axis as its length in inches has room for their labels.

    Returns: the power of ten that ticks are multiples of, as ``1e-5``; empty where it is 1.
    """
    from matplotlib.ticker import FixedFormatter, FixedLocator

    places, texts, power = placed_ticks(ends, room, upright=upright)
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FixedFormatter(texts))
    return power


def placed_ticks(
    ends: tuple[float, float], room: float, *, upright: bool = False
) -> tuple[list[float], list[str], str]:
    """Positions of ticks, their labels and the power of ten of these, as of `fit_ticks`."""
    from matplotlib.ticker import MaxNLocator

    low, high = sorted(ends)
    largest = max(abs(low), abs(high))
    exponent = math.floor(math.log10(largest)) if largest > 0 else 0
    exponent = 0 if _POWERS[0] <= exponent < _POWERS[1] else exponent
    factor = 10.0**exponent
    slack = 1e-9 * (high - low)
    places: list[float] = []
    texts: list[str] = []
    for intervals in range(MOST_INTERVALS, 0, -1):
        ticks = np.asarray(
            MaxNLocator(intervals, steps=_STEPS).tick_values(low / factor, high / factor)
        )
        places = [float(t) for t in ticks if low - slack <= t * factor <= high + slack]
        texts = _in_digits(places)
        if _needed(texts, upright) <= room:
            break
    if _needed(texts, upright) > room:
        # No label has room beside another one.
        middle = len(places) // 2
        places, texts = places[middle : middle + 1], texts[middle : middle + 1]
    return [place * factor for place in places], texts, f"1e{exponent}" if exponent else ""


def with_power(label: str, power: str) -> str:
    """A label, as ``p (Pa)``, with the power of ten that `fit_ticks` returned: ``p (1e-5 Pa)``."""
    name, _, unit = label.partition(" (")
    unit = " ".join(filter(None, (power, unit.removesuffix(")"))))
    return f"{name} ({unit})" if unit else name


def _in_digits(places: list[float]) -> list[str]:
    """Numbers with as many decimals as tell them apart, the same for all."""
    for decimals in range(_DIGITS):
        if all(abs(round(p, decimals) - p) <= 1e-9 * max(1.0, abs(p)) for p in places):
            return [
                f"{round(p, decimals) + 0.0:.{decimals}f}".replace("-", "\u2212") for p in places
            ]
    return [f"{p:.{_DIGITS}g}" for p in places]


def _needed(texts: list[str], upright: bool) -> float:
    """Length in inches that labels take along an axis."""
    if len(texts) < 2:
        return 0.0
    if upright:
        return TICK_HEIGHT * (len(texts) - 1)
    widest = max(map(len, texts)) * CHARACTER_WIDTH * TICK_SIZE / 72
    return (widest + TICK_GAP) * (len(texts) - 1)


def length_unit(extent: float) -> tuple[float, str]:
    """Unit in which a length in m is shown: how many make a metre, and its name."""
    for largest, factor, name in _LENGTHS:
        if extent <= largest:
            return factor, name
    return 1.0, "m"


def wrapped(text: str, size: float, room: float) -> list[str]:
    """Lines of a text that fit into a room in inches at a font size in points."""
    return textwrap.wrap(text, max(20, int(72 * room / (CHARACTER_WIDTH * size))))
