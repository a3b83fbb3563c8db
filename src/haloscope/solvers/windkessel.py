"""The Windkessel behind an outlet, which flow and blood share: keys of a case, law, and steps in time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from haloscope.case.tables import CaseFault, Coordinate, NotNegative, Table


class ResistanceTable(Table):
    """Windkessel model of the vessels behind an outlet: p = outside + proximal Q + c.

    c is the pressure across the compliance and the distal resistance.
    """

    proximal: NotNegative
    """Proximal resistance in Pa s/m^3."""
    distal: NotNegative = 0.0
    """Distal resistance in Pa s/m^3."""
    compliance: NotNegative = 0.0
    """Compliance in m^3/Pa."""
    outside: Coordinate = 0.0
    """Outside pressure in Pa."""

    def require_compliance(self, start: float | None) -> None:
        """Refuse a pressure of the compliance at the start where there is no compliance."""
        if start and not self.compliance:
            raise CaseFault(
                "it is the pressure of the compliance at the start, and the compliance is 0",
                location=f"start = {start:g}",
                remedy="set compliance",
            )


@dataclass(frozen=True)
class WindkesselLaw:
    """Pressure behind an outlet: the more flows out, the higher it is."""

    # p = outside + proximal Q + c, and c falls off by distal * compliance dc/dt = distal Q - c:
    # three elements of a Windkessel (I. E. Vignon-Clementel, C. A. Figueroa, K. E. Jansen, C. A.
    # Taylor, Comput. Methods Appl. Mech. Eng. 195 (2006) 3776). Without a compliance c = distal Q.

    # In Pa s/m^3.
    proximal: float
    distal: float = 0.0
    compliance: float = 0.0  # In m^3/Pa
    outside: float = 0.0  # In Pa
    start: float = 0.0  # c at the start, in Pa

    def at_constant_flow(self, span: float) -> tuple[float, float]:
        """Factors of c and of Q in c after a time at a constant flow rate: exp(-h), distal (1 - exp(-h))."""
        if self.compliance == 0.0:
            return 0.0, self.distal
        h = span / (self.distal * self.compliance)
        return math.exp(-h), -self.distal * math.expm1(-h)


class Windkessel:
    """Pressure behind an outlet as a function of the flow rate, over a step."""

    # c of :class:`WindkesselLaw` is exact for a flow rate that is linear in time: with
    # h = t/(distal * compliance) and E = exp(-h),
    #
    #     c(t) = E c_n + distal (Q_n ((1 - E)/h - E) + Q (1 - (1 - E)/h))

    def __init__(self, law: WindkesselLaw) -> None:
        self._law = law
        # c in Pa and flow rate in m^3/s at the end of the last step.
        self.held, self.flow = law.start, 0.0
        # Pressure is offset + resistance Q at the level of this step, in Pa and Pa s/m^3.
        self.resistance, self.offset = law.proximal + law.distal, law.outside

    def _over(self, span: float) -> tuple[float, float]:
        """Contribution of the past to c(span), and its derivative by Q."""
        law = self._law
        if law.compliance == 0.0:
            return 0.0, law.distal
        h = span / (law.distal * law.compliance)
        fall = math.exp(-h)
        mean = -math.expm1(-h) / h
        return fall * self.held + law.distal * self.flow * (mean - fall), law.distal * (1 - mean)

    def begin(self, span: float) -> None:
        """Prepare the pressure at a time `span` in s after the end of the last step."""
        past, factor = self._over(span)
        self.offset = self._law.outside + past
        self.resistance = self._law.proximal + factor

    def end(self, time_step: float, flow: float) -> None:
        """Take the flow rate at the end of a step."""
        past, factor = self._over(time_step)
        self.held, self.flow = past + factor * flow, flow
