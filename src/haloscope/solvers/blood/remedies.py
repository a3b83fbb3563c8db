"""Remedies in messages: recommended time steps and spacings, plausible densities and viscosities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from haloscope.errors import InputError, error_text
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.units import LEAST_SPACING_UM, LEAST_TAU, MICRO, SOUND_TAU


@dataclass
class ImplausibleNumber:
    """A number of a case that is unlike any vessel or liquid, often one in another unit."""

    location: str
    problem: str
    allowed: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return error_text(self)


def refusal_with_cause(causes: Sequence[ImplausibleNumber], error: InputError) -> InputError:
    """The refusal of the implausible numbers that probably cause an error."""
    first, *others = causes
    problem = "; ".join([first.problem, *map(str, others)])
    return InputError(
        f"{problem} (probable consequence: {error})",
        location=first.location,
        allowed=first.allowed,
        remedy=first.remedy,
    )


def rounded_down(value: float) -> float:
    """A number above 0 with three digits, rounded down: what is below a limit stays so."""
    if not 0.0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / unit * (1 + 1e-12)) * unit


def rounded_up(value: float) -> float:
    """The same rounded up."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit * (1 - 1e-12)) * unit


def step_text(table: BloodTable, beyond_half: float, *, least: bool = False) -> str:
    """The number for a step whose relaxation time is so much beyond a half, in the unit of the case's key."""
    rounded = rounded_up if least else rounded_down
    if table.relaxation_time is not None:
        return f"{0.5 + rounded(beyond_half):.10g}"
    step = table.units.time_step * beyond_half / (table.tau - 0.5)
    return f"{rounded(step / MICRO):.3g}"


def step_key(table: BloodTable) -> str:
    """Key that sets the time step."""
    return "blood.time_step_us" if table.relaxation_time is None else "blood.relaxation_time"


def shorter_step_or(table: BloodTable, share: float, other: str, power: float = 1.0) -> str:
    """Remedy: a step that is this share of the case's, or `other`, an imperative.

    Where no such step is allowed, first the other, then a spacing with the same effect on a number that is
    proportional to the relaxation time beyond a half times the spacing to the power of 1 / `power`.
    """
    beyond_half = share * (table.tau - 0.5)
    if 0.5 + beyond_half >= LEAST_TAU:
        return f"set {step_key(table)} = {step_text(table, beyond_half)} or less, or {other}"
    low = SOUND_TAU[0]
    spacing = rounded_down(table.spacing_um * (beyond_half / (low - 0.5)) ** power)
    if spacing < LEAST_SPACING_UM:
        return other
    instead = "" if table.time_step_us is None else " in place of blood.time_step_us"
    return (
        f"{other}, or set blood.spacing_um = {spacing:.3g} or less with blood.relaxation_time = {low:g}{instead} "
        "(at this spacing no allowed step is short enough)"
    )


def sound_steps(table: BloodTable, ratio: float = 1.0) -> str:
    """Remedy: steps with recommended relaxation times of the fluid and of one with this ratio of viscosities."""
    low, high = (tau - 0.5 for tau in SOUND_TAU)
    least, most = max(low, low / ratio), min(high, high / ratio)
    if least > most:
        return "bring the viscosities nearer to each other"
    return (
        f"set {step_key(table)} = {step_text(table, least, least=True)} to {step_text(table, most)}"
    )


# Of liquids, in kg/m^3 and mPa s. Denser fluids are of use: their steps are longer.
_LIQUID_DENSITY = (500.0, 1.4e4)
_LIQUID_VISCOSITY = (0.1, 1e5)


def on_fluid(table: BloodTable) -> list[ImplausibleNumber]:
    """Densities and viscosities that no liquid has, probably in another unit."""
    numbers = []
    density, viscosity = table.density_kg_m3, table.viscosity_mpa_s
    low, high = _LIQUID_DENSITY
    if density < low:
        inferred = density * 1e3
        remedy = f"for g/cm^3 set blood.density_kg_m3 to {inferred:g}"
        numbers.append(
            ImplausibleNumber(
                f"blood.density_kg_m3 = {density:g}",
                f"no liquid has so low a density (liquids: {low:g} to {high:g} kg/m^3)",
                remedy=remedy if low <= inferred <= high else "check the unit",
            )
        )
    low, high = _LIQUID_VISCOSITY
    if not low <= viscosity <= high:
        inferred = viscosity * 1e3
        remedy = f"for Pa s set blood.viscosity_mpa_s to {inferred:g}"
        numbers.append(
            ImplausibleNumber(
                f"blood.viscosity_mpa_s = {viscosity:g}",
                f"no liquid has this viscosity (liquids: {low:g} to {high:g} mPa s)",
                remedy=remedy if low <= inferred <= high else "check the unit",
            )
        )
    return numbers
