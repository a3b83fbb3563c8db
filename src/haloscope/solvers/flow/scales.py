"""Scales of a flow case: extent, velocity, Reynolds and Courant number; warnings on implausible ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import point_text
from haloscope.mesh.tets.node_parts import NodePart
from haloscope.mesh.tets.tets import CORNERS, FACE_NODES, area_vectors, tet_volumes
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.conditions import (
    BoundaryValues,
    MovingWall,
    Open,
    OutsidePressure,
    Resistance,
    Traction,
)
from haloscope.solvers.flow.equations.equations import UNKNOWNS, Medium
from haloscope.solvers.flow.equations.time_steps import Clock
from haloscope.solvers.flow.system import System
from haloscope.solvers.interface import DerivedNumber

Floats = NDArray[np.float64]

# Extents in m beyond which a unit of length is questioned, and those that a guess may lead to.
_LARGEST, _SMALLEST = 100.0, 1e-5
_LIKELY = (1e-3, 10.0)
_UNITS = (("millimetres", 1e-3), ("centimetres", 1e-2), ("micrometres", 1e-6), ("metres", 1.0))
# Reynolds number of an element above which the mesh resolves nothing of the flow.
_UNRESOLVED = 1e4
# Share of the motion of a moving wall that goes through its surface; less is the edges of facets.
_THROUGH = 0.2
# Elements of mean height that the flow crosses in a time step, above which steps are too long.
_LONG_STEP = 20.0
# Elements at once.
_AT_ONCE = 1 << 16
# Times at which signals and expressions are sampled: their spacing suits no period.
_SAMPLES = 24
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
# Friction of laminar flow: dp = 32 mu U length / diameter^2 (Hagen and Poiseuille).
_FRICTION = 32.0


@dataclass(frozen=True)
class MeshSizes:
    """Sizes of a whole mesh, in m."""

    extent: tuple[float, float, float]  # Along x, y, z
    volume: float  # In m^3
    # Height of the thinnest element, and its centre.
    least_height: float
    place: tuple[float, float, float]
    mean_height: float  # Mean over all elements


@dataclass(frozen=True)
class Drive:
    """The drive of the fluid."""

    velocity: float  # Largest velocity given on a boundary at a sampled time, in m/s
    pressure: float  # Largest difference of outside pressures at a time, in Pa
    force: float  # Largest body force per volume that pressure cannot balance, in N/m^3


def measure_mesh(world: World, part: NodePart) -> MeshSizes:
    """Sizes of the whole mesh; all ranks call this."""
    low = [-world.largest(-float(part.nodes[:, axis].min(initial=math.inf))) for axis in range(3)]
    high = [world.largest(float(part.nodes[:, axis].max(initial=-math.inf))) for axis in range(3)]
    least, element = math.inf, 0
    sums = np.zeros(3)
    for begin in range(0, len(part.tets), _AT_ONCE):
        tets = part.tets[begin : begin + _AT_ONCE]
        volumes = np.abs(tet_volumes(part.nodes, tets))
        faces = [area_vectors(part.nodes, tets[:, FACE_NODES[face]]) for face in range(CORNERS)]
        largest = np.max([np.linalg.norm(face, axis=1) for face in faces], axis=0)
        heights = 3 * volumes / largest
        sums += [volumes.sum(), heights.sum(), len(heights)]
        if heights.min() < least:
            least, element = float(heights.min()), begin + int(heights.argmin())
    whole = -world.largest(-least)
    centre = np.full(3, -math.inf)
    if len(part.tets) and least == whole:
        centre = part.nodes[part.tets[element]].mean(axis=0)
    x, y, z = (world.largest(float(value)) for value in centre)
    volume, height, count = world.sum(sums).tolist()
    extent = (high[0] - low[0], high[1] - low[1], high[2] - low[2])
    return MeshSizes(extent, volume, whole, (x, y, z), height / count)


def measure_drive(
    world: World,
    part: NodePart,
    boundary_values: BoundaryValues,
    media: Sequence[Medium],
    end: float,
) -> Drive:
    """Velocities, pressures and forces that a case gives until its end in s; all ranks call this."""
    velocity = pressure = 0.0
    is_velocity = boundary_values.numbers % UNKNOWNS < 3
    for time in sample_times(end):
        values = np.zeros(len(part.nodes) * UNKNOWNS)
        values[boundary_values.numbers[is_velocity]] = boundary_values.values(time)[is_velocity]
        speeds = np.linalg.norm(values.reshape(-1, UNKNOWNS)[:, :3], axis=1)
        velocity = max(velocity, float(speeds.max(initial=0.0)))
        low, high = _pressures(part, boundary_values, time)
        difference = world.largest(high) + world.largest(-low)
        pressure = max(pressure, difference if math.isfinite(difference) else 0.0)
    forces = {tuple(medium.density * f for f in medium.force) for medium in media}
    # In a closed vessel the pressure balances one force that is the same everywhere.
    closed = not any(isinstance(one, Open) for one in boundary_values.conditions.values())
    balanced = closed and len(forces) == 1
    force = 0.0 if balanced else max(math.hypot(*one) for one in forces)
    return Drive(world.largest(velocity), pressure, force)


def sample_times(end: float) -> list[float]:
    """Times from 0 to the end at which a case is looked at; only 0 of steady flow."""
    if not end:
        return [0.0]
    return [0.0, end, *(end * ((number * _GOLDEN) % 1.0) for number in range(1, _SAMPLES))]


def _pressures(part: NodePart, boundary_values: BoundaryValues, time: float) -> tuple[float, float]:
    """Least and largest pressure outside openings of this rank, in Pa."""
    low, high = math.inf, -math.inf
    for name, condition in boundary_values.conditions.items():
        triangles = part.boundaries[name]
        if not isinstance(condition, Open) or not len(triangles):
            continue
        x = part.nodes[triangles].mean(axis=1)
        if isinstance(condition, Resistance):
            start = condition.start if condition.compliance else 0.0
            values = np.array([condition.outside + start])
        elif isinstance(condition, Traction):
            normals = area_vectors(part.nodes, triangles)
            normals /= np.linalg.norm(normals, axis=1, keepdims=True)
            stress = condition.stress(x, time)
            along = np.einsum("nx,nx->n", stress, normals)
            shear = np.linalg.norm(stress - along[:, None] * normals, axis=1)
            values = np.concatenate([-along, -along + shear])
        else:
            assert isinstance(condition, OutsidePressure)
            outside = condition.pressure
            values = outside(x, time) if callable(outside) else np.array([outside])
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    return low, high


class FlowScales:
    """Scales that follow from a case before its first step; all ranks make one together.

    `state`: at the start, 4 numbers a node.
    """

    def __init__(
        self, table: FlowTable, system: System, state: Floats, clock: Clock | None
    ) -> None:
        self._table, self.clock = table, clock
        world, part = system.shared.world, system.part
        media = [table.medium(zone) for zone in part.zone_names]
        self.sizes = measure_mesh(world, part)
        end = 0.0 if table.time.end is None else table.time.end
        self.drive = measure_drive(world, part, system.boundary_values, media, end)
        # Area of boundaries to which the fluid sticks, in m^2.
        own = math.fsum(
            float(np.linalg.norm(area_vectors(part.nodes, triangles), axis=1).sum())
            for name, triangles in part.boundaries.items()
            if table.is_wall(name)
        )
        speeds = np.linalg.norm(state.reshape(-1, UNKNOWNS)[:, :3], axis=1)
        initial = world.largest(float(speeds.max(initial=0.0)))
        walls = float(world.sum(np.array([own]))[0])
        self._initial = 0.0 if table.steady else initial
        densest = max(media, key=lambda medium: medium.density / medium.viscosity)
        self.density, self.viscosity = densest.density, densest.viscosity
        volume = self.sizes.volume
        self.length = 4 * volume / walls if walls > 0 else math.cbrt(volume)
        self._length_origin = "4 volume / wall area" if walls > 0 else "cube root of the volume"
        # Scales in m/s and m.
        self.velocity, self._velocity_origin = self._velocity_scale()

    def _velocity_scale(self) -> tuple[float, str]:
        """Velocity in m/s, and its origin."""
        if max(self.drive.velocity, self._initial) > 0:
            if self.drive.velocity >= self._initial:
                return self.drive.velocity, "largest given"
            return self._initial, "largest initial"
        length = max(self.sizes.extent)
        pressure = max(self.drive.pressure, self.drive.force * length)
        without_friction = math.sqrt(2 * pressure / self.density)
        laminar = pressure * self.length**2 / (_FRICTION * self.viscosity * length)
        origin = "pressure difference" if self.drive.pressure >= pressure else "body force"
        return min(without_friction, laminar), f"from the {origin}"

    def reynolds(self, length: float) -> float:
        """Reynolds number with a length in m."""
        return self.density * self.velocity * length / self.viscosity

    def courant(self, height: float) -> float:
        """Elements of a height in m that the flow crosses in a time step."""
        return 0.0 if self.clock is None else self.velocity * self.clock.time_step / height

    def derived(self) -> list[DerivedNumber]:
        """Numbers by which users check the units of a case."""
        numbers = [
            DerivedNumber(f"extent {axis}", size, "m")
            for axis, size in zip("xyz", self.sizes.extent, strict=True)
        ]
        numbers += [
            DerivedNumber("density", self.density, "kg/m^3"),
            DerivedNumber("viscosity", self.viscosity, "Pa s"),
            DerivedNumber("least element height", self.sizes.least_height, "m"),
        ]
        if self.velocity > 0:
            numbers += [
                DerivedNumber(f"velocity scale ({self._velocity_origin})", self.velocity, "m/s"),
                DerivedNumber(f"length scale ({self._length_origin})", self.length, "m"),
                DerivedNumber("Reynolds number", self.reynolds(self.length)),
            ]
        if self.clock is not None:
            numbers.append(DerivedNumber("time step", self.clock.time_step, "s"))
            if self.velocity > 0:
                numbers.append(
                    DerivedNumber("largest Courant number", self.courant(self.sizes.least_height))
                )
        return numbers

    def warnings(self) -> list[str]:
        """Warnings about implausible scales, a line each."""
        warnings = []
        extent = " x ".join(f"{size:.4g} m" for size in self.sizes.extent)
        if not _SMALLEST <= max(self.sizes.extent) <= _LARGEST:
            warnings.append(f"warning: extent {extent}; {self._guess()}")
        of_element = self.reynolds(self.sizes.mean_height)
        if of_element > _UNRESOLVED:
            warnings.append(
                "warning: the mesh does not resolve this flow: the Reynolds number is "
                f"{self.reynolds(self.length):.3g}, and {of_element:.3g} with the mean element height "
                f"of {self.sizes.mean_height:.3g} m; check density ({self.density:g} kg/m^3), viscosity "
                f"({self.viscosity:g} Pa s), velocity ({self.velocity:.3g} m/s) and extent ({extent}), "
                "or refine the mesh"
            )
        courant = self.courant(self.sizes.mean_height)
        if courant > _LONG_STEP and self.clock is not None:
            warnings.append(
                f"warning: the flow crosses {courant:.3g} elements of mean height in a time step: "
                "changes in time are not resolved; with flow.time.time_step = "
                f"{self.clock.time_step / courant:.2g} it crosses one"
            )
        law = self._table.fluid.carreau
        if law is not None and law.exponent < 1 and law.at_high_shear > self._table.fluid.viscosity:
            warnings.append(
                f"warning: flow.fluid.viscosity = {self._table.fluid.viscosity:g} Pa s (at rest) is "
                f"below flow.fluid.carreau.at_high_shear = {law.at_high_shear:g} Pa s: the viscosity "
                "rises with the shear rate; blood has about 0.056 Pa s at rest"
            )
        if self._at_rest():
            warnings.append(
                "warning: nothing drives the flow: all boundary velocities are 0, outside pressures "
                "are equal, and the pressure balances the body force; the fluid stays at rest"
            )
        return warnings

    def _at_rest(self) -> bool:
        drive = self.drive
        return max(drive.velocity, self._initial, drive.pressure, drive.force) <= 0

    def _guess(self) -> str:
        """Which unit of length the file may have, and the key for it."""
        if self._table.mesh is None:
            return "lengths are in m: check the mesh's table"
        scale = self._table.mesh.scale
        low, high = _LIKELY
        for unit, factor in _UNITS:
            if low <= max(self.sizes.extent) / scale * factor <= high and factor != scale:
                return f"{unit}? flow.mesh.scale = {factor:g} (now {scale:g})"
        return f"check flow.mesh.scale (now {scale:g})"

    def time_step_limit(self) -> str:
        """One clause: the time step, and the part of the case that limits it."""
        if self.clock is None:
            step = self._table.time.pseudo_time_step
            return "Newton iterations on steady flow" + (
                "" if step is None else f", first pseudo time step {step:g} s"
            )
        text = f"flow.time.time_step = {self.clock.time_step:.3g} s"
        if self.velocity > 0:
            sizes = self.sizes
            text += (
                f", Courant number {self.courant(sizes.least_height):.3g} in the thinnest element, of "
                f"height {sizes.least_height:.3g} m at {point_text(np.array(sizes.place))}, and "
                f"{self.courant(sizes.mean_height):.3g} in an element of mean height"
            )
        return text


def moving_wall_warnings(table: FlowTable, system: System) -> list[str]:
    """Warnings about moving walls that leave their surface; all ranks call this."""
    # A wall of a rotating zone moves with the frame of the zone, in whatever direction it lies.
    if table.zones:
        return []
    world, part, warnings = system.shared.world, system.part, []
    for name, condition in system.boundary_values.conditions.items():
        if not isinstance(condition, MovingWall):
            continue
        areas = area_vectors(part.nodes, part.boundaries[name])
        velocities = condition.profile(part.nodes[part.boundaries[name]].mean(axis=1), 0.0)
        through = np.abs(np.einsum("nx,nx->n", areas, velocities)).sum()
        motion = (np.linalg.norm(areas, axis=1) * np.linalg.norm(velocities, axis=1)).sum()
        through, motion = world.sum(np.array([through, motion])).tolist()
        if through > _THROUGH * motion:
            warnings.append(
                f"warning: flow.boundaries.{name}.moving: {100 * through / motion:.3g} % of the motion "
                "goes through the surface of the wall, so that fluid crosses it; set centre to a point "
                "on the axis of the wall, or correct rotation or velocity"
            )
    return warnings
