"""The lattice-Boltzmann fluid of one rank: its populations and the kernels that move them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.device.program import MAIN, SIDE, Exchanges, Field, Program, Step, View
from haloscope.device.targets import KernelFile, Target
from haloscope.regions import Region
from haloscope.solvers.blood.fluid.boundaries import (
    LatticePart,
    Opening,
    OpeningTables,
    WallLinks,
    WallLinkTables,
    lanes_find_room,
    link_tables,
    split_links,
    wall_constants,
)
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant, fastest_way, room_for_two
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE, VELOCITIES, equilibrium
from haloscope.solvers.blood.fluid.launches import Binder, Calls, orders
from haloscope.solvers.blood.fluid.populations import HALF_SCALE, PARTS, Populations, Turn
from haloscope.solvers.carreau import Carreau

__all__ = ["EXACT_MAGIC", "SOURCE", "Fluid", "LatticePart", "Opening", "WallLinks"]

Floats = NDArray[np.float64]
Real = Literal["double", "single"]
Storage = Literal["full", "half"]
SOURCE = Path(__file__).with_name("fluid.cpp")
EXACT_MAGIC = 3 / 16
"""Magic parameter for which a halfway wall is exactly halfway in Poiseuille flow."""

COLLIDE = Region("collide and stream")
EDGE = Region("collide and stream beside ghosts")
WALLS = Region("walls")

# What ways have in common whose lists of neighbours and buffers are the same.
_OF_LISTS = ("kinds", "compact", "buffers", "pushing")


class PartExchange(NamedTuple):
    """An exchange of a step, with the parts that are sent and filled."""

    exchange: Exchanges
    sent: View
    into: View
    early: bool  # Whether it starts before the interior is taken


_ExchangesOf = Callable[[Turn], Iterable[PartExchange]]


def stored_type(real: Real, storage: Storage) -> np.dtype[Any]:
    """Type in which populations are kept."""
    if storage == "half":
        return np.dtype(np.float16)
    return np.dtype(np.float64 if real == "double" else np.float32)


def takes_links(way: KernelVariant, real: Real) -> bool:
    """Whether steps take links to walls with them; else other kernels correct what steps leave."""
    within = way.buffers == 2 and not way.pushing
    return within and lanes_find_room(way.threads, stored_type(real, "full"))


def kernel_file(
    target: Target,
    way: KernelVariant,
    *,
    real: Real,
    storage: Storage,
    with_cells: bool,
    contrast: bool,
    carreau: bool,
    rows: int = 0,
    moving: bool | None = None,
) -> KernelFile:
    """The kernels of a fluid.

    `contrast`: whether the fluid in cells is another; `rows`: axis along which rows of points lie;
    `moving`: see :func:`haloscope.solvers.blood.fluid.boundaries.wall_constants`.
    """
    constants: dict[str, int | float | str] = {
        "real": "double" if real == "double" else "float",
        "CELLS": int(with_cells),
        "CONTRAST": int(contrast),
        "CARREAU": int(carreau),
        "SINGLE": int(real == "single"),
        "HALF": int(storage == "half"),
        "SCALE": int(HALF_SCALE),
        "ROWS_ALONG": rows,
    }
    if target.kind != "cpu":
        constants |= {**wall_constants(moving), **way.constants()}
    return KernelFile(SOURCE, constants)


class Fluid:
    """Populations of a rank's points and the steps they take, in lattice units.

    `collision`: ``trt`` (two relaxation times) or ``bgk`` (one); `wanted`: (owned,) flags of own
    points that are to be taken with those beside ghosts; None: no more.
    """

    # `on_edge`: (owned,) which own points are taken before exchanges start.
    # `ghost_slots`, `owned_slots`: (n, 3) integers: ghost, slot of it; own point, slot of it, each
    # with the flat address last. Sorted by the number of the point in the whole lattice and slot,
    # so that an owner lists the same as who has the ghost. `partners` has the ghost behind each of
    # the owned slots, from which follows which rank it goes to.

    def __init__(
        self,
        device: Device,
        part: LatticePart,
        *,
        tau: float,
        collision: Literal["trt", "bgk"] = "trt",
        magic: float = EXACT_MAGIC,
        real: Real = "double",
        storage: Storage = "full",
        body_force: Sequence[float] = (0.0, 0.0, 0.0),
        openings: Sequence[Opening] = (),
        walls: WallLinks | None = None,
        with_cells: bool = False,
        inside_tau: float | None = None,
        carreau: Carreau | None = None,
        way: KernelVariant | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> None:
        self._device, self._part = device, part
        self._dtype = stored_type(real, "full")
        for one in (tau, inside_tau):
            if one is not None and not one > 0.5:
                raise ValueError(f"the relaxation time is {one}; allowed: above 0.5")
        if storage == "half" and real != "single":
            raise ValueError("half storage needs single precision")
        self.owned, self.bulk = part.owned, part.bulk
        self.count = len(part.numbers)
        stored = stored_type(real, storage)
        self._asked = self._way = way or _default_way(device, self.count, stored.itemsize)
        if device.kind == "cpu" and self._way.buffers != 1:
            raise ValueError("only GPUs have two buffers; CPUs step in place")
        self._populations = Populations(
            device,
            part.sources,
            self.count,
            computed=self._dtype,
            stored=stored,
            buffers=self._way.buffers,
            pushing=self._way.pushing,
        )
        # Slot i of point p is at ``i * stride + p`` of `populations_array`.
        self.stride = self._populations.stride
        vectors = (3, self.stride) if with_cells else (1,)
        # (3, stride), with cells: force density that is added, and velocity as of the last step; in
        # double precision, as cells are, whatever the fluid is in.
        self.force, self.velocity = (device.zeros(vectors, np.float64) for _ in range(2))
        self.velocity_field = Field("velocity", self.velocity, points=PARTS)
        flags = self.stride if inside_tau is not None else 1
        self.inside = device.zeros((flags,), np.uint8)  # (stride,) flags, with `inside_tau`
        two_rates = magic if collision == "trt" else 0.0
        plus, minus = _rates(tau, two_rates)
        inside_plus, inside_minus = _rates(inside_tau or tau, two_rates)
        law = carreau or Carreau(0.0, 0.0, 0.0, 1.0)
        # Members of struct Physics of lattice.hpp.
        self._physics = {
            "plus": plus,
            "minus": minus,
            "inside_plus": inside_plus,
            "inside_minus": inside_minus,
            "magic": two_rates,
            "nu_0": law.at_rest,
            "nu_inf": law.at_high_shear,
            "lambda": law.time,
            "n": law.exponent,
        }
        self._list_slots()
        if wanted is not None:
            self.on_edge |= wanted
        self._in_openings = OpeningTables(part, openings)
        self.opening_numbers = self._in_openings.numbers
        self._drive = device.from_host(np.ones(max(1, len(openings)), self._dtype))
        opening_arrays = self._in_openings.arrays(self._dtype)
        self._opening_tables = {
            name: device.from_host(table) for name, table in opening_arrays.items()
        }
        self._corrections: list[dict[str, Any]] = []
        on_edge, size = self.on_edge[: part.bulk], stored.itemsize
        ordered = orders(device, part, on_edge, self._way, size, self.stride)
        # Bytes that a step that needs neighbours reads for a point, on average, to know where they
        # lie.
        self._orders, self.listed = replace(ordered, launched=()), ordered.listed
        self._sent_back: WallLinkTables | None = None
        if walls is not None and takes_links(self._way, real):
            inside, walls = split_links(walls, part.bulk)
            order = ordered.launched
            self._sent_back = WallLinkTables(device, part, inside, order, self.stride, self._dtype)
        if walls is not None and len(walls.points):
            for place, other, values in link_tables(part, walls, self.stride):
                self._corrections.append(
                    {
                        "place": device.from_host(place),
                        "other": device.from_host(other),
                        "coefficients": device.from_host(values.astype(self._dtype)),
                        "count": len(place),
                    }
                )
        self._way = self._orders.way
        # With which the kernels are compiled.
        self.constants = dict(
            kernel_file(
                device,
                self._way,
                real=real,
                storage=storage,
                with_cells=with_cells,
                contrast=inside_tau is not None,
                carreau=carreau is not None,
                rows=part.rows,
                moving=None if self._sent_back is None else self._sent_back.moving,
            ).constants
        )
        self._body_force = device.from_host(np.array(body_force, self._dtype))
        self.record()

    def _list_slots(self) -> None:
        """Find which slots of ghosts and of own points are exchanged."""
        # Without ghosts there is nothing to look for, and lattices can be large.
        looked_at = self.owned if self.count > self.owned else 0
        directions, points = np.nonzero(self._part.sources[:, :looked_at] >= self.owned)
        directions += 1
        ghosts = self._part.sources[directions - 1, points].astype(np.int64)
        numbers = self._part.numbers
        slots = OPPOSITE[directions]
        order = np.lexsort((slots, numbers[ghosts]))
        mine = np.lexsort((directions, numbers[points]))
        self.ghost_slots = np.stack([ghosts, slots, slots * self.stride + ghosts], axis=1)[order]
        self.owned_slots = np.stack(
            [points, directions, directions * self.stride + points], axis=1
        )[mine]
        self.partners = ghosts[mine]
        self.on_edge = np.zeros(self.owned, bool)
        self.on_edge[points] = True
        self.on_edge[self.bulk :] = True

    def set_body_force(self, force: Sequence[float]) -> None:
        """Set the force density along x, y, z that acts everywhere."""
        self._body_force[...] = self._device.xp.asarray(force, dtype=self._dtype)

    def record(self, exchanges: _ExchangesOf | None = None, *, on: str = MAIN) -> None:
        """Record all kinds of steps; `on`: stream of the exchanges and of points beside ghosts."""
        self._exchanges, self._on = exchanges, on
        binder = Binder(
            device=self._device,
            file=SOURCE,
            constants=self.constants,
            way=self._way,
            bulk=self.bulk,
            in_openings=self.owned - self.bulk,
            common={
                "stride": self.stride,
                "physics": self._physics,
                "body": self._body_force,
                "force": self.force,
                "inside": self.inside,
            },
            velocity=self.velocity_field,
            opening_tables=self._opening_tables | {"drive": self._drive},
            corrections=tuple(self._corrections),
            wall_link_tables=({}, {}) if self._sent_back is None else self._sent_back.tables,
            alone=self.count == self.owned,
        )
        state = self._populations
        # Steps of the fluid are pieces of graphs that hold the cells' steps, too.
        cycle = [turn.following for turn in state.turns]
        self.program = Program(self._device, "fluid", cycle=cycle, graphs=False)
        for number, turn in enumerate(state.turns):
            calls = binder.calls(turn, state.fields, self._orders)
            self._add_step(self.program.turn(number), turn, calls)
        if self._sent_back is not None:
            self._send_back_to = self._device.kernel(SOURCE, "send_back_to", self.constants)

    def _add_step(self, step: Step, turn: Turn, calls: Calls) -> None:
        """Points in openings and beside ghosts, exchanges, all other points, walls."""
        on, first = self._on, COLLIDE if self._exchanges is None else EDGE
        exchanges = () if self._exchanges is None else tuple(self._exchanges(turn))
        for call in calls.openings:
            step.kernel(on=SIDE, region=first, **call)
        for call in calls.edge:
            step.kernel(on=on, region=first, **call)
        for one in exchanges:
            if one.early:
                step.start(one.exchange, one.sent, into=one.into, on=on)
        for call in calls.interior:
            step.kernel(region=COLLIDE, **call)
        for one in exchanges:
            if not one.early:
                step.start(one.exchange, one.sent, into=one.into, on=on)
        for one in exchanges:
            step.finish(one.exchange, on=on)
        for call in calls.walls:
            step.kernel(region=WALLS, **call)

    def take(self, way: KernelVariant) -> None:
        """Let a GPU step in another way from now on, with the same neighbours and buffers."""
        if any(getattr(way, key) != getattr(self._asked, key) for key in _OF_LISTS):
            raise ValueError(
                "the kernel variant differs in lists of neighbours or buffers; make a new fluid"
            )
        if self._sent_back is not None and not lanes_find_room(way.threads, self._dtype):
            raise ValueError(
                f"blocks of {way.threads} threads have too little memory for these wall links; make a new fluid"
            )
        self._way = replace(way, compact=self._way.compact)
        self.constants |= self._way.constants()
        self.record(self._exchanges, on=self._on)

    @property
    def populations_array(self) -> Array:
        """The flat array in which the present state lies."""
        return self._populations.source

    @property
    def destination(self) -> Array:
        """The flat array that a step writes, until it is finished: what is exchanged lies there."""
        return self._populations.destination

    @property
    def population_fields(self) -> tuple[Field, ...]:
        """All arrays that are `destination` at times, with their parts."""
        return self._populations.fields

    @property
    def phase(self) -> int:
        """Number of the kind of step that is next: steps of a kind have the same launches."""
        return self._populations.phase

    @property
    def streamed(self) -> bool:
        """Whether what has arrived at a point still lies with its neighbours, as odd steps find it."""
        return self._populations.turn.streamed

    @property
    def in_place(self) -> bool:
        """Whether there is one buffer."""
        return len(self._populations.buffers) == 1

    def numbers(self, stored: Array) -> Array:
        """Values of `populations_array` as numbers: half precision is kept times a factor."""
        return self._populations.numbers(stored)

    def drive(self, opening: int, number: float) -> None:
        """Set the factor of an opening's velocities, or its density."""
        self._drive[opening] = number

    @property
    def opening_velocities(self) -> Array:
        """Velocities of own points in openings that :meth:`drive` multiplies, for others to set, (3, points)."""
        return self._opening_tables["prescribed"].reshape(3, -1)

    def set_equilibrium(self, density: Floats, velocity: Floats) -> None:
        """Start from equilibrium with given densities (owned,) and velocities (3, owned)."""
        self.set_populations(equilibrium(density, velocity))

    def set_populations(self, populations: Iterable[NDArray[Any]]) -> None:
        """Start from what :meth:`populations` gave, (19, owned); rows may be made as they are taken."""
        self._populations.set(populations)

    def arrived(self, i: int) -> Array:
        """Populations that arrived along direction i at all own points, on the device: f_i - w_i."""
        populations = self._populations.arrived(i)
        if self._sent_back is not None and self.streamed:
            self._sent_back.put_into(populations, i, self._send_back_to, self.populations_array)
        return populations

    def arrived_at(self, points: NDArray[np.int64], addresses: Sequence[Array]) -> Floats:
        """Populations that arrived at own points outside openings, on the host, (19, points).

        `addresses`: where it is when it lies in own slots, and when it still lies with neighbours,
        (19, points) each.
        """
        stored = self._populations.numbers(self.populations_array[addresses[int(self.streamed)]])
        populations = np.asarray(self._device.to_host(stored), np.float64)
        if self._sent_back is not None and self.streamed:
            chosen, directions, columns = self._sent_back.of_points(points)
            if len(chosen):
                sent = self._sent_back.sent(chosen, self._send_back_to, self.populations_array)
                populations[directions, columns] = self._device.to_host(sent)
        return populations

    def populations(self) -> Floats:
        """Populations less their weights, f_i - w_i, as they have arrived at each own point."""
        rows = [self._device.to_host(self.arrived(i)) for i in range(DIRECTIONS)]
        return np.stack(rows)

    def moments(self) -> tuple[Floats, Floats]:
        """Density (owned,) and velocity (3, owned) on the host, in double precision.

        The velocity is that of the middle of a step: half of the force's momentum counts. In
        openings both are as the next step will complete them.
        """
        xp = self._device.xp
        density = xp.ones(self.owned)
        momentum = xp.zeros((3, self.owned))
        for i in range(DIRECTIONS):
            arrived = self.arrived(i)
            density += arrived
            for axis in range(3):
                if VELOCITIES[i, axis]:
                    momentum[axis] += int(VELOCITIES[i, axis]) * arrived
        # One component after the other: what outputs take beside a run is kept small.
        for axis in range(3):
            momentum[axis] += 0.5 * self._force_along(axis, slice(self.owned))
            momentum[axis] /= density
        give = self._device.to_host
        result = give(density), give(momentum)
        if self.owned > self.bulk:
            there = slice(self.bulk, self.owned)
            arrived = np.stack([give(self.arrived(i)[there]) for i in range(DIRECTIONS)])
            force = np.stack([give(self._force_along(axis, there)) for axis in range(3)])
            velocities = np.asarray(give(self.opening_velocities), np.float64)
            result[0][there], result[1][:, there] = self._in_openings.moments(
                arrived, give(self._drive), force, velocities
            )
        return result

    def _force_along(self, axis: int, points: slice) -> Array:
        """Force density along an axis at some own points, in double precision."""
        force = self._device.xp.zeros(points.stop - (points.start or 0)) + self._body_force[axis]
        return force + self.force[axis, points] if self.constants["CELLS"] else force

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that hold values of points."""
        arrays = (self.force, self.velocity, self.inside)
        return self._populations.nbytes + sum(int(array.nbytes) for array in arrays)

    @property
    def bytes_a_point(self) -> float:
        """Least bytes that a step moves for a point: populations and where neighbours lie.

        Each population is read once and written once; in place every second step needs neighbours.
        """
        moved = 2 * DIRECTIONS * float(self.populations_array.itemsize)
        return moved + (self.listed / 2 if self.in_place else self.listed)

    @property
    def gives_back(self) -> bool:
        """Whether some steps leave with ghosts what belongs to their owners."""
        return any(turn.pushed for turn in self._populations.turns)

    def skip_step(self) -> None:
        """Take note that a graph has done a step."""
        self._populations.go_on()

    def step(self) -> None:
        """Advance by one time step."""
        self.program.next = self.phase
        self.program.advance(1)
        self._populations.go_on()


def _default_way(device: Device, count: int, itemsize: int) -> KernelVariant:
    """The fastest way for which a GPU has room; cores have but one."""
    roomy = device.kind != "cpu" and room_for_two(device.memory()[0], count, itemsize)
    return fastest_way(itemsize, 2 if roomy else 1)


def _rates(tau: float, magic: float) -> tuple[float, float]:
    """Relaxation rates of even and odd parts; magic 0: the same."""
    if magic == 0.0:
        return 1 / tau, 1 / tau
    return 1 / tau, 1 / (magic / (tau - 0.5) + 0.5)
