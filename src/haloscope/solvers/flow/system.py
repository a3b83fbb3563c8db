"""The system that a rank of a flow case solves: mesh, boundary values, equations, linear solver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.case.tables import Machine
from haloscope.device.interface import Device
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.node_parts import NodePart, node_part_on_ranks
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.flexible_gmres import Preconditioner, Product
from haloscope.numerics.krylov.smoothers import BlockIlu, ColouredIlu, PointBlocks
from haloscope.numerics.krylov.two_level import TwoLevel
from haloscope.numerics.shared_nodes import SharedNodes, SharedProduct, transport_of
from haloscope.regions import SetupPhase
from haloscope.solvers.flow.boundary_equations import BoundaryConditions
from haloscope.solvers.flow.boundary_integrals import boundary_areas, exact_sums
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.conditions import (
    BoundaryValues,
    OutsidePressure,
    Resistance,
    Slip,
    Velocity,
    conditions_of,
)
from haloscope.solvers.flow.equations.equations import (
    SLAB_UNKNOWNS,
    UNKNOWNS,
    Equations,
    FlowEquations,
    Forces,
    MatrixFreeEquations,
    SlabEnds,
    SlabEquations,
    UnstoredRows,
)
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.meshes import make_mesh

_MESHING = SetupPhase("making and sharing out the mesh")
# When velocities of a closed vessel are looked at, and what share of all that crosses boundaries or
# runs along them, with these velocities, may be too much or too little.
_TIMES_OF_BALANCE = 9
_UNBALANCED = 0.05


@dataclass(frozen=True)
class System:
    """All that steps need."""

    # This rank's mesh, and who shares which nodes.
    part: NodePart
    shared: SharedNodes
    boundary_values: BoundaryValues
    # What this makes of the equations; None of space-time slabs, which take velocities and outside
    # pressures only.
    conditions: BoundaryConditions | None
    reactions: Forces  # Whose residuals at walls are forces
    # The matrix, and what solves.
    rows: BlockRows
    newton: Newton
    preconditioner: str  # Its name
    lines: tuple[str, ...]  # What there is to say of the mesh, on rank 0

    @property
    def device(self) -> Device:
        """Where vectors lie."""
        return self.shared.device


def unknowns_of(table: FlowTable) -> int:
    """Unknowns of a node in a case's matrix."""
    return SLAB_UNKNOWNS if table.time.scheme == "space-time" else UNKNOWNS


def preconditioner_of(table: FlowTable) -> str:
    """Name of a case's preconditioner."""
    name = table.linear.preconditioner
    return "two-level" if name == "auto" else name


def make_system(table: FlowTable, machine: Machine, device: Device, world: World) -> System:
    """Set up a case on its ranks; all of them call this."""
    with _MESHING:
        part, lines = node_part_on_ranks(world, lambda: make_mesh(table), table.partition)
    transport = transport_of(table.messages, machine.transport)
    shared = SharedNodes(world, device, part.node_numbers, transport)
    boundary_values = BoundaryValues(part, shared, conditions_of(table, world, part))
    _refer_pressure(table, world, part, boundary_values)
    if table.pressure_at is not None:
        _require_balance(table, part, shared, boundary_values)
    slabs = table.time.scheme == "space-time"
    pattern = pattern_of(device, part.tets, len(part.nodes))
    rows: BlockRows
    if table.linear.product == "matrix-free":
        rows = UnstoredRows(device, pattern)
    else:
        rows = BlockRows(device, pattern, unknowns_of(table))
    media = [table.medium(zone) for zone in part.zone_names]
    name = preconditioner_of(table)
    preconditioner = _preconditioner(name, rows, shared, part)
    linear = table.linear
    settings = NewtonSettings(
        # A step of steady flow is one iteration.
        iterations=1 if table.steady else table.newton.iterations,
        tolerance=0.0 if table.steady else table.newton.tolerance,
        linear_tolerance=linear.tolerance,
        linear_iterations=linear.iterations,
        restart=linear.restart,
        keep_preconditioner=linear.keep_preconditioner,
    )
    mesh = part.nodes, media, part.zones
    terms: dict[str, Any] = {"lsic": table.lsic, "linearise_tau": table.newton.linearise_tau}
    product: Product | None = None
    conditions: BoundaryConditions | None = None
    equations: Equations
    reactions: Forces
    if slabs:
        _require_supported(boundary_values, slabs=True)
        equations = slab = SlabEquations(rows, *mesh, **terms)
        reactions = SlabEnds(slab)
    else:
        if isinstance(rows, UnstoredRows):
            _require_supported(boundary_values, slabs=False)
            flow: FlowEquations = MatrixFreeEquations(rows, *mesh, **terms)
            product = SharedProduct(rows, shared)
        else:
            flow = FlowEquations(rows, *mesh, **terms)
        conditions = BoundaryConditions(flow, part, shared, boundary_values)
        equations, reactions = conditions.equations, conditions.reactions
        product = conditions.product or product
    newton = Newton(equations, shared, preconditioner, settings, product=product)
    return System(part, shared, boundary_values, conditions, reactions, rows, newton, name, lines)


