"""What is given on boundaries: velocities and pressures at nodes, and loads of outside pressures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.domain.node_parts import NodePart
from haloscope.domain.tet_geometry import area_vectors
from haloscope.errors import InputError
from haloscope.numerics.shared_nodes import SharedNodes
from haloscope.solvers.flow.equations import UNKNOWNS

Floats = NDArray[np.float64]
Profile = Callable[[Floats, float], Floats]
"""Velocities (n, 3) in m/s at positions (n, 3) in m and a time in s."""


@dataclass(frozen=True)
class Velocity:
    """A velocity at all nodes of a boundary; without a profile the fluid rests (no slip)."""

    profile: Profile | None = None


@dataclass(frozen=True)
class NoFlow:
    """No velocity along one axis: a plane of symmetry, or a wall without friction, across it."""

    axis: int


@dataclass(frozen=True)
class OutsidePressure:
    """A pressure in Pa that acts from outside, with no friction; 0: an open end."""

    pressure: float = 0.0


Condition = Velocity | NoFlow | OutsidePressure


class Given:
    """What is given at the nodes of a rank; all ranks make one together.

    A rank may hold a node of a boundary without any of its triangles; so which nodes lie on a
    boundary is agreed upon by all.

    Parameters
    ----------
    part, shared
        This rank's mesh, and who shares which nodes.
    conditions
        By names of boundaries, each of them.

    Attributes
    ----------
    numbers
        Of the unknowns that are given, 4 * node + unknown, ascending.
    nodes
        Own nodes on each boundary.
    load
        What outside pressures add to the residual of own elements, 4 a node.
    has_pressure
        Whether a pressure is given anywhere.

    Raises
    ------
    InputError
        A boundary has no condition, or the mesh has none of that name.
    """

    def __init__(
        self, part: NodePart, shared: SharedNodes, conditions: Mapping[str, Condition]
    ) -> None:
        names = ", ".join(part.boundaries)
        for name in conditions:
            if name not in part.boundaries:
                raise InputError(f"the mesh has no boundary {name!r}; it has {names}")
        for name in part.boundaries:
            if name not in conditions:
                raise InputError(
                    f"boundary {name!r} has no condition; give a velocity, no slip, no flow or a "
                    "pressure"
                )
        self._part = part
        self.nodes = {name: self._on(name, shared) for name in part.boundaries}
        count = len(part.nodes)
        ruled = np.full((count, UNKNOWNS), -1)
        self._profiles: list[Profile | None] = []
        for name, condition in sorted(conditions.items(), key=lambda one: _precedence(one[1])):
            if isinstance(condition, OutsidePressure):
                continue
            axes = condition.axis if isinstance(condition, NoFlow) else slice(0, 3)
            ruled[self.nodes[name], axes] = len(self._profiles)
            self._profiles.append(condition.profile if isinstance(condition, Velocity) else None)
        self._rules = ruled.ravel()
        self.numbers = np.flatnonzero(self._rules >= 0)
        self.has_pressure = any(isinstance(one, OutsidePressure) for one in conditions.values())
        self.load = self._loads(conditions)

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
        found = np.zeros(len(self._rules))
        for rule, profile in enumerate(self._profiles):
            chosen = np.flatnonzero(self._rules == rule)
            if profile is None or not len(chosen):
                continue
            nodes, axes = np.divmod(chosen, UNKNOWNS)
            alone, back = np.unique(nodes, return_inverse=True)
            found[chosen] = profile(self._part.nodes[alone], time)[back, axes]
        return found[self.numbers]

    def _loads(self, conditions: Mapping[str, Condition]) -> Floats:
        """What own triangles of outside pressures add to the residual, 4 a node."""
        load = np.zeros((len(self._part.nodes), UNKNOWNS))
        for name, condition in conditions.items():
            if isinstance(condition, OutsidePressure) and condition.pressure:
                triangles = self._part.boundaries[name]
                outward = area_vectors(self._part.nodes, triangles)
                third = condition.pressure / 3 * outward
                for corner in range(3):
                    np.add.at(load[:, :3], triangles[:, corner], third)
        return load.ravel()


def _precedence(condition: Condition) -> int:
    """Where boundaries meet the higher rules: walls over inlets, both over planes of symmetry."""
    if isinstance(condition, Velocity):
        return 2 if condition.profile is None else 1
    return 0
