"""What studies sweep of blood: the lattice, cells and their coupling, and a vessel that grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haloscope.case.tables import check
from haloscope.errors import InputError
from haloscope.solvers.blood.case import FLOPS_A_POINT, BloodCase
from haloscope.solvers.blood.case_vessels import Channel, Tube
from haloscope.solvers.blood.estimate import check_ranks
from haloscope.solvers.sweeping import (
    Column,
    Columns,
    Layout,
    doublings,
    spelled,
    transport_check,
)

OWN_AXES = ("spacing", "size", "hematocrit", "delta", "precision")
MACHINE_AXES: tuple[str, ...] = ()
GROWTHS = ("strong", "type1")
ALONE: Mapping[str, Any] = {}
SAME_BITS = ("streaming",)
check_transport = transport_check("repacked")
COLUMNS = Columns(
    problem=(
        Column("vessel", str),
        Column("points", int),
        Column("spacing", float, "spacing (um)"),
        Column("hematocrit", float),
    ),
    options=(
        *(Column(name, str) for name in ("transport", "transport_used")),
        Column("overlap", bool),
        Column("graphs", bool),
        Column("threads", int),
        Column("precision", str),
        Column("collision", str),
        Column("delta", str),
        Column("streaming", str),
    ),
    rates=(Column("mlups", float, "MLUPS"), Column("gflop_s", float, "GFlop/s")),
    energy=Column("joules_per_point_step", float, "nJ a point and step"),
    panel=("mlups", "MLUPS"),
    meaning=(
        "A point is one of the lattice, inside the vessel. MLUPS are million point updates a "
        "second, cells included; GFlop/s counts the fluid's collisions alone. Efficiency is the "
        "rate of a rank over that of one alone."
    ),
    size="points",
    peak="mlups",
)


def put(table: dict[str, Any], axis: str, value: Any) -> None:
    """Set an axis in the table blood of a case's data."""
    if axis == "spacing":
        table["spacing_um"] = value
    elif axis == "hematocrit":
        if not table.get("cells"):
            raise InputError(
                "hematocrit is that of cells; give the case a [[blood.cells]] table, or remove the "
                "axis"
            )
        table["cells"][0]["hematocrit"] = value
    elif axis == "size":
        if not isinstance(table.get("channel"), dict) or not isinstance(value, tuple):
            raise InputError(
                "sizes are those of a channel, three in um in a list of their own: "
                "[[20.0, 20.0, 40.0]]; give the case a table blood.channel, or remove the axis"
            )
        table["channel"]["size_um"] = list(value)
    else:
        table[axis] = value


def lay_out(data: dict[str, Any], ranks: int, wanted: Any, growth: str) -> Layout:
    """Let the vessel of a case grow with its ranks: axes of a channel double in turn, z first."""
    case = _checked(data)
    if growth == "type1":
        _enlarge(case.blood.vessel, data["blood"], ranks)
        case = _checked(data)
    check_ranks(case, ranks)
    table = case.blood
    points = round(table.vessel.points(table.spacing))
    hematocrit = sum(kind.hematocrit for kind in table.cells)
    vessel = type(table.vessel).__name__.lower()
    if isinstance(table.vessel, Channel):
        vessel = f"{spelled(table.vessel.size_um)} um"
    columns = {
        "vessel": vessel,
        "points": points,
        "spacing": table.spacing_um,
        "hematocrit": hematocrit,
    }
    cells = f", hematocrit {hematocrit:g}" if table.cells else ""
    return Layout((points,), (ranks,), columns, f"{vessel}, {points} points{cells}")


def _enlarge(vessel: object, table: dict[str, Any], ranks: int) -> None:
    if isinstance(vessel, Channel):
        factors = doublings(ranks, (2, 1, 0))
        sizes = zip(vessel.size_um, factors, strict=True)
        table["channel"]["size_um"] = [size * factor for size, factor in sizes]
    elif isinstance(vessel, Tube):
        table["tube"]["length_um"] = vessel.length_um * ranks
    else:
        raise InputError(
            "growth = type1 enlarges a channel or a tube; give the case a table blood.channel or "
            "blood.tube"
        )


def rates(case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
    """Point updates and operations a second."""
    flops = FLOPS_A_POINT[case["blood"]["collision"]]
    return {"mlups": cells / seconds / 1e6, "gflop_s": flops * cells / seconds / 1e9}


def _checked(data: dict[str, Any]) -> BloodCase:
    case = check(data, BloodCase, "case")
    assert isinstance(case, BloodCase)
    return case
