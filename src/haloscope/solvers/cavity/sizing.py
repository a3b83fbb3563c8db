"""Size of a cavity case: memory and work before a run, cuts over ranks, and the axes of studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haloscope.case.tables import Machine
from haloscope.mesh.blocks import AXES, Triple, arrange
from haloscope.solvers.cavity.block_nodes import partition
from haloscope.solvers.cavity.case import CavityCase, Flow
from haloscope.solvers.sweeping import (
    TRANSPORTS,
    Column,
    Columns,
    Layout,
    Sweeping,
    doublings,
    plain,
    require_transport,
    spelled,
)


def estimate(case: CavityCase) -> dict[str, float]:
    """Memory and work of a case, before anything is allocated.

    Returns: ``memory_bytes`` held on the devices (two copies of the fields, averages) and
    ``bytes_per_step`` moved at least.
    """
    flow = Flow(case.cavity)
    nx, ny, nz = flow.nodes
    fields = case.cavity.dimensions + 2
    value = 4 if case.cavity.precision == "single" else 8
    padded = (nx + 12) * (ny + 2) * (nz + (2 if nz > 1 else 0))
    memory = 2.0 * fields * value * padded
    if case.output.average is not None:
        memory += 8.0 * fields * nx * ny * nz
    return {
        "memory_bytes": memory,
        "bytes_per_step": 2.0 * fields * value * (nx - 2) * (ny - 2) * max(1, nz - 2),
    }


def check_ranks(case: CavityCase, ranks: int) -> None:
    """Refuse a number of ranks that the grid cannot be cut for."""
    partition(case, ranks)


# Transports that can send a plane by itself, without packing it.
_BARE_TRANSPORTS = {"cpu": ("auto", "host", "staged"), "cuda": ("auto", "staged", "peer")}


def _enlarge(case: CavityCase, table: dict[str, Any], nodes: Triple, factors: Triple) -> None:
    """Multiply the nodes along each axis; nodes keep their distance."""
    size = case.cavity.size
    axes = [axis for axis in range(3) if nodes[axis] > 1]
    sizes = size if isinstance(size, tuple) else (size,) * len(axes)
    grown = [nodes[axis] * factors[axis] for axis in axes]
    table["nodes"] = grown
    table["size"] = [
        length * (n - 1) / (nodes[axis] - 1)
        for axis, n, length in zip(axes, grown, sizes, strict=True)
    ]


class CavitySweeping(Sweeping[CavityCase]):
    """Studies of cavities."""

    CASE = CavityCase
    OWN_AXES = ("nodes", "precision", "time_step")
    MACHINE_AXES = ("decomposition", "packing", "widths", "progress")
    GROWTHS = ("strong", "type1", "type2")
    ALONE: Mapping[str, Any] = {"decomposition": [1, 1, 1]}
    COLUMNS = Columns(
        problem=(Column("decomposition", str), Column("nodes", str)),
        options=(
            *(Column(name, str) for name in ("transport", "transport_used", "packing", "widths")),
            Column("overlap", bool),
            Column("progress", str),
            Column("graphs", bool),
            Column("precision", str),
            Column("time_step", str),
        ),
        rates=(Column("mcells_s", float, "Mcells/s"), Column("ssspnt", float)),
        energy=Column("joules_per_cell_step", float, "nJ a cell and step"),
        panel=("ssspnt", "ssspnt (1e-7 nodes / (ranks s))"),
        meaning=(
            "ssspnt is 1e-7 nodes steps / (ranks seconds). Efficiency is ssspnt over its value on one "
            "rank."
        ),
    )

    def lay_out(self, data: dict[str, Any], ranks: int, wanted: Any, growth: str) -> Layout:
        """Put the grid and the blocks for a rank count into the data of a case."""
        # The grid grows as in Table 1 of Xue and Roy (type 1: the axes double in turn, the slowest
        # first) or as in their Table 2 (type 2: each axis by the blocks along it), and the size with
        # it, so that nodes keep their distance.
        machine = data["machine"]
        machine["decomposition"] = "auto"
        case = self.checked(data)
        nodes = partition(case, 1).nodes
        if isinstance(wanted, str) and wanted in AXES:
            wanted = tuple(ranks if axis == wanted else 1 for axis in AXES)
        elif not isinstance(wanted, str):
            wanted = tuple(wanted)
        factors: Triple = (1, 1, 1)
        if growth == "type1":
            factors = doublings(ranks, [axis for axis in (2, 1, 0) if nodes[axis] > 1])
        elif growth == "type2":
            wanted = factors = arrange(nodes, ranks, wanted).parts
        if factors != (1, 1, 1):
            _enlarge(case, data["cavity"], nodes, factors)
        machine["decomposition"] = plain(wanted)
        layout = self.problem(self.checked(data), ranks)
        machine["decomposition"] = list(layout.parts)
        return layout

    def problem(self, case: CavityCase, ranks: int) -> Layout:
        """The grid of a case in its blocks."""
        blocks = partition(case, ranks)
        columns = {"decomposition": spelled(blocks.parts), "nodes": spelled(blocks.nodes)}
        description = f"{columns['nodes']} nodes as {columns['decomposition']}"
        return Layout(blocks.nodes, blocks.parts, columns, description)

    def check_transport(self, machine: Machine, layout: Layout) -> None:
        """Refuse a transport that cannot send planes that are not packed, where some are not."""
        device, parts = machine.device, layout.parts
        packed = {"auto": parts, "all": parts, "x": parts[:1], "none": ()}[machine.packing]
        bare = max(parts[len(packed) :], default=1) > 1
        if max(parts) > 1:
            allowed = _BARE_TRANSPORTS[device] if bare else TRANSPORTS[device]
            where = f"device {device} and packing = {machine.packing}"
            require_transport(machine.transport, allowed, where)

    def rates(self, case: Mapping[str, Any], cells: int, seconds: float) -> dict[str, float]:
        """Millions of inner nodes a second."""
        return {"mcells_s": cells / seconds / 1e6}
