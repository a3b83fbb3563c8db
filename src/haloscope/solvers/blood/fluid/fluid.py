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
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.regions import Region
from haloscope.solvers.blood.fluid.boundaries import (
    AnyOpening,
    Opening,
    OpeningLinks,
    OpeningTables,
    TiltedOpening,
    WallLinks,
    WallLinkTables,
    Waves,
    lanes_find_room,
    link_tables,
    replaced_by_correction,
    split_links,
    wall_constants,
)
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant, fastest_way, room_for_two
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE, VELOCITIES, equilibrium
from haloscope.solvers.blood.fluid.populations import (
    HALF_SCALE,
    PARTS,
    Populations,
    Turn,
    kernel_of,
    orders,
    pushed,
)
from haloscope.solvers.blood.fluid.reaction import ReactingOutlets, Reaction
from haloscope.solvers.carreau import Carreau

__all__ = ["EXACT_MAGIC", "SOURCE", "Fluid", "Opening", "WallLinks"]

Floats = NDArray[np.float64]
Real = Literal["double", "single"]
Storage = Literal["full", "half"]
SOURCE = Path(__file__).with_name("fluid.cpp")
EXACT_MAGIC = 3 / 16
"""Magic parameter for which a halfway wall is exactly halfway in Poiseuille flow."""

COLLIDE = Region("collide and stream")
EDGE = Region("collide and stream beside ghosts")
WALLS = Region("walls")

_GPU_BLOCK = (256,)
# As OPENINGS_BOUNDS of fluid_threads.hpp: their kernel holds whole points in registers.
_OPENINGS_BLOCK = (128,)


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
    carreau: float | None,
    rows: int = 0,
    tilted: bool = False,
    reacting: bool = False,
    moving: bool | None = None,
) -> KernelFile:
    """The kernels of a fluid.

    `contrast`: whether the fluid in cells is another; `carreau`: exponent a of a law; `reacting`: whether openings'
    pressures follow their flow; `rows`, `moving`: axis along which rows lie; see :func:`boundaries.wall_constants`.
    """
    constants: dict[str, int | float | str] = {
        "real": "double" if real == "double" else "float",
        "CELLS": int(with_cells),
        "CONTRAST": int(contrast),
        "CARREAU": int(carreau is not None),
        "YASUDA": 2.0 if carreau is None else carreau,
        "SINGLE": int(real == "single"),
        "HALF": int(storage == "half"),
        "SCALE": int(HALF_SCALE),
        "ROWS_ALONG": rows,
        "TILTED": int(tilted),
        "REACTING": int(reacting),
    }
    if target.kind != "cpu":
        constants |= {**wall_constants(moving), **way.constants()}
    return KernelFile(SOURCE, constants)


