"""What studies sweep of Maxwell's equations: elements, their order, and a box that grows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from haloscope.case.tables import check
from haloscope.errors import InputError
from haloscope.solvers.maxwell.case import (
    Box,
    MaxwellCase,
    flops_a_step,
)
from haloscope.solvers.maxwell.estimate import check_ranks
from haloscope.solvers.maxwell.meshes import elements_of
from haloscope.solvers.sweeping import (
    Column,
    Columns,
    Layout,
    double_box,
    plain,
    spelled,
    transport_check,
)

OWN_AXES = ("elements", "order", "precision")
MACHINE_AXES: tuple[str, ...] = ()
GROWTHS = ("strong", "type1")
ALONE: Mapping[str, Any] = {}
SAME_BITS: tuple[str, ...] = ()
check_transport = transport_check()
COLUMNS = Columns(
    problem=(Column("elements", str), Column("order", int), Column("points", int)),
    options=(
        *(Column(name, str) for name in ("transport", "transport_used")),
        Column("overlap", bool),
        Column("graphs", bool),
        Column("threads", int),
        Column("precision", str),
        *(Column(name, str) for name in ("flux", "curl")),
    ),
    rates=(
        Column("mpoints_s", float, "Mpoints/s"),
        Column("gdof_s", float, "GDOF/s"),
        Column("gflop_s", float, "GFlop/s"),
    ),
    energy=Column("joules_per_point_step", float, "nJ a point and step"),
    panel=("gdof_s", "GDOF/s"),
    meaning=(
        "A point is a node of an element: elements x (order + 1)^3. GDOF/s counts the six values of "
        "a point in each of the five stages of a step, GFlop/s 180 (order + 1) + 420 operations a "
        "point and step, as published for NekCEM. Efficiency is the rate of a rank over that of "
        "one alone."
    ),
    size="points",
    peak="gflop_s",
)

_VALUES_OF_A_STEP = 6 * 5


def put(table: dict[str, Any], axis: str, value: Any) -> None:
    """Set an axis in the table maxwell of a case's data."""
    if axis != "elements":
        table[axis] = value
        return
    if not isinstance(table.get("box"), dict):
        raise InputError(
            "elements are those of a box; give the case a table maxwell.box, or remove the axis"
        )
    if isinstance(value, tuple) and len(value) != len("xyz"):
        raise InputError(
            f"elements = {plain(value)} is out of range; give a number, or three in a list of "
            "their own: [[2, 2, 4]]"
        )
    table["box"]["elements"] = list(value) if isinstance(value, tuple) else [value] * 3


def lay_out(data: dict[str, Any], ranks: int, wanted: Any, growth: str) -> Layout:
    """Let the box of a case grow with its ranks: axes double in turn, z first.

    Its sides grow with its elements, which so keep their size. Who has which elements is found
    when a point is run (maxwell.partition).
    """
    case = _checked(data)
    if growth == "type1":
        _enlarge(case.maxwell.box, data["maxwell"], ranks)
        case = _checked(data)
    check_ranks(case, ranks)
    table = case.maxwell
    if table.box is not None:
        elements: tuple[int, ...] = table.box.elements
    else:
        elements = (elements_of(table),)
    columns = {
        "elements": spelled(elements),
        "order": table.order,
        "points": math.prod(elements) * (table.order + 1) ** 3,
    }
    return Layout(
        elements, (ranks,), columns, f"{columns['elements']} elements of order {table.order}"
    )


def _enlarge(box: Box | None, table: dict[str, Any], ranks: int) -> None:
    if box is None:
        raise InputError("growth = type1 doubles a box; give the case a table maxwell.box")
    if box.grading != (1.0, 1.0, 1.0):
        raise InputError(
            f"growth = type1 needs elements of one size; maxwell.box.grading is "
            f"{list(box.grading)}, remove it"
        )
    double_box(table["box"], "elements", box, ranks)


def rates(case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
    """Points, values and operations a second."""
    # The operations are those of Equation 16 of Otten et al., An MPI/OpenACC implementation of a
    # high-order electromagnetics solver with GPUDirect communication, 2016. A step of the
    # exponential integrator has no fixed number of stages: then points alone are told.
    table = case["maxwell"]
    rates = {"mpoints_s": cells / seconds / 1e6}
    if table["integrator"] == "runge-kutta":
        rates["gdof_s"] = _VALUES_OF_A_STEP * cells / seconds / 1e9
        rates["gflop_s"] = flops_a_step(table["order"]) * cells / seconds / 1e9
    return rates


def _checked(data: dict[str, Any]) -> MaxwellCase:
    case = check(data, MaxwellCase, "case")
    assert isinstance(case, MaxwellCase)
    return case
