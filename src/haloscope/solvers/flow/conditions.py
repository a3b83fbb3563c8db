"""Boundary values of a flow: functions of place and time, nodes that they fix, loads, developed profiles of openings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.case.expressions import Expression, Table, times_in_milliseconds
from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import area_vectors
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.boundary_integrals import Opening
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.case_domain import BoundaryTable
from haloscope.solvers.flow.equations.equations import UNKNOWNS, Vector
from haloscope.solvers.windkessel import WindkesselLaw

Floats = NDArray[np.float64]
Profile = Callable[[Floats, float], Floats]
"""Velocities in m/s or stresses in Pa, (n, 3), at positions (n, 3) in m and a time in s."""
Signal = Callable[[Floats, float], Floats]
"""Pressures (n,) in Pa at positions (n, 3) in m and a time in s."""


@dataclass(frozen=True)
class Velocity:
    """A velocity at all nodes of a boundary; without a profile the fluid rests (no slip)."""

    profile: Profile | None = None


@dataclass(frozen=True)
class MovingWall:
    """A wall that drags the fluid along: as fast as it moves and turns."""

    velocity: Vector = (0.0, 0.0, 0.0)  # In m/s
    # Angular velocity in rad/s, and a point on its axis in m.
    rotation: Vector = (0.0, 0.0, 0.0)
    centre: Vector = (0.0, 0.0, 0.0)

    def profile(self, x: Floats, time: float) -> Floats:
        """Velocities at positions (n, 3)."""
        turning = np.cross(np.array(self.rotation), x - np.array(self.centre))
        return np.asarray(turning + np.array(self.velocity))


@dataclass(frozen=True)
class NoFlow:
    """No velocity along one axis: a plane of symmetry, or a wall without friction, across it."""

    axis: int


@dataclass(frozen=True)
class Slip:
    """No velocity through the boundary, and no friction on it: planes and curved walls."""


@dataclass(frozen=True)
class OutsidePressure:
    """A pressure that acts from outside, with no friction; 0: an open end."""

    pressure: float | Signal = 0.0  # In Pa, or a function of positions and time
    # Whether the fluid crosses at right angles, as it does in a long straight pipe.
    straight: bool = False
    # From 0 to 1: see :class:`haloscope.solvers.flow.boundary_equations.LoadedEquations`.
    backflow: float = 0.0


@dataclass(frozen=True)
class Traction:
    """A stress that acts from outside, (n, 3) in Pa: -p n for a pressure p."""

    stress: Profile  # A function of positions and time
    backflow: float = 0.0  # As for an outside pressure


@dataclass(frozen=True)
class Resistance(WindkesselLaw):
    """An end behind which more vessels follow: the more flows out, the higher the pressure."""

    # As for an outside pressure.
    straight: bool = False
    backflow: float = 0.0


Open = OutsidePressure | Traction | Resistance
"""What leaves the velocity free."""
Condition = Velocity | MovingWall | NoFlow | Slip | Open


class BoundaryValues:
    """Prescribed values at the nodes of a rank; all ranks make one together."""

    # A rank may hold a node of a boundary without any of its triangles; so which nodes lie on a
    # boundary is agreed upon by all. Where boundaries meet, walls at rest rule over moving ones,
    # these over inlets, and all over planes of symmetry and slip; of two of a kind the one that is
    # named later.

    def __init__(
        self, part: NodePart, shared: SharedNodes, conditions: Mapping[str, Condition]
    ) -> None:
        _require_distal(conditions)
        self._part, self.conditions = part, dict(conditions)
        # Own nodes on each boundary.
        self.nodes = {name: self._on(name, shared) for name in part.boundaries}
        count = len(part.nodes)
        ruled = np.full((count, UNKNOWNS), -1)
        self._profiles: list[Profile | None] = []
        for name, condition in sorted(conditions.items(), key=lambda one: _precedence(one[1])):
            if isinstance(condition, (Slip, OutsidePressure, Traction, Resistance)):
                continue
            axes = condition.axis if isinstance(condition, NoFlow) else slice(0, 3)
            ruled[self.nodes[name], axes] = len(self._profiles)
            self._profiles.append(None if isinstance(condition, NoFlow) else condition.profile)
        self._rules = ruled.ravel()
        # Numbers of the fixed unknowns, 4 * node + unknown, ascending.
        self.numbers = np.flatnonzero(self._rules >= 0)
        outside = [one for one in conditions.values() if isinstance(one, Open)]
        self.has_pressure = bool(outside)  # Whether anything outside says what the pressure is
        # Whether loads depend on time.
        self.loads_change = any(
            isinstance(one, Traction)
            or (isinstance(one, OutsidePressure) and callable(one.pressure))
            for one in outside
        )

    def _on(self, name: str, shared: SharedNodes) -> NDArray[np.int64]:
        """Nodes of this rank on a boundary, whoever has the triangles."""
        marks = np.zeros((len(self._part.nodes), 1))
        marks[np.unique(self._part.boundaries[name])] = 1.0
        return np.flatnonzero(shared.summed(marks) > 0)

    def fix_pressure(self, number: int = 0) -> None:
        """Give the pressure 0 at the node of the whole mesh with a number, for closed vessels."""
        own = np.flatnonzero(self._part.node_numbers == number)
        self._rules[UNKNOWNS * own + 3] = len(self._profiles)
        self._profiles.append(None)
        self.numbers = np.flatnonzero(self._rules >= 0)

    def values(self, time: float) -> Floats:
        """Values of the unknowns `numbers` at a time."""
        values = np.zeros(len(self._rules))
        for rule, profile in enumerate(self._profiles):
            chosen = np.flatnonzero(self._rules == rule)
            if profile is None or not len(chosen):
                continue
            nodes, axes = np.divmod(chosen, UNKNOWNS)
            alone, back = np.unique(nodes, return_inverse=True)
            values[chosen] = profile(self._part.nodes[alone], time)[back, axes]
        return values[self.numbers]

    def loads(self, time: float) -> Floats:
        """Residual of own elements, 4 a node, from external pressures and stresses.

        They are linear between the corners of a triangle. Resistances are not among them: what they
        add depends on the flow.
        """
        load = np.zeros((len(self._part.nodes), UNKNOWNS))
        for name, condition in self.conditions.items():
            triangles = self._part.boundaries[name]
            if not isinstance(condition, (OutsidePressure, Traction)) or not len(triangles):
                continue
            nodes, place = np.unique(triangles, return_inverse=True)
            x, outward = self._part.nodes[nodes], area_vectors(self._part.nodes, triangles)
            if isinstance(condition, Traction):
                pull = condition.stress(x, time)[place.reshape(-1, 3)]
                push = -pull * np.linalg.norm(outward, axis=1)[:, None, None]
            else:
                condition_pressure = condition.pressure
                pressure = (
                    condition_pressure(x, time)
                    if callable(condition_pressure)
                    else np.full(len(x), condition_pressure)
                )
                push = pressure[place.reshape(-1, 3)][:, :, None] * outward[:, None, :]
            # Integrals of N_a N_b over a triangle are (1 + delta_ab)/12 of its area.
            parts = (push.sum(axis=1, keepdims=True) + push) / 12
            for corner in range(3):
                np.add.at(load[:, :3], triangles[:, corner], parts[:, corner])
        return load.ravel()


def _require_distal(conditions: Mapping[str, Condition]) -> None:
    for name, one in conditions.items():
        if isinstance(one, Resistance) and one.compliance > 0 and one.distal == 0:
            raise InputError(
                f"the resistances are {one.proximal:g} and {one.distal:g} Pa s/m^3, and the "
                f"compliance is {one.compliance:g} m^3/Pa",
                location=f"boundary {name!r}",
                allowed="none below 0, and a compliance only with a distal resistance",
            )


def _precedence(condition: Condition) -> int:
    """Where boundaries meet the higher rules; see :class:`BoundaryValues`."""
    if isinstance(condition, MovingWall):
        return 2
    if isinstance(condition, Velocity):
        return 3 if condition.profile is None else 1
    return 0


Integers = NDArray[np.int64]

# Share of its area by which an opening's vector area may be shorter: 2.5 degrees between normals.


Course = Callable[[float], float]
"""A number at a time in s."""

# Components of a plane's unit normal below this are taken for rounding.
_ALONG_AXIS = 1e-6


def conditions_of(table: FlowTable, world: World, part: NodePart) -> dict[str, Condition]:
    """Conditions of all boundaries by name; all ranks call this."""
    conditions: dict[str, Condition] = {}
    for name in sorted(table.boundaries):
        boundary = table.boundaries[name]
        if boundary == "no-slip":
            conditions[name] = Velocity()
        elif boundary == "open":
            conditions[name] = OutsidePressure()
        elif boundary == "slip":
            axis = _axis_across(world, part, name)
            conditions[name] = Slip() if axis is None else NoFlow(axis)
        else:
            assert isinstance(boundary, BoundaryTable)
            conditions[name] = _condition(name, boundary, world, part)
    return conditions


def _condition(name: str, boundary: BoundaryTable, world: World, part: NodePart) -> Condition:
    key = f"flow.boundaries.{name}."
    if boundary.velocity is not None:
        return Velocity(_vectors(boundary.components(key), f"{key}velocity"))
    if boundary.moving is not None:
        return MovingWall(
            boundary.moving.velocity, boundary.moving.rotation, boundary.moving.centre
        )
    if boundary.traction is not None:
        return Traction(_vectors(boundary.components(key), f"{key}traction"), boundary.backflow)
    if boundary.resistance is not None:
        law = boundary.resistance
        return Resistance(
            *(law.proximal, law.distal, law.compliance, law.outside, law.start),
            straight=boundary.straight,
            backflow=boundary.backflow,
        )
    if boundary.pressure is not None:
        return OutsidePressure(_pressure(boundary, key), boundary.straight, boundary.backflow)
    opening = Opening(world, part, name)
    factor = 1.0 if boundary.flow_rate is None else 1.0 / opening.area
    return Velocity(
        _through(opening, boundary.profile == "developed", factor, _course(boundary, key))
    )


def _signal(boundary: BoundaryTable) -> Course:
    if boundary.signal is None:
        return lambda _time: 1.0
    table = Table.from_csv(boundary.signal)
    return lambda time: float(table(time))


def signal_notices(table: FlowTable) -> list[str]:
    """Notices about signals whose times do not suit the end of the run."""
    end, notices = table.time.end, []
    for name, boundary in table.boundaries.items():
        if end is None or not isinstance(boundary, BoundaryTable) or boundary.signal is None:
            continue
        signal = Table.from_csv(boundary.signal)
        key = f"flow.boundaries.{name}.signal"
        last = float(signal.coordinate[-1])
        if times_in_milliseconds(signal, end):
            notices.append(
                f"warning: {key}: the times of {boundary.signal} reach {last:g} s, and the run ends at "
                f"{end:g} s; milliseconds? Times are in s: divide them by 1000"
            )
        elif last < end:
            notices.append(
                f"warning: {key}: {boundary.signal} ends at {last:g} s, before the run at {end:g} s: its "
                "last value is used after that"
            )
    return notices


def _course(boundary: BoundaryTable, key: str) -> Course:
    expression, factor = boundary.course(key), _signal(boundary)
    assert expression is not None
    return lambda time: factor(time) * float(expression.evaluate_finite(key[:-1], t=time))


def _pressure(boundary: BoundaryTable, key: str) -> float | Signal:
    """A number where it is one: loads that do not change are found once."""
    expression, factor = boundary.course(key), _signal(boundary)
    assert expression is not None
    if not expression.uses and boundary.signal is None:
        return float(expression.evaluate_finite(key[:-1]))

    def pressure(x: Floats, time: float) -> Floats:
        return factor(time) * _at(expression, x, time, f"{key}pressure")

    return pressure


def _at(expression: Expression, x: Floats, time: float, key: str) -> Floats:
    return expression.evaluate_finite(key, x=x[:, 0], y=x[:, 1], z=x[:, 2], t=time)


def _vectors(components: list[Expression], key: str) -> Profile:
    def profile(x: Floats, time: float) -> Floats:
        return np.stack([_at(component, x, time, key) for component in components], axis=1)

    return profile


def _through(opening: Opening, developed: bool, factor: float, course: Course) -> Profile:
    shape = opening.profile(developed)[:, None] * opening.inward

    def profile(x: Floats, time: float) -> Floats:
        return np.asarray(factor * course(time) * shape[opening.find(x)])

    return profile


def _axis_across(world: World, part: NodePart, name: str) -> int | None:
    """The axis that is normal to a plane boundary; None where there is none."""
    normals = all_rows(world, area_vectors(part.nodes, part.boundaries[name]))
    across = np.abs(normals).sum(axis=0)
    axis = int(across.argmax())
    return None if np.delete(across, axis).sum() > _ALONG_AXIS * across[axis] else axis
