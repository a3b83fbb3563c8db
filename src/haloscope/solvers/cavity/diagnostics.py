"""Numbers by which cavity flows are compared: Nusselt numbers, velocity maxima, profiles; the pressure at the centre."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from haloscope.device.interface import Array
from haloscope.device.program import Field, Step
from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import SIDES, Side, Triple, collect, node_values, whole
from haloscope.solvers.cavity.block_nodes import Operands
from haloscope.solvers.cavity.case import Flow

if TYPE_CHECKING:
    from haloscope.solvers.cavity.solver import CavitySolver


class CentrePressure:
    """The pressure at the centre node, which one rank owns."""

    def __init__(self, grid: Triple, operands: Operands, world: World) -> None:
        self._operands, self._world = operands, world
        block = operands.nodes.block
        centre = [n // 2 for n in grid]
        self._owned = all(
            a <= c < b for a, c, b in zip(block.start, centre, block.stop, strict=True)
        )
        owner = np.array([world.rank if self._owned else 0], np.int64)
        self._owner = int(world.sum(owner)[0])
        self._place = 0
        if self._owned:
            x, y, z = (c - a for c, a in zip(centre, block.start, strict=True))
            self._place = operands.nodes.index(x, y, z)
        self._kernel = operands.kernel("keep_reference")

    def add_to(self, step: Step, state: Field) -> None:
        """Bring the pressure of a state to every rank, for the kernel to subtract."""
        if self._owned:
            step.kernel(
                self._kernel,
                extent=(1,),
                state=state.array,
                reference=self._operands.reference,
                centre=self._place,
            )
        if self._world.size > 1:
            reference = Field("reference", self._operands.reference)
            step.host("share the reference", self._share, reads=[reference], writes=[reference])

    def _share(self) -> None:
        device, reference = self._operands.device, self._operands.reference
        value = device.to_host(reference)
        reference[...] = device.from_host(self._world.broadcast(value, self._owner))

    def of(self, state: Array) -> float:
        """The pressure of a state on every rank, in Pa."""
        value = np.zeros(1)
        if self._owned:
            picked = state[self._place : self._place + 1]
            value = self._operands.device.to_host(picked).astype("f8")
        return float(self._world.broadcast(value, self._owner)[0])


PUBLISHED_2D = {1e3: 1.118, 1e4: 2.243, 1e5: 4.519, 1e6: 8.800}
"""Mean Nusselt numbers of the square cavity (de Vahl Davis 1983)."""
PUBLISHED_3D = {1e3: 1.0700, 1e4: 2.0542, 1e5: 4.3370, 1e6: 8.6407}
"""Mean Nusselt numbers on the hot wall of the cube with adiabatic side walls (Tric et al. 2000)."""
PUBLISHED_BELOW = {1e4: 2.158}
"""Mean Nusselt number of the square heated from below (Ouertatani et al. 2008)."""
# By the walls that heat and cool, and the dimensions.
_BENCHMARKS: dict[tuple[tuple[str, ...], tuple[str, ...], int], tuple[dict[float, float], str]] = {
    (("x_low",), ("x_high",), 2): (PUBLISHED_2D, "de Vahl Davis 1983"),
    (("x_low",), ("x_high",), 3): (PUBLISHED_3D, "Tric et al. 2000"),
    (("y_low",), ("y_high",), 2): (PUBLISHED_BELOW, "Ouertatani et al. 2008"),
}


def _trapezoid(values: np.ndarray, axis: int) -> np.ndarray:
    """Mean over a closed interval by the trapezoidal rule."""
    inner = np.moveaxis(values, axis, 0)
    if len(inner) == 1:
        return np.asarray(inner[0])
    total = inner[1:-1].sum(axis=0) + 0.5 * (inner[0] + inner[-1])
    return np.asarray(total / (len(inner) - 1))


def local_nusselt(flow: Flow, side: Side, layers: np.ndarray) -> np.ndarray:
    """Local Nusselt number on a wall, positive for heat flow from hot to cold.

    `layers`: temperature on the three nodes next to the wall in K, from the wall inwards along the
    last axis. The derivative is the one-sided one of second order.
    """
    # Returns: -dT/dn L / dT with the inward normal n on a wall that heats the fluid, its negative
    # on a wall that cools it; L is the distance of the hot and the cold wall.
    layers = layers.astype("f8")
    slope = -3 * layers[..., 0] + 4 * layers[..., 1] - layers[..., 2]
    gradient = slope / (2 * flow.spacing[side.axis])
    number = -gradient * flow.distance / flow.temperature_difference
    return np.asarray(number if flow.is_warm(side) else -number)


def _wall_layers(solver: CavitySolver, side: Side) -> np.ndarray | None:
    """Temperature on the three nodes next to a wall, those last, on rank 0; None elsewhere."""
    region = list(whole(solver.blocks))
    nodes = solver.flow.nodes[side.axis]
    region[side.axis] = slice(0, 3) if side.direction < 0 else slice(nodes - 3, nodes)
    layers = collect(
        solver._world, solver.blocks, solver.owned("T"), (region[0], region[1], region[2])
    )
    if layers is None:
        return None
    inward = layers if side.direction < 0 else np.flip(layers, 2 - side.axis)
    return np.moveaxis(inward, 2 - side.axis, -1)


def wall_nusselt(solver: CavitySolver) -> dict[Side, tuple[float, float]]:
    """Nusselt numbers of all walls with a temperature; the same on every rank."""
    flow = solver.flow
    if not flow.is_heated:
        return {}
    numbers = {}
    for side in SIDES:
        if flow.is_warm(side) is None:
            continue
        layers = _wall_layers(solver, side)
        pair = np.zeros(2)
        if layers is not None:
            local = local_nusselt(flow, side, layers)
            pair[0] = _trapezoid(_trapezoid(local, 1), 0)
            pair[1] = _trapezoid(middle(local, 0), 0)
        pair = solver._world.broadcast(pair)
        numbers[side] = (float(pair[0]), float(pair[1]))
    return numbers


def heat_imbalance(solver: CavitySolver) -> float:
    """Heat that enters less heat that leaves, over the larger of the two; 0 without heat."""
    entering = leaving = 0.0
    for side, (mean, _) in wall_nusselt(solver).items():
        edges = [s for axis, s in enumerate(solver.flow.size) if axis != side.axis and s > 0]
        heat = mean * math.prod(edges)
        if not solver.flow.is_warm(side):
            heat = -heat
        entering, leaving = entering + max(heat, 0.0), leaving - min(heat, 0.0)
    largest_heat = max(entering, leaving)
    return (entering - leaving) / largest_heat if largest_heat > 0 else 0.0


def _peak(low: float, middle: float, high: float) -> tuple[float, float]:
    """Height of the parabola through three values and its place, in nodes from the middle."""
    curvature = low - 2 * middle + high
    if curvature == 0.0:
        return middle, 0.0
    offset = 0.5 * (low - high) / curvature
    return middle - 0.25 * (low - high) * offset, offset


def largest(solver: CavitySolver, name: str) -> tuple[float, tuple[float, float, float]]:
    """Largest magnitude of a velocity and its place in m, refined by parabolas along the axes.

    A largest value on a wall is the wall's own and is not refined. The same on every rank; of
    equal values that of the smallest node number counts.
    """
    owned = np.abs(solver.owned(name))
    at = np.unravel_index(int(np.argmax(owned)), owned.shape)
    mine = float(owned[at])
    world = solver._world
    most = world.largest(mine)
    nx, ny, _ = solver.flow.nodes
    x, y, z = (int(a) + b for a, b in zip(reversed(at), solver.block.start, strict=True))
    number = float(x + nx * (y + ny * z)) if mine == most else np.inf
    best = int(-world.largest(-number))
    node: Triple = (best % nx, best // nx % ny, best // (nx * ny))
    stencil = [node]
    for axis in range(3):
        for step in (-1, 1):
            other = list(node)
            other[axis] = min(max(node[axis] + step, 0), solver.flow.nodes[axis] - 1)
            stencil.append((other[0], other[1], other[2]))
    values = np.abs(node_values(world, solver.blocks, owned, stencil))
    height = float(values[0])
    place = []
    axes = range(solver.flow.table.dimensions)
    inner = all(0 < node[axis] < solver.flow.nodes[axis] - 1 for axis in axes)
    for axis in range(3):
        position = node[axis]
        offset = 0.0
        if inner and axis in axes:
            low, high = float(values[1 + 2 * axis]), float(values[2 + 2 * axis])
            top, offset = _peak(low, float(values[0]), high)
            height += top - float(values[0])
        place.append((position + offset) * solver.spacing[axis])
    return height, (place[0], place[1], place[2])


def line_peak(values: np.ndarray, spacing: float) -> tuple[float, float]:
    """Largest value on a line and its place in m, refined by a parabola."""
    i = int(np.argmax(values))
    if 0 < i < len(values) - 1:
        height, offset = _peak(*(float(v) for v in values[i - 1 : i + 2]))
        return height, (i + offset) * spacing
    return float(values[i]), i * spacing


def middle(values: np.ndarray, axis: int) -> np.ndarray:
    """Values midway along an axis: the middle node, or the mean of the two next to it."""
    n = values.shape[axis]
    a = np.take(values, (n - 1) // 2, axis)
    return np.asarray(a if n % 2 else 0.5 * (a + np.take(values, n // 2, axis)))


def measure(solver: CavitySolver) -> dict[str, float]:
    """Diagnostics of the current state; the same on every rank."""
    # Returns: ``nusselt_x_low`` and so on: mean over each wall with a temperature;
    # ``nusselt_wall``: that of the (first) hot wall; ``nusselt_midline``: mean over the line on the
    # hot wall in the symmetry plane at mid-depth, which the literature calls mid-plane; ``u_max``,
    # ``v_max``, ``w_max``: largest velocity magnitudes in units of alpha / L (of the lid's speed
    # where a wall moves); ``speed_max``: largest speed of a node in m/s.
    flow, world = solver.flow, solver._world
    scalars: dict[str, float] = {}
    numbers = wall_nusselt(solver)
    hot = next((side for side in numbers if flow.is_warm(side)), None)
    if hot is not None:
        scalars["nusselt_wall"] = numbers[hot][0]
        if flow.table.dimensions == 3 and hot.axis < 2:
            scalars["nusselt_midline"] = numbers[hot][1]
    scalars |= {f"nusselt_{side.name}": mean for side, (mean, _) in numbers.items()}
    scale = flow.lid_velocity or flow.alpha / flow.distance
    for name in "uvw"[: flow.table.dimensions]:
        height, _ = largest(solver, name)
        scalars[f"{name}_max"] = height / scale
    squares = sum(solver.owned(name).astype("f8") ** 2 for name in "uvw"[: flow.table.dimensions])
    scalars["speed_max"] = float(np.sqrt(world.largest(float(np.max(squares)))))
    return scalars


def published_nusselt(flow: Flow) -> tuple[float, str] | None:
    """Published mean Nusselt number for a case, with its source, where there is one."""
    table = flow.table
    prandtl = table.kinematic_viscosity / flow.alpha
    warm, cool = (
        tuple(side.name for side in SIDES if flow.is_warm(side) is heats) for heats in (True, False)
    )
    known, source = _BENCHMARKS.get((warm, cool, table.dimensions), ({}, ""))
    uniform = all(wall.lowest == wall.highest for wall in flow.kelvin_ranges.values())
    standard = (
        uniform
        and abs(prandtl - 0.71) < 0.005
        and flow.lid_velocity == 0
        and len(set(flow.size[: table.dimensions])) == 1
        and table.gravity[0] == table.gravity[2] == 0
        and table.gravity[1] < 0
    )
    for rayleigh, value in known.items():
        if standard and abs(flow.rayleigh / rayleigh - 1) < 1e-3:
            return value, source
    return None


def headline(flow: Flow, scalars: Mapping[str, float], *, begun: bool, settled: bool) -> list[str]:
    """Lines for people on the main results."""
    lines = []
    numbers = {
        side: scalars[f"nusselt_{side.name}"] for side in SIDES if f"nusselt_{side.name}" in scalars
    }
    if numbers:
        warm = {side: number for side, number in numbers.items() if flow.is_warm(side)}
        cool = {side: number for side, number in numbers.items() if not flow.is_warm(side)}
        parts = [_walls_in_words("hot", warm), _walls_in_words("cold", cool)]
        published = published_nusselt(flow) if begun else None
        if published is not None:
            value, source = published
            parts[0] += (
                f" (published {value:.4f}, {source}: "
                f"{100 * (scalars['nusselt_wall'] / value - 1):+.2f} %"
            )
            parts[0] += ")" if settled else "; not steady yet)"
        line = "mean Nusselt number on " + ", on ".join(part for part in parts if part)
        if min(numbers.values()) < 0:
            line += " (below 0: heat flows from cold to hot)"
        lines.append(line)
    unit = "lid speed" if flow.lid_velocity else "alpha/L"
    peaks = ", ".join(
        f"{name} {scalars[f'{name}_max']:.4g}" for name in "uvw" if f"{name}_max" in scalars
    )
    lines.append(f"largest velocities in units of {unit}: {peaks}")
    return lines


def _walls_in_words(name: str, numbers: Mapping[Side, float]) -> str:
    """Nusselt numbers of the hot or the cold walls, with their keys where there are several."""
    if len(numbers) == 1:
        return f"the {name} wall {next(iter(numbers.values())):.4f}"
    keys = ", ".join(f"{side.name} {number:.4f}" for side, number in numbers.items())
    return f"the {name} walls {keys}" if keys else ""
