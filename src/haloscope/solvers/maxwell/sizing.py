"""Size of a Maxwell case: memory and work before a run, cuts over ranks, and the axes of studies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from haloscope.errors import InputError
from haloscope.mesh.partition import require_parts
from haloscope.solvers.maxwell.case import (
    _HOST_BYTES,
    MaxwellCase,
    bytes_a_node,
    bytes_a_step,
    flops_a_step,
)
from haloscope.solvers.maxwell.meshes import elements_of
from haloscope.solvers.sweeping import Column, Columns, Layout, Sweeping, double_box, plain, spelled


def estimate(case: MaxwellCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Returns: ``memory_bytes`` held on the devices, ``host_bytes`` beside them (coordinates,
    Jacobians, the mesh) and ``bytes_per_step`` moved at least.
    """
    table = case.maxwell
    nodes = elements_of(table) * (table.order + 1) ** 3
    single = table.precision == "single"
    memory = nodes * bytes_a_node(table.order, single)
    if case.output.average is not None:
        memory += 8.0 * 6 * nodes
    return {
        "memory_bytes": memory,
        "host_bytes": _HOST_BYTES * nodes,
        "bytes_per_step": 5 * nodes * bytes_a_step(table.order, single),
    }


def check_ranks(case: MaxwellCase, ranks: int) -> None:
    """Refuse more ranks than elements."""
    require_parts(ranks, elements_of(case.maxwell))


_VALUES_OF_A_STEP = 6 * 5


class MaxwellSweeping(Sweeping[MaxwellCase]):
    """Studies of electromagnetic fields."""

    CASE = MaxwellCase
    OWN_AXES = ("elements", "order", "precision")
    GROWTHS = ("strong", "type1")
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
            "a point in each of the five stages of a step. GFlop/s counts 180 (order + 1) + 420 "
            "operations per point and step, the number published for NekCEM. Efficiency is the rate per "
            "rank over the rate of a single rank."
        ),
        size="points",
        peak="gflop_s",
    )

    def put(self, table: dict[str, Any], axis: str, value: Any) -> None:
        """Set an axis in the table maxwell of a case's data."""
        if axis != "elements":
            super().put(table, axis, value)
            return
        if not isinstance(table.get("box"), dict):
            raise InputError(
                "only a box has elements to set",
                location="elements",
                remedy="add the table maxwell.box to the case, or remove the axis",
            )
        if isinstance(value, tuple) and len(value) != len("xyz"):
            raise InputError(
                "wrong length",
                location=f"elements = {plain(value)}",
                allowed="a number, or a list of three within the list: [[2, 2, 4]]",
            )
        table["box"]["elements"] = list(value) if isinstance(value, tuple) else [value] * 3

    def problem(self, case: MaxwellCase, ranks: int) -> Layout:
        """The mesh of a case; maxwell.partition shares it out when a point is run."""
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

    def enlarge(self, case: MaxwellCase, table: dict[str, Any], ranks: int) -> None:
        """Let the box of a case grow."""
        box = case.maxwell.box
        if box is None:
            raise InputError(
                "the case has no box to double",
                location="growth = type1",
                remedy="add the table maxwell.box to the case",
            )
        if box.grading != (1.0, 1.0, 1.0):
            raise InputError(
                f"maxwell.box.grading is {list(box.grading)}",
                location="growth = type1",
                allowed="elements of one size",
                remedy="remove maxwell.box.grading",
            )
        double_box(table["box"], "elements", box, ranks)

    def rates(self, case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
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