def _require_supported(boundary_values: BoundaryValues, *, slabs: bool) -> None:
    """Refuse conditions that slabs, or matrices of own blocks alone, do not support."""
    for name, one in boundary_values.conditions.items():
        if slabs and isinstance(one, Slip):
            raise InputError(
                "space-time slabs do not support this condition",
                location=f"flow.boundaries.{name}",
                allowed="velocities, slip on planes across x, y or z, and pressures and tractions "
                "without backflow or straight",
                remedy='set flow.time.scheme = "bdf2" or "generalised-alpha"',
            )
        straight = isinstance(one, OutsidePressure | Resistance) and one.straight
        if not slabs and (isinstance(one, Slip) or straight):
            raise InputError(
                "slip and straight outlets need a stored matrix",
                location=f"flow.boundaries.{name}",
                remedy='set flow.linear.product = "stored"',
            )


def _preconditioner(
    name: str, rows: BlockRows, shared: SharedNodes, part: NodePart
) -> Preconditioner:
    """The one of a name, of the matrix alone."""
    if name == "two-level" and rows.device.kind == "cpu":
        return TwoLevel(rows, shared, part.nodes)
    if name == "two-level":
        # Colours cost launches: on the small matrices of coarse levels more than they save.
        def smoother(of: BlockRows, nodes: SharedNodes) -> Preconditioner:
            return ColouredIlu(of, nodes) if of is rows else PointBlocks(of, nodes)

        return TwoLevel(rows, shared, part.nodes, make_smoother=smoother)
    if name == "coloured-ilu":
        return ColouredIlu(rows, shared)
    return BlockIlu(rows, shared) if name == "block-ilu" else PointBlocks(rows, shared)


def _refer_pressure(
    table: FlowTable, world: World, part: NodePart, boundary_values: BoundaryValues
) -> None:
    """Give the pressure a value somewhere, or refuse a case in which it has none."""
    if table.pressure_at is None:
        if not boundary_values.has_pressure:
            raise InputError(
                "the pressure has no reference: all boundaries have velocities, so that any "
                "constant can be added to it",
                location="flow.boundaries",
                remedy='make one boundary "open" or give it a pressure, or set flow.pressure_at '
                "to the point where the pressure is 0",
            )
        return
    if boundary_values.has_pressure:
        raise InputError(
            "it is for vessels without an outside pressure, and this case has one",
            location="flow.pressure_at",
            remedy="leave it out",
        )
    distances = np.linalg.norm(part.nodes - np.array(table.pressure_at), axis=1)
    nearest = -world.largest(-float(distances.min()))
    numbers = part.node_numbers[distances == nearest]
    lowest = -world.largest(-float(numbers.min(initial=part.whole_nodes)))
    boundary_values.fix_pressure(int(lowest))


def _require_balance(
    table: FlowTable, part: NodePart, shared: SharedNodes, boundary_values: BoundaryValues
) -> None:
    """Refuse a closed vessel that is given much more to let in than out, or the other way round.

    Where the pressure is fixed, any volume would vanish or come into being. What meshes make of
    profiles may miss a little.
    """
    areas = [
        boundary_areas(part, shared, name)
        for name, one in sorted(boundary_values.conditions.items())
        if isinstance(one, Velocity) and one.profile is not None
    ]
    end = table.time.end
    for time in [0.0] if end is None else np.linspace(0.0, end, _TIMES_OF_BALANCE).tolist():
        state = np.zeros(len(part.nodes) * UNKNOWNS)
        state[boundary_values.numbers] = boundary_values.values(time)
        velocities = state.reshape(-1, UNKNOWNS)[:, :3]
        terms = [np.zeros((1, 2))]
        for one in areas:
            own = velocities[one.nodes[one.counted]]
            outward = np.einsum("nx,nx->n", own, one.vectors[one.counted])
            passing = np.linalg.norm(own, axis=1) * one.areas[one.counted]
            terms.append(np.column_stack([outward, passing]))
        net, whole = exact_sums(shared.world, np.concatenate(terms)).tolist()
        if abs(net) > _UNBALANCED * whole:
            more, less = ("in", "out") if net < 0 else ("out", "in")
            raise InputError(
                f"it is for closed vessels, but at {time:g} s the velocities of the boundaries "
                f"let {abs(net):.3g} m^3/s more {more} than {less}",
                location="flow.pressure_at",
                remedy='make one boundary "open" or give it a pressure in place of '
                "flow.pressure_at, or give velocities that balance",
            )
