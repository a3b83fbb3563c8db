"""Outlets whose pressure follows their flow: laws on the lattice, their start, expected pressures, warnings, a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.io.atomic import append_text
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import OpeningTable
from haloscope.solvers.blood.fluid.reaction import NAME, STATE, ReactingOutlets, Reaction
from haloscope.solvers.blood.units import SOUND_SPEED, LatticeUnits
from haloscope.solvers.blood.vessels.vessels import (
    Vessel,
    mean_of,
    opening_area,
    relative_velocities,
)
from haloscope.solvers.interface import saved_numbers
from haloscope.solvers.windkessel import WindkesselLaw

Floats = NDArray[np.float64]
FILE = "outlets.csv"
_ROWS = "rows of outlets"
# Of the compliance of the lattice's own fluid: compliances of outlets below are drowned by it.
_LEAST_COMPLIANCE = 20.0
# Of a period, and of a run: the longest time in which the fluid's own compliance fills.
_OF_PERIOD, _OF_RUN = 0.05, 0.2


@dataclass(frozen=True)
class Inflow:
    """Flow rates in m^3/s of what comes in at given velocities, less what leaves so."""

    mean: float
    largest: float


def inflow_of(vessel: Vessel, until: float) -> Inflow | None:
    """Sum over all openings with a velocity; None where there are none."""
    mean = largest = 0.0
    prescribed = False
    for points, opening in zip(vessel.lattice.openings, vessel.openings, strict=True):
        if opening.kind != "velocity":
            continue
        prescribed, signal = True, opening.time_signal()
        relative = 1.0
        if opening.velocity_profile() is not None:
            profile = relative_velocities(opening, points, vessel.lattice)
            relative = mean_of(profile, points, vessel.lattice)
        rate = opening.value * relative * opening_area(points, vessel.lattice)
        mean += rate * signal.mean(until)
        largest += rate * signal.largest(until)
    return Inflow(mean, largest) if prescribed else None


@dataclass(frozen=True)
class ExpectedOutlet:
    """An outlet with a resistance, and what is expected of it before a run."""

    number: int  # Of the opening
    table: OpeningTable
    law: WindkesselLaw  # In SI units, with c at the start
    mean: float  # Flow rate in m^3/s; 0 where it is not known
    largest: float

    @property
    def pressure(self) -> float:
        """Largest in Pa, by size, of a flow that has become steady or swings about its mean."""
        law = self.law
        at_once = law.proximal if law.compliance else law.proximal + law.distal
        steady = law.outside + (law.proximal + law.distal) * self.mean
        peak = steady + at_once * (self.largest - self.mean)
        return max((steady, peak, law.outside + law.start), key=abs)


def expected_outlets(vessel: Vessel, until: float = 0.0) -> list[ExpectedOutlet]:
    """Outlets with a resistance; what comes in is shared among them in inverse proportion to these."""
    laws = [
        (number, opening, opening.resistance)
        for number, opening in enumerate(vessel.openings)
        if opening.resistance is not None
    ]
    inflow = inflow_of(vessel, until) if laws else None
    if any(opening.kind == "pressure" and not opening.reacts for opening in vessel.openings):
        inflow = None
    conductance = sum(1 / law.total for _, _, law in laws)
    outlets = []
    for number, opening, law in laws:
        share = 1 / law.total / conductance
        mean, largest = (share * inflow.mean, share * inflow.largest) if inflow else (0.0, 0.0)
        start = law.start
        if start is None:
            start = law.distal * mean if law.compliance else 0.0
        fixed = WindkesselLaw(law.proximal, law.distal, law.compliance, law.outside, start)
        outlets.append(ExpectedOutlet(number, opening, fixed, mean, largest))
    return outlets


def reactions(
    table: BloodTable, vessel: Vessel, starting: Sequence[float], until: float
) -> list[Reaction]:
    """The laws on the lattice; `starting`: pressures of the fluid in Pa at the openings at the start."""
    units, lattice = table.units, vessel.lattice
    result = []
    laws = {outlet.number: outlet.law for outlet in expected_outlets(vessel, until)}
    for number, (points, opening) in enumerate(zip(lattice.openings, vessel.openings, strict=True)):
        if not opening.reacts:
            continue
        impedance = SOUND_SPEED / (opening_area(points, lattice) / lattice.spacing**2)
        start = starting[number] / units.pressure
        if opening.split is not None:
            outside = opening.value / units.pressure
            result.append(
                Reaction(
                    number, outside=outside, impedance=impedance, start=start, share=opening.split
                )
            )
            continue
        law = laws[number]
        held, gain = law.at_constant_flow(units.time_step)
        result.append(
            Reaction(
                number,
                held=held,
                gain=gain / units.resistance,
                proximal=law.proximal / units.resistance,
                outside=law.outside / units.pressure,
                impedance=impedance,
                start=start,
                held_at_start=law.start / units.pressure,
            )
        )
    return result


def lattice_compliance(table: BloodTable, vessel: Vessel) -> float:
    """Compliance of the vessel's fluid in m^3/Pa: the lattice's fluid is a gas, p = rho c_s^2."""
    units = table.units
    return vessel.lattice.count * units.spacing**3 / (units.pressure * SOUND_SPEED**2)


def on_outlets(table: BloodTable, vessel: Vessel, until: float) -> tuple[list[str], list[str]]:
    """Notes on how outlets start, and warnings of a compressibility that changes their answer."""
    outlets = expected_outlets(vessel, until)
    if not outlets:
        return [], []
    own = lattice_compliance(table, vessel)
    notes = [_start_line(outlet) for outlet in outlets if outlet.law.compliance]
    lines = []
    compliances = sum(outlet.law.compliance for outlet in outlets)
    lower = "shorten the time step (blood.relaxation_time or blood.time_step_us) or the vessel"
    if compliances and compliances < _LEAST_COMPLIANCE * own:
        lines.append(
            f"blood.openings.resistance.compliance: all outlets together have {compliances:.3g} m^3/Pa, and the "
            f"compressible fluid of the lattice itself {own:.3g} m^3/Pa, which adds to it (recommended: at least "
            f"{_LEAST_COMPLIANCE:g} times as much); {lower}"
        )
    resistance = 1 / sum(1 / _at_once(outlet.law) for outlet in outlets)
    filling = resistance * own
    periods = [opening.period_s for opening in vessel.openings if opening.period_s is not None]
    span = min(periods, default=until)
    longest = (_OF_PERIOD if periods else _OF_RUN) * span
    if span and filling > longest:
        whole = "period of the signal" if periods else "run"
        lines.append(
            f"blood.openings.resistance: the compressible fluid of the lattice fills in {filling:.3g} s, and the "
            f"{whole} takes {span:.3g} s, so flow and pressure at outlets lag (recommended: at most "
            f"{longest:.3g} s); {lower}"
        )
    return notes, lines


def _at_once(law: WindkesselLaw) -> float:
    """Resistance to a flow that changes fast; not 0."""
    at_once = law.proximal if law.compliance else law.proximal + law.distal
    return max(at_once, 1e-30)


def _start_line(outlet: ExpectedOutlet) -> str:
    law, name = outlet.law, outlet.table.name
    assert outlet.table.resistance is not None
    if outlet.table.resistance.start is not None:
        cause = "as the case says"
    elif outlet.mean:
        cause = f"the distal resistance times a mean flow of {outlet.mean * 1e12:.4g} nl/s"
    else:
        cause = "as the mean flow is not known before the run; set resistance.start otherwise"
    return f"{name}: the pressure of the compliance starts at {law.start:.4g} Pa, {cause}"


class OutletRecord:
    """Pressure, flow rate and pressure of the compliance of outlets that react, in SI units, and their table."""

    def __init__(self, outlets: ReactingOutlets, vessel: Vessel, units: LatticeUnits) -> None:
        self._outlets, self._units = outlets, units
        openings = [vessel.openings[number] for number in outlets.numbers.tolist()]
        # With whether there is a compliance.
        self._names = [
            (table.name, table.resistance is not None and table.resistance.compliance > 0)
            for table in openings
        ]
        self._rows: list[list[float]] = []
        # Rows that the file holds; -1: it is to be written anew.
        self._written = -1

    def numbers(self) -> dict[str, float]:
        """Pressure in Pa, flow rate out of the vessel in m^3/s and c in Pa, by quantity and outlet."""
        held, _, flow, pressure, _ = self._outlets.values()
        units = self._units
        numbers = {}
        for k, (name, has_compliance) in enumerate(self._names):
            numbers[f"outlet_pressure_{name}"] = float(pressure[k]) * units.pressure
            numbers[f"outlet_flow_{name}"] = float(flow[k]) * units.flow_rate
            if has_compliance:
                numbers[f"outlet_compliance_pressure_{name}"] = float(held[k]) * units.pressure
        return numbers

    def header(self) -> list[str]:
        """Columns of the table."""
        columns = ["step", "time_s"]
        for name, has_compliance in self._names:
            columns += [f"{name}_pressure_pa", f"{name}_flow_m3_s"]
            columns += [f"{name}_compliance_pressure_pa"] if has_compliance else []
        return columns

    def write(self, out: Path, step: int) -> None:
        """Add the present state to the table in a run's folder; for rank 0 alone."""
        self._rows.append([step, step * self._units.time_step, *self.numbers().values()])
        path, afresh = out / FILE, self._written < 0
        rows = self._rows[max(self._written, 0) :]
        lines = [",".join([str(int(row[0])), *map(repr, row[1:])]) for row in rows]
        head = [",".join(map(_quoted, self.header()))] if afresh else []
        append_text(path, "\n".join([*head, *lines]) + "\n", afresh=afresh)
        self._written = len(self._rows)

    def state(self) -> dict[str, Floats]:
        """State for a checkpoint, whole on rank 0."""
        rows = np.array(self._rows).reshape(len(self._rows), len(self.header()))
        return {**self._outlets.state(), _ROWS: rows}

    def restore(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Take over what :meth:`state` gave."""
        if NAME not in saved:
            raise InputError(
                "it lacks the pressures of outlets that react",
                location="checkpoint",
                remedy="restart with the case that wrote it",
            )
        values = saved_numbers(saved, NAME, (STATE, self._outlets.count))
        rows = saved_numbers(saved, _ROWS, (None, len(self.header())))
        self._outlets.restore(values)
        self._rows, self._written = rows.tolist(), -1


def _quoted(text: str) -> str:
    return f'"{text}"' if "," in text else text


def outlet_lines(numbers: Mapping[str, float]) -> list[str]:
    """One line on all outlets that react."""
    names = [
        key.removeprefix("outlet_pressure_")
        for key in numbers
        if key.startswith("outlet_pressure_")
    ]
    if not names:
        return []
    flows = {name: numbers[f"outlet_flow_{name}"] for name in names}
    total = math.fsum(flows.values())
    parts = []
    for name in names:
        part = (
            f"{name} {numbers[f'outlet_pressure_{name}']:.4g} Pa at {flows[name] * 1e12:.4g} nl/s"
        )
        parts.append(part + (f" ({100 * flows[name] / total:.3g} %)" if total > 0 else ""))
    return [f"outlets that react: {', '.join(parts)}"]
