"""Size of a flow case: memory and work before a run, and the axes of studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haloscope.errors import InputError
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.meshes import elements_of, require_elements
from haloscope.solvers.sweeping import Column, Columns, Layout, Sweeping, double_box, plain, spelled

# Of a node: blocks of its row and what is stored of a block (matrix, factors, numbers), vectors of
# the Krylov space, and others.
_BLOCKS_OF_A_ROW = 14.8


_BYTES_OF_A_BLOCK = 128 + 128 + 64 + 8


_OTHER_BYTES = 1200


_NODES_OF_A_TET = 0.2


def bytes_a_node(restart: int, levels: int) -> float:
    """Device memory of a node with unknowns at one or two levels of time."""
    blocks = _BLOCKS_OF_A_ROW * _BYTES_OF_A_BLOCK * levels**2
    return blocks + 32 * levels * (2 * restart + 1) + _OTHER_BYTES


def estimate(case: FlowCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Returns: ``memory_bytes`` held on the devices and ``bytes_per_step`` moved at least, by one
    Newton iteration with one of GMRES.
    """
    nodes = _NODES_OF_A_TET * elements_of(case.flow)
    levels = 2 if case.flow.time.scheme == "space-time" else 1
    return {
        "memory_bytes": nodes * bytes_a_node(case.flow.linear.restart, levels),
        "bytes_per_step": nodes * 2 * 132 * _BLOCKS_OF_A_ROW * levels**2,
    }


def check_ranks(case: FlowCase, ranks: int) -> None:
    """Refuse more ranks than elements."""
    require_elements(case.flow, ranks)


# Pressures of a flow that starts at once miss by some thirty times the part of the residual that is left.
_AMPLIFIED, _LEAST = 100.0, 1e-9


def nearness(case: Mapping[str, Any]) -> float:
    """How near several ranks come to one: what Newton's tolerance leaves, or its iterations do."""
    flow = case["flow"]
    newton, linear = flow["newton"], flow["linear"]
    iterations = 1 if flow["time"]["scheme"] == "steady" else newton["iterations"]
    left = linear["tolerance"] ** iterations
    return float(_AMPLIFIED * max(left, newton["tolerance"], _LEAST))


_SECONDS_AN_HOUR = 3600.0


class FlowSweeping(Sweeping[FlowCase]):
    """Studies of flow."""

    CASE = FlowCase
    OWN_AXES = ("elements", "messages", "preconditioner")
    GROWTHS = ("strong", "type1")
    SAME_BITS = ("messages",)
    COLUMNS = Columns(
        problem=(Column("elements", str), Column("tetrahedra", int)),
        options=(
            *(Column(name, str) for name in ("transport", "transport_used")),
            Column("threads", int),
            *(Column(name, str) for name in ("messages", "preconditioner")),
        ),
        rates=(Column("steps_per_hour", float, "timesteps/hour"),),
        energy=Column("joules_per_node_step", float, "nJ a node and step"),
        panel=("steps_per_hour", "timesteps/hour"),
        meaning=(
            "A step of unsteady flow is a time step with all its Newton iterations; a step of steady flow "
            "is one Newton iteration. Efficiency is the rate a rank over the rate of one rank alone. "
            "Results on several ranks equal those on one to the tolerance of the solver, not bit for bit."
        ),
        nearness=nearness,
    )

    def put(self, table: dict[str, Any], axis: str, value: Any) -> None:
        """Set an axis in the table flow of a case's data: elements are cells, each of six tetrahedra."""
        if axis == "messages":
            table["messages"] = value
        elif axis == "preconditioner":
            table.setdefault("linear", {})["preconditioner"] = value
        elif isinstance(table.get("box"), dict):
            if isinstance(value, tuple) and len(value) != len("xyz"):
                raise InputError(
                    "out of range",
                    location=f"elements = {plain(value)}",
                    allowed="a number, or three in a list of their own: [[8, 8, 16]]",
                )
            table["box"]["cells"] = list(value) if isinstance(value, tuple) else [value] * 3
        elif isinstance(table.get("cylinder_channel"), dict) and isinstance(value, int):
            table["cylinder_channel"]["resolution"] = value
        else:
            raise InputError(
                "the case has neither a box nor a cylinder channel, whose cells it sets",
                location="elements",
                remedy="give the case a table flow.box or flow.cylinder_channel, or remove the axis",
            )

    def problem(self, case: FlowCase, ranks: int) -> Layout:
        """The mesh of a case."""
        check_ranks(case, ranks)
        table = case.flow
        count = elements_of(table)
        if table.box is not None:
            nodes: tuple[int, ...] = table.box.cells
        elif table.cylinder_channel is not None:
            nodes = (table.cylinder_channel.resolution,)
        else:
            nodes = (count,)
        columns = {
            "elements": spelled(nodes),
            "tetrahedra": count,
            "preconditioner": table.linear.preconditioner,
        }
        return Layout(nodes, (ranks,), columns, f"{count} tetrahedra")

    def enlarge(self, case: FlowCase, table: dict[str, Any], ranks: int) -> None:
        """Let the box of a case grow."""
        box = case.flow.box
        if box is None:
            raise InputError(
                "it doubles a box, and the case has none",
                location="growth = type1",
                remedy="give the case a table flow.box",
            )
        if box.grading != (1.0, 1.0, 1.0) or box.to_walls:
            raise InputError(
                "it needs cells of one size",
                location="growth = type1",
                remedy="remove flow.box.grading and flow.box.to_walls",
            )
        double_box(table["box"], "cells", box, ranks)

    def rates(self, case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
        """Steps an hour."""
        return {"steps_per_hour": _SECONDS_AN_HOUR / seconds}