class Fluid:
    """Populations of a rank's points and the steps they take, in lattice units.

    `collision`: ``trt`` (two relaxation times) or ``bgk``; `wanted`: (owned,) flags of own points that are to be
    taken with those beside ghosts; `reactions`, `total`: openings that react; sum over ranks, None: there is one.
    """

    # `on_edge`: (owned,) which own points are taken before exchanges start.
    # `ghost_slots`: (n, 3) integers: ghost, slot of it, flat address of that; sorted by the number of the
    # point in the whole lattice and slot.

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
        openings: Sequence[AnyOpening] = (),
        walls: WallLinks | None = None,
        with_cells: bool = False,
        inside_tau: float | None = None,
        carreau: Carreau | None = None,
        way: KernelVariant | None = None,
        wanted: NDArray[np.bool_] | None = None,
        reactions: Sequence[Reaction] = (),
        total: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
    ) -> None:
        self._device, self._part = device, part
        self._dtype = stored_type(real, "full")
        self.owned, self.bulk = part.owned, part.bulk
        self.count = len(part.numbers)
        stored = stored_type(real, storage)
        self._way = way or _default_way(device, self.count, stored.itemsize)
        self.state = Populations(
            device,
            part.sources,
            self.count,
            computed=self._dtype,
            stored=stored,
            buffers=self._way.buffers,
            pushing=self._way.pushing,
        )
        # Slot i of point p is at ``i * stride + p`` of a buffer.
        self.stride = self.state.stride
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
        self._in_openings = OpeningTables(part, openings, reacting=bool(reactions))
        self._drive = device.from_host(np.ones(max(1, len(openings)), self._dtype))
        opening_arrays = self._in_openings.arrays(self._dtype)
        self._opening_tables = {
            name: device.from_host(table) for name, table in opening_arrays.items()
        }
        self._opening_links: dict[int, OpeningLinks] = {}
        kernel_real = "double" if real == "double" else "float"
        # Openings that react to the flow; None: there are none.
        self.outlets: ReactingOutlets | None = None
        if reactions:
            tilted = [isinstance(openings[one.number], TiltedOpening) for one in reactions]
            self.outlets = ReactingOutlets(
                device,
                kernel_real,
                reactions,
                [self._in_openings.places_of(one.number) for one in reactions],
                tilted,
                self._drive,
                self._opening_tables["passed"],
                total,
            )
        # Of openings whose profile changes over time, by their numbers.
        self._waves: dict[int, Waves] = {}
        for number in range(len(openings)):
            wave = self._in_openings.wave_of(number)
            if wave is not None:
                name, profiles, at = wave
                target = self._opening_tables[name]
                self._waves[number] = Waves(device, kernel_real, profiles, at, target)
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
            # But those of points in openings across an axis, whose populations are then replaced.
            self._lasting = np.asarray(walls.points) < part.bulk
            in_openings = np.asarray(walls.points)[~self._lasting] - part.bulk
            self._lasting[~self._lasting] = self._in_openings.complete[in_openings]
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
                carreau=None if carreau is None else carreau.a,
                rows=part.rows,
                tilted=self._in_openings.tilted,
                reacting=bool(reactions),
                moving=None if self._sent_back is None else self._sent_back.moving,
            ).constants
        )
        self._body_force = device.from_host(np.array(body_force, self._dtype))
        self.record()

    def _list_slots(self) -> None:
        """Find which slots of ghosts are exchanged."""
        # Without ghosts there is nothing to look for, and lattices can be large.
        looked_at = self.owned if self.count > self.owned else 0
        directions, points = np.nonzero(self._part.sources[:, :looked_at] >= self.owned)
        directions += 1
        ghosts = self._part.sources[directions - 1, points].astype(np.int64)
        slots = OPPOSITE[directions]
        order = np.lexsort((slots, self._part.numbers[ghosts]))
        self.ghost_slots = np.stack([ghosts, slots, slots * self.stride + ghosts], axis=1)[order]
        self.on_edge = np.zeros(self.owned, bool)
        self.on_edge[points] = True
        self.on_edge[self.bulk :] = True

    def set_body_force(self, force: Sequence[float]) -> None:
        """Set the force density along x, y, z that acts everywhere."""
        self._body_force[...] = self._device.xp.asarray(force, dtype=self._dtype)

    def record(self, exchanges: _ExchangesOf | None = None, *, on: str = MAIN) -> None:
        """Record all kinds of steps; `on`: stream of the exchanges and of points beside ghosts."""
        self._exchanges, self._on = exchanges, on
        # Steps of the fluid are pieces of graphs that hold the cells' steps, too.
        cycle = [turn.following for turn in self.state.turns]
        self.program = Program(self._device, "fluid", cycle=cycle, graphs=False)
        for number, turn in enumerate(self.state.turns):
            self._add_step(self.program.turn(number), turn)
        if self._sent_back is not None:
            self._send_back_to = self._kernel("send_back_to")

    def _kernel(self, name: str) -> Any:
        return self._device.kernel(SOURCE, name, self.constants)

    def _add_step(self, step: Step, turn: Turn) -> None:
        """Points in openings and beside ghosts, exchanges, all other points, walls."""
        on, first = self._on, COLLIDE if self._exchanges is None else EDGE
        exchanges = () if self._exchanges is None else tuple(self._exchanges(turn))
        if self.owned > self.bulk:
            self._take_openings(step, turn, first)
        if self.outlets is not None:
            self.outlets.record_sums(step)
        self._take_bulk(step, turn, 0, on=on, region=first)
        for one in exchanges:
            if one.early:
                step.start(one.exchange, one.sent, into=one.into, on=on)
        self._take_bulk(step, turn, 1, on=MAIN, region=COLLIDE)
        for one in exchanges:
            if not one.early:
                step.start(one.exchange, one.sent, into=one.into, on=on)
        for one in exchanges:
            step.finish(one.exchange, on=on)
        if self._corrections:
            # What steps leave with neighbours lies elsewhere than what they leave in own slots.
            links = self._corrections[int(turn.pushed)]
            step.kernel(
                self._kernel("correct_walls"),
                region=WALLS,
                f=self.state.fields[turn.destination][turn.parts],
                **links,
                extent=(links["count"],),
                block=_GPU_BLOCK,
            )
        if self.outlets is not None:
            self.outlets.record_laws(step)

    def _arguments(self, turn: Turn, part: str) -> dict[str, Any]:
        """Arguments of kernels that take some of the points through a step between two arrays."""
        fields = self.state.fields
        fresh = fields[turn.destination][pushed(part) if turn.pushed else part]
        return {
            "old": fresh if turn.in_place else fields[turn.source].array,
            "fresh": fresh,
            "stride": self.stride,
            "physics": self._physics,
            "body": self._body_force,
            "force": self.force,
            "inside": self.inside,
            "velocity": self.velocity_field[part],
        }

    def _take_bulk(self, step: Step, turn: Turn, number: int, *, on: str, region: Region) -> None:
        """Points of the edge, number 0, or of the interior, 1."""
        order = self._orders.tables[int(turn.streamed or turn.pushed)][number]
        if not order["count"]:
            return
        on_gpu = self._device.kind != "cpu"
        arguments = self._arguments(turn, PARTS[number])
        if turn.in_place:
            arguments["f"] = arguments.pop("fresh")
            del arguments["old"]
        if on_gpu:
            arguments["backward"] = int(turn.backward)
        if self._sent_back is not None and turn.streamed and not turn.pushed:
            arguments |= self._sent_back.tables[number]
        step.kernel(
            self._kernel(kernel_of(turn, on_gpu)),
            on=on,
            region=region,
            **arguments,
            **order,
            extent=(order["count"],),
            block=(self._way.threads,),
            early=self._way.early and self.count == self.owned,
        )

    def _take_openings(self, step: Step, turn: Turn, region: Region) -> None:
        count = self.owned - self.bulk
        step.kernel(
            self._kernel("openings"),
            on=SIDE,
            region=region,
            **self._arguments(turn, "openings"),
            first=self.bulk,
            count=count,
            **self._opening_tables,
            drive=self._drive,
            openings=len(self._drive),
            streamed=int(turn.streamed),
            pushed=int(turn.pushed),
            extent=(count,),
            block=_OPENINGS_BLOCK,
        )

    def take(self, way: KernelVariant) -> None:
        """Let a GPU step in another way from now on, with the same neighbours, buffers and wall links."""
        self._way = replace(way, compact=self._way.compact)
        self.constants |= self._way.constants()
        self.record(self._exchanges, on=self._on)

    def drive(self, opening: int, number: float) -> None:
        """Set the factor of an opening's velocities, or its density."""
        self._drive[opening] = number

    def set_waves(self, opening: int, amplitudes: NDArray[np.complex128]) -> None:
        """Set the amplitudes, with their phases, of an opening's oscillating profiles."""
        self._waves[opening].set(amplitudes)

    def passed(self, opening: int) -> Floats:
        """Mass that left less that which came in with each own link of a tilted opening in the last step."""
        passed = self._device.to_host(self._opening_tables["passed"])
        return np.asarray(passed)[self._in_openings.links_of(opening)]

    def passed_across(self, opening: int) -> Floats:
        """Mass that went to own points of an opening across an axis from the vessel in the last step.

        Of each link; less where it went the other way.
        """
        if opening not in self._opening_links:
            self._opening_links[opening] = OpeningLinks.of(self._part, opening, self.on_edge)
        links = self._opening_links[opening]
        return links.signs * self.state.arrived_from(links.points, links.directions, links.sources)

    def gained_at_walls(self) -> Floats:
        """Mass that listed walls added to what halfway walls would return in the last step, by link."""
        state = self.state
        gains = [np.zeros(0)]
        if not state.stepped:
            return gains[0]
        if self._corrections:
            # After which kind of step: see :func:`link_tables`.
            parity = int(not state.turn.streamed)
            links, others = self._corrections[parity], self._corrections[1 - parity]
            after, other, left = (
                np.asarray(self._device.to_host(state.numbers(state.source[at])), np.float64)
                for at in (links["place"], links["other"], others["other"])
            )
            shares = np.asarray(self._device.to_host(links["coefficients"]))
            rounding = float(np.finfo(state.source.dtype).eps)
            before = replaced_by_correction(after, other, left, shares.reshape(2, -1), rounding)
            gains.append((after - before)[self._lasting])
        if self._sent_back is not None and state.turn.streamed:
            gains.append(self._sent_back.gained(self._send_back_to, state.source, state.numbers))
        return np.concatenate(gains)

    @property
    def opening_velocities(self) -> Array:
        """Velocities of own points in openings that :meth:`drive` multiplies, for others to set, (3, points)."""
        return self._opening_tables["prescribed"].reshape(3, -1)

    @property
    def thrown(self) -> Array:
        """Populations that links of own points at tilted openings add, (18, points), to be set like the velocities."""
        return self._opening_tables["thrown"].reshape(DIRECTIONS - 1, -1)

    def set_equilibrium(self, density: Floats, velocity: Floats) -> None:
        """Start from equilibrium with given densities (owned,) and velocities (3, owned)."""
        self.set_populations(equilibrium(density, velocity))

    def set_populations(self, populations: Iterable[NDArray[Any]]) -> None:
        """Start from what :meth:`populations` gave, (19, owned); rows may be made as they are taken."""
        self.state.set(populations)

    def arrived(self, i: int) -> Array:
        """Populations that arrived along direction i at all own points, on the device: f_i - w_i."""
        populations = self.state.arrived(i)
        if self._sent_back is not None and self.state.turn.streamed:
            self._sent_back.put_into(populations, i, self._send_back_to, self.state.source)
        return populations

    def arrived_at(self, points: NDArray[np.int64], addresses: Sequence[Array]) -> Floats:
        """Populations that arrived at own points outside openings, on the host, (19, points).

        `addresses`: where it is when it lies in own slots, and when it still lies with neighbours,
        (19, points) each.
        """
        stored = self.state.numbers(self.state.source[addresses[int(self.state.turn.streamed)]])
        populations = np.asarray(self._device.to_host(stored), np.float64)
        if self._sent_back is not None and self.state.turn.streamed:
            chosen, directions, columns = self._sent_back.of_points(points)
            if len(chosen):
                sent = self._sent_back.sent(chosen, self._send_back_to, self.state.source)
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
            density, velocity = self._in_openings.moments(
                arrived, give(self._drive), force, velocities
            )
            whole = self._in_openings.complete
            result[0][there] = np.where(whole, result[0][there], density)
            result[1][:, there] = np.where(whole, result[1][:, there], velocity)
        return result

    def _force_along(self, axis: int, points: slice) -> Array:
        """Force density along an axis at some own points, in double precision."""
        force = self._device.xp.zeros(points.stop - (points.start or 0)) + self._body_force[axis]
        return force + self.force[axis, points] if self.constants["CELLS"] else force

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that hold values of points."""
        arrays = (self.force, self.velocity, self.inside)
        return self.state.nbytes + sum(int(array.nbytes) for array in arrays)

    @property
    def bytes_a_point(self) -> float:
        """Least bytes that a step moves for a point: populations and where neighbours lie.

        Each population is read once and written once; in place every second step needs neighbours.
        """
        moved = 2 * DIRECTIONS * float(self.state.source.itemsize)
        return moved + self.listed / (2 if len(self.state.buffers) == 1 else 1)

    def step(self) -> None:
        """Advance by one time step."""
        self.program.next = self.state.phase
        self.program.advance(1)
        self.state.go_on()


def _default_way(device: Device, count: int, itemsize: int) -> KernelVariant:
    """The fastest way for which a GPU has room; cores have but one."""
    roomy = device.kind != "cpu" and room_for_two(device.memory()[0], count, itemsize)
    return fastest_way(itemsize, 2 if roomy else 1)


def _rates(tau: float, magic: float) -> tuple[float, float]:
    """Relaxation rates of even and odd parts; magic 0: the same."""
    if magic == 0.0:
        return 1 / tau, 1 / tau
    return 1 / tau, 1 / (magic / (tau - 0.5) + 0.5)
