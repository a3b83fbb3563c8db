"""Kernels of cavity.cpp: compile-time constants, struct Physics and the arrays that they work on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from haloscope.device.declarations import Constants
from haloscope.device.interface import Array, Device, Kernel
from haloscope.device.program import Field
from haloscope.mesh.blocks import Triple
from haloscope.solvers.cavity import block_nodes
from haloscope.solvers.cavity.block_nodes import BlockNodes
from haloscope.solvers.cavity.case import Flow

SOURCE = Path(__file__).with_name("cavity.cpp")

PHYSICS = (
    *("ax", "ay", "az", "nx", "ny", "nz", "n0", "tx", "ty", "tz", "t0", "dx", "dy", "dz"),
    *("gx", "gy", "gz", "bx", "by", "bz", "tref", "floor2", "rho", "cfl", "diffusive", "cell"),
)
"""Members of cavity.cpp's struct Physics."""

PARTS = ("core", "rim", "core walls", "rim walls", "ghosts")
"""Parts of a state: nodes near a cut, whose values neighbours wait for, are the rim; walls at the ends of
their rows, which a GPU's update may store beside them, are apart from those of the core."""

LEAST_ROOT = {"double": 2.0**-970, "single": 2.0**-101}
"""Least number that root_of_normal of the kernels' dialect takes, by precision."""


def kernel_constants(
    flow: Flow, device_kind: str, axes: Triple = (0, 1, 2), cut: Collection[int] = ()
) -> dict[str, int | float | str]:
    """Compile-time constants of cavity.cpp for a case."""
    table = flow.table
    active = [g != 0 and table.expansion > 0 for g in table.gravity]
    real = "float" if table.precision == "single" else "double"
    constants: dict[str, int | float | str] = {
        "real": real,
        "DIMENSIONS": table.dimensions,
        "ROWS_ALONG": axes[0],
        "PLANES_ALONG": axes[2],
        "LOCAL_STEP": int(table.time_step == "local"),
        "RESCALE": int(table.rescale_pressure == "step"),
        "GRAVITY_X": int(active[0]),
        "GRAVITY_Y": int(active[1]),
        "GRAVITY_Z": int(active[2]),
    }
    if device_kind != "cpu":
        constants |= block_nodes.kernel_constants(real)
        # Code for cuts takes registers, which cases without any do without.
        constants |= {"CUT_Y": int(axes[1] in cut), "CUT_Z": int(axes[2] in cut)}
    return constants


def physics_values(flow: Flow) -> dict[str, float]:
    """Values of cavity.cpp's struct Physics for a case."""
    table = flow.table
    h = flow.spacing
    axes = range(table.dimensions)
    q = dict.fromkeys(PHYSICS, 0.0)
    nu, alpha = table.kinematic_viscosity, flow.alpha
    for i in axes:
        axis = "xyz"[i]
        q[f"a{axis}"] = 0.5 / h[i]
        q[f"n{axis}"] = nu / h[i] ** 2
        q[f"t{axis}"] = alpha / h[i] ** 2
        q[f"d{axis}"] = 0.5 * table.damping / h[i]
        q[f"g{axis}"] = 0.5 / (h[i] * table.density)
        q[f"b{axis}"] = -table.expansion * table.gravity[i]
    q["n0"] = -2 * (q["nx"] + q["ny"] + q["nz"])
    q["t0"] = -2 * (q["tx"] + q["ty"] + q["tz"])
    q["tref"] = flow.reference_temperature
    # Under roots are four times the square of the artificial speed of sound, and that in 1 / (2 h).
    coarse = max(1.0, 2 * min(h[i] for i in axes)) ** 2
    least = LEAST_ROOT[table.precision] / 4 * coarse
    q["floor2"] = max(flow.kappa * flow.reference_velocity**2, least)
    q["rho"] = table.density
    q["cfl"] = table.cfl
    spread = sum(1 / h[i] ** 2 for i in axes)
    q["diffusive"] = 1 / (2 * max(nu, alpha) * spread)
    q["cell"] = 2 * min(nu, alpha) / max(h[i] for i in axes) ** 2
    return q


@dataclass(frozen=True)
class Operands:
    """Compile-time constants and arguments of the kernels."""

    # Where values lie.
    device: Device
    nodes: BlockNodes
    constants: Constants  # Compile-time constants of cavity.cpp
    states: tuple[Array, Array]  # Two arrays of all fields; a step reads one and writes the other
    fields: tuple[Field, Field]  # The same with their parts; see PARTS
    physics: dict[str, float]  # Members of struct Physics
    step_size: Array  # The global time step in s, one value on the device
    # Pressure at the centre in Pa, which a step may subtract; one value on the device.
    reference: Array

    def kernel(self, name: str, others: Constants | None = None) -> Kernel:
        """A kernel of cavity.cpp, with other values of some constants where these are given."""
        return self.device.kernel(SOURCE, name, {**self.constants, **(others or {})})


def allocate(flow: Flow, device: Device, nodes: BlockNodes, *, shared: bool) -> Operands:
    """Operands of a case; other processes of this host can map shared states."""
    dtype = nodes.dtype
    states = nodes.allocate(device, shared=shared), nodes.allocate(device, shared=shared)
    old, fresh = (Field(f"state {n}", state, place=PARTS) for n, state in enumerate(states))
    cut = {side.axis for side in nodes.block.neighbours}
    return Operands(
        device=device,
        nodes=nodes,
        constants=kernel_constants(flow, device.kind, nodes.layout.axes, cut),
        states=states,
        fields=(old, fresh),
        physics=physics_values(flow),
        step_size=device.zeros((1,), dtype),
        reference=device.zeros((1,), dtype),
    )
