"""What a case gives on boundaries, as functions of place and time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from haloscope.case.expressions import Expression, Table, times_in_milliseconds
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import all_rows
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tet_faces import area_vectors
from haloscope.solvers.flow.boundary_values import (
    Condition,
    MovingWall,
    NoFlow,
    OutsidePressure,
    Profile,
    Resistance,
    Signal,
    Slip,
    Traction,
    Velocity,
)
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.case_boundaries import BoundaryTable
from haloscope.solvers.flow.developed import Opening

Floats = NDArray[np.float64]
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
                "last value holds from there on"
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
