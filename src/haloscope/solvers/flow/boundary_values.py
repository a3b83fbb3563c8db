"""What is given on boundaries: velocities and pressures at nodes, and loads from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tet_faces import area_vectors
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations import UNKNOWNS, Vector

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

    pressure: float | Signal = 0.0  # In Pa, or what tells it at places and times
    # Whether the fluid crosses at right angles, as it does in a long straight pipe.
    straight: bool = False
    # From 0 to 1: see :class:`haloscope.solvers.flow.loaded_equations.LoadedEquations`.
    backflow: float = 0.0


@dataclass(frozen=True)
class Traction:
    """A stress that acts from outside, (n, 3) in Pa: -p n for a pressure p."""

    stress: Profile  # What tells it at places and times
    backflow: float = 0.0  # As for an outside pressure


@dataclass(frozen=True)
class Resistance:
    """An end behind which more vessels follow: the more flows out, the higher the pressure."""

    # p = outside + proximal Q + c, and c falls off by distal * compliance dc/dt = distal Q - c:
    # three elements of a Windkessel (I. E. Vignon-Clementel, C. A. Figueroa, K. E. Jansen, C. A.
    # Taylor, Comput. Methods Appl. Mech. Eng. 195 (2006) 3776). Without a compliance c = distal Q.

    # In Pa s/m^3.
    proximal: float
    distal: float = 0.0
    compliance: float = 0.0  # In m^3/Pa
    outside: float = 0.0  # In Pa
    start: float = 0.0  # c at the start, in Pa
    # As for an outside pressure.
    straight: bool = False
    backflow: float = 0.0


Open = OutsidePressure | Traction | Resistance
"""What leaves the velocity free."""
Condition = Velocity | MovingWall | NoFlow | Slip | Open


class BoundaryValues:
    """What is given at the nodes of a rank; all ranks make one together."""

    # A rank may hold a node of a boundary without any of its triangles; so which nodes lie on a
    # boundary is agreed upon by all. Where boundaries meet, walls at rest rule over moving ones,
    # these over inlets, and all over planes of symmetry and slip; of two of a kind the one that is
    # named later.

    def __init__(
        self, part: NodePart, shared: SharedNodes, conditions: Mapping[str, Condition]
    ) -> None:
        _check(part, conditions)
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
        marks = shared.device.zeros((len(self._part.nodes),), np.float64)
        own = np.unique(self._part.boundaries[name])
        marks[own.astype(np.int64)] = 1.0
        if not shared.alone:
            shared.sums(1).swap(marks)
        return np.flatnonzero(shared.device.to_host(marks) > 0)

    def fix_pressure(self, number: int = 0) -> None:
        """Give the pressure 0 at the node of the whole mesh with a number, for closed vessels."""
        own = np.flatnonzero(self._part.node_numbers == number)
        self._rules[UNKNOWNS * own + 3] = len(self._profiles)
        self._profiles.append(None)
        self.numbers = np.flatnonzero(self._rules >= 0)

    def values(self, time: float) -> Floats:
        """What the unknowns `numbers` have at a time."""
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
        """What pressures and stresses from outside add to the residual of own elements, 4 a node.

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


def _check(part: NodePart, conditions: Mapping[str, Condition]) -> None:
    names = ", ".join(part.boundaries)
    for name in conditions:
        if name not in part.boundaries:
            raise InputError(f"the mesh has no boundary {name!r}; it has {names}")
    for name in part.boundaries:
        if name not in conditions:
            raise InputError(
                f"boundary {name!r} has no condition; give a velocity, no slip, slip, no flow, a "
                "pressure, a traction or a resistance"
            )
    for name, one in conditions.items():
        if isinstance(one, Open) and not 0.0 <= one.backflow <= 1.0:
            raise InputError(
                f"boundary {name!r}: backflow = {one.backflow:g} is out of range; give a factor "
                "from 0 to 1"
            )
        if isinstance(one, Resistance):
            least = min(one.proximal, one.distal, one.compliance)
            if least < 0 or (one.compliance > 0 and one.distal == 0):
                raise InputError(
                    f"boundary {name!r}: resistances {one.proximal:g} and {one.distal:g} Pa s/m^3 "
                    f"with a compliance of {one.compliance:g} m^3/Pa are not possible; give none "
                    "below 0, and a distal resistance with a compliance"
                )


def _precedence(condition: Condition) -> int:
    """Where boundaries meet the higher rules; see :class:`BoundaryValues`."""
    if isinstance(condition, MovingWall):
        return 2
    if isinstance(condition, Velocity):
        return 3 if condition.profile is None else 1
    return 0
