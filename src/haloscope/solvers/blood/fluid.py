"""The lattice-Boltzmann fluid of one rank: its populations and the kernels that move them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, ByValue, Device, Launch
from haloscope.solvers.blood.d3q19 import DIRECTIONS, OPPOSITE, VELOCITIES, equilibrium
from haloscope.solvers.blood.fluid_boundaries import (
    LatticePart,
    Opening,
    OpeningTables,
    WallLinks,
    link_tables,
)
from haloscope.solvers.blood.fluid_gpu import Way, fastest_way, neighbours
from haloscope.solvers.blood.fluid_rows import rows_and_points

__all__ = ["EXACT_MAGIC", "SOURCE", "Carreau", "Fluid", "LatticePart", "Opening", "WallLinks"]

Floats = NDArray[np.float64]
SOURCE = Path(__file__).with_name("fluid.cpp")
EXACT_MAGIC = 3 / 16
"""Magic parameter for which a halfway wall is exactly halfway in Poiseuille flow."""

# Slots start at different lines of a 4 KiB page, 19 of them spread over it.
_PAGE, _SHIFT = 4096, 192
_LINE = 64
_GPU_BLOCK = (256,)
# As many as the struct Physics of lattice.hpp has.
_PHYSICS_VALUES = 9


@dataclass(frozen=True)
class Carreau:
    """Shear-thinning viscosity nu_inf + (nu_0 - nu_inf) (1 + (lambda shear rate)^2)^((n - 1)/2).

    Attributes
    ----------
    at_rest, at_high_shear
        Kinematic viscosities in lattice units.
    time
        lambda, in time steps.
    exponent
        n, between 0 and 1.
    """

    at_rest: float
    at_high_shear: float
    time: float
    exponent: float


class Fluid:
    """Populations of a rank's points and the steps they take, in lattice units.

    A step in parts, for several ranks::

        fluid.collide_edge()      # points beside ghosts, and in openings
        ...                       # start to exchange: see `forward`
        fluid.collide_interior()
        ...                       # finish the exchange
        fluid.finish_step()

    Parameters
    ----------
    device
        Where to compute.
    part
        The rank's points.
    tau
        Relaxation time, above 1/2: the viscosity is (tau - 1/2) / 3. With Carreau's law unused.
    collision
        ``trt`` (two relaxation times) or ``bgk`` (one).
    magic
        (tau - 1/2) times the same of the odd moments, of ``trt``.
    real
        ``double`` or ``single``.
    body_force
        Force density along x, y, z.
    openings
        In the order of their numbers.
    walls
        Links that need more than halfway bounce-back at a wall at rest.
    with_cells
        Have `force`, which collisions read, and `velocity`, which they write.
    inside_tau
        Relaxation time of points whose flag `inside` is set; None: there are no such flags.
    carreau
        Viscosity law instead of `tau`.
    way
        How a GPU takes points through a step; None: the fastest that is known.

    Attributes
    ----------
    stride
        Slot i of point p is at ``i * stride + p`` of `populations_array`.
    parity
        0 where the next step is an even one, 1 where it is odd.
    forward
        True when what the last collision left goes from owners to ghosts (`ghost_slots` receive,
        `owned_slots` send); False when it goes back.
    ghost_slots, owned_slots
        (n, 3) integers: ghost, slot of it; own point, slot of it, each with the flat address last.
        Sorted by the number of the point in the whole lattice and slot, so that an owner lists the
        same as who has the ghost. `partners` has the ghost behind each of the owned slots, from
        which follows which rank it goes to.
    constants
        With which the kernels are compiled.
    force, velocity
        (3, stride), with cells: force density that is added, and velocity as of the last step.
    inside
        (stride,) flags, with `inside_tau`.
    listed
        Bytes that an odd step reads for a point, on average, to know where its neighbours lie.

    Raises
    ------
    ValueError
        An opening's velocities do not fit its points, or a relaxation time is 1/2 or less.
    """

    def __init__(
        self,
        device: Device,
        part: LatticePart,
        *,
        tau: float,
        collision: Literal["trt", "bgk"] = "trt",
        magic: float = EXACT_MAGIC,
        real: Literal["double", "single"] = "double",
        body_force: Sequence[float] = (0.0, 0.0, 0.0),
        openings: Sequence[Opening] = (),
        walls: WallLinks | None = None,
        with_cells: bool = False,
        inside_tau: float | None = None,
        carreau: Carreau | None = None,
        way: Way | None = None,
    ) -> None:
        self._device, self._part = device, part
        self._dtype = np.dtype(np.float64 if real == "double" else np.float32)
        for one in (tau, inside_tau):
            if one is not None and not one > 0.5:
                raise ValueError(f"a relaxation time of {one} is not stable; give more than 0.5")
        self.owned, self.bulk = part.owned, part.bulk
        self.count = len(part.numbers)
        self.stride = _stride(self.count, self._dtype.itemsize)
        self.parity = 0
        self.populations_array = device.zeros((DIRECTIONS * self.stride,), self._dtype)
        nothing = device.zeros((1,), self._dtype)
        vectors = (3, self.stride)
        self.force = device.zeros(vectors, self._dtype) if with_cells else nothing
        self.velocity = device.zeros(vectors, self._dtype) if with_cells else nothing
        flags = self.stride if inside_tau is not None else 1
        self.inside = device.zeros((flags,), np.uint8)
        self.constants: dict[str, int | float | str] = {
            "real": "double" if real == "double" else "float",
            "CELLS": int(with_cells),
            "CONTRAST": int(inside_tau is not None),
            "CARREAU": int(carreau is not None),
            "PHYSICS_VALUES": _PHYSICS_VALUES,
        }
        self._way = way or fastest_way(self._dtype.itemsize)
        if device.kind != "cpu":
            self.constants |= self._way.constants()
        two_rates = magic if collision == "trt" else 0.0
        self._rates = (*_rates(tau, two_rates), *_rates(inside_tau or tau, two_rates))
        law = carreau or Carreau(0.0, 0.0, 0.0, 1.0)
        self._law = (two_rates, law.at_rest, law.at_high_shear, law.time, law.exponent)
        self._list_slots()
        self._in_openings = OpeningTables(part, openings)
        self.opening_numbers = self._in_openings.numbers
        self._drive = device.from_host(np.ones(max(1, len(openings)), self._dtype))
        given = self._in_openings.arrays(self._dtype)
        self._opening_tables = [device.from_host(table) for table in given]
        self._corrections: list[tuple[Any, ...]] = []
        if walls is not None and len(walls.points):
            for place, other, values in link_tables(part, walls, self.stride):
                tables = (place, other, values.astype(self._dtype))
                arrays = (device.from_host(table) for table in tables)
                self._corrections.append((*arrays, len(place)))
        self._divide()
        self._body_force = device.from_host(np.array(body_force, self._dtype))
        self._bind()

    def _list_slots(self) -> None:
        """Find which slots of ghosts and of own points are exchanged."""
        directions, points = np.nonzero(self._part.sources >= self.owned)
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
        self._edge = np.zeros(self.owned, bool)
        self._edge[points] = True

    def _divide(self) -> None:
        """Lay out the order in which points are taken: edges and the interior of each parity."""
        edge = self._edge[: self.bulk]
        chosen = (np.flatnonzero(edge), np.flatnonzero(~edge))
        device, give = self._device, self._device.from_host
        self._orders: list[list[tuple[Any, ...]]] = []
        if device.kind == "cpu":
            for sources in (None, self._part.sources):
                of_parity: list[tuple[Any, ...]] = []
                for some in chosen:
                    order = rows_and_points(some, sources)
                    tables = (order.rows, order.row_sources, order.points, order.point_sources)
                    lists = tuple(give(table) for table in tables)
                    sizes = (len(order.points), int(sources is not None))
                    of_parity.append((give(order.blocks), len(order.blocks) - 1, *lists, *sizes))
                self._orders.append(of_parity)
            of_odd = [one for order in self._orders[1] for one in order if np.ndim(one)]
            self.listed = sum(table.nbytes for table in of_odd) / max(1, self.bulk)
            return
        found = neighbours(self._part.sources[:, : self.bulk], self._way)
        self.listed = found.bytes_a_point
        where = (give(found.kinds), give(found.distances), found.pitch)
        # Points that all go together need no list.
        named = [0 if len(some) == self.bulk else give(some.astype(np.int32)) for some in chosen]
        points = [(one, len(some)) for one, some in zip(named, chosen, strict=True)]
        self._orders = [list(points), [(*some, *where) for some in points]]

    def set_body_force(self, force: Sequence[float]) -> None:
        """Set the force density along x, y, z that acts everywhere."""
        self._body_force[...] = self._device.xp.asarray(force, dtype=self._dtype)

    def _bind(self) -> None:
        """Bind the kernels of both parities."""
        physics = ByValue(np.array([*self._rates, *self._law], self._dtype))
        device, f, stride = self._device, self.populations_array, self.stride
        body, cells = self._body_force, (self.force, self.velocity, self.inside)
        on_gpu, block = device.kind != "cpu", (self._way.threads,)
        names = ("advance_here", "advance_along") if on_gpu else ("advance", "advance")
        # For each parity launches for edges and for the interior; none where no points are.
        self._advance: list[list[list[Launch]]] = []
        self._openings: list[Launch] = []
        self._correct: list[Launch] = []
        in_openings = self.owned - self.bulk
        for parity, (name, orders) in enumerate(zip(names, self._orders, strict=True)):
            kernel = device.kernel(SOURCE, name, self.constants)
            together = self._way.together if on_gpu and not parity else 1
            self._advance.append([[], []])
            for launches, order in zip(self._advance[parity], orders, strict=True):
                if order[1]:
                    threads = -(-int(order[1]) // together)
                    arguments = (f, stride, physics, body, *order, *cells)
                    launches.append(kernel.bind(*arguments, extent=(threads,), block=block))
            if in_openings:
                sources, *tables = self._opening_tables
                self._openings.append(
                    device.kernel(SOURCE, "openings", self.constants).bind(
                        *(f, stride, physics, body, self.bulk, in_openings, sources, *tables),
                        *(self._drive, parity, *cells),
                        extent=(in_openings,),
                        block=_GPU_BLOCK,
                        stream=device.side,
                    )
                )
        for links in self._corrections:
            self._correct.append(
                self._device.kernel(SOURCE, "correct_walls", self.constants).bind(
                    f, *links, extent=(links[-1],), block=_GPU_BLOCK
                )
            )

    def take(self, way: Way) -> None:
        """Let a GPU step in another way from now on, one that reads the same neighbours."""
        if way.kinds != self._way.kinds:
            raise ValueError("a way that reads other lists of neighbours needs a fluid of its own")
        self._way = way
        self.constants |= way.constants()
        self._bind()

    def drive(self, opening: int, number: float) -> None:
        """Set the factor of an opening's velocities, or its density."""
        self._drive[opening] = number

    def set_equilibrium(self, density: Floats, velocity: Floats) -> None:
        """Start from equilibrium with given densities (owned,) and velocities (3, owned)."""
        self.set_populations(equilibrium(density, velocity))

    def set_populations(self, populations: Floats) -> None:
        """Start from what :meth:`populations` gave, (19, owned)."""
        slots = self.populations_array.reshape(DIRECTIONS, self.stride)
        slots[:, : self.owned] = self._device.xp.asarray(populations, dtype=self._dtype)
        self.parity = 0

    def _arrived(self, i: int) -> Array:
        """What has arrived along direction i at all own points."""
        f, xp = self.populations_array, self._device.xp
        own = f[i * self.stride : i * self.stride + self.owned]
        if not self.parity or i == 0:
            return own
        sources = xp.asarray(self._part.sources[i - 1])
        return xp.where(sources < 0, own, f[int(OPPOSITE[i]) * self.stride + sources])

    def populations(self) -> Floats:
        """Populations less their weights, f_i - w_i, as they have arrived at each own point.

        Returns
        -------
        array of shape (19, owned)
            On the host, in the type that is computed with. The next step depends on nothing else:
            set again, it gives the same bits. What an opening leaves undefined is what left there.
        """
        rows = [self._device.to_host(self._arrived(i)) for i in range(DIRECTIONS)]
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
            arrived = self._arrived(i)
            density += arrived
            for axis in range(3):
                if VELOCITIES[i, axis]:
                    momentum[axis] += int(VELOCITIES[i, axis]) * arrived
        force = xp.zeros((3, self.owned)) + self._body_force[:, None]
        if self.constants["CELLS"]:
            force += self.force[:, : self.owned]
        momentum += 0.5 * force
        give = self._device.to_host
        result = give(density), give(momentum / density)
        if self.owned > self.bulk:
            there = slice(self.bulk, self.owned)
            arrived = np.stack([give(self._arrived(i)[there]) for i in range(DIRECTIONS)])
            result[0][there], result[1][:, there] = self._in_openings.moments(
                arrived, give(self._drive), give(force[:, there])
            )
        return result

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that hold values of points."""
        arrays = (self.populations_array, self.force, self.velocity, self.inside)
        return sum(int(array.nbytes) for array in arrays)

    @property
    def forward(self) -> bool:
        """Whether an exchange after this collision goes from owners to ghosts."""
        return self.parity == 0

    def collide_edge(self) -> None:
        """Take the points beside ghosts and those in openings through the step."""
        if self._openings:
            self._device.fork()
            self._openings[self.parity]()
        for launch in self._advance[self.parity][0]:
            launch()
        # Where nobody waits for the edge, openings go on beside the interior.
        if self._openings and len(self.ghost_slots):
            self._device.join()

    def collide_interior(self) -> None:
        """Take all other points through the step."""
        for launch in self._advance[self.parity][1]:
            launch()
        if self._openings and not len(self.ghost_slots):
            self._device.join()

    def collide_and_stream(self) -> None:
        """Take all points through the step."""
        self.collide_edge()
        self.collide_interior()

    def finish_step(self) -> None:
        """Let moving and slanted walls act, once what comes from other ranks is there."""
        if self._correct:
            self._correct[self.parity]()
        self.parity = 1 - self.parity

    def skip_step(self) -> None:
        """Take note that a graph has done a step."""
        self.parity = 1 - self.parity

    def step(self) -> None:
        """Advance by one time step where there are no ghosts."""
        self.collide_and_stream()
        self.finish_step()


def _stride(count: int, itemsize: int) -> int:
    """Distance of slots: at least `count`, whole lines, and not a multiple of a page."""
    least = -(-count * itemsize // _LINE) * _LINE
    return (least + (_SHIFT - least) % _PAGE) // itemsize


def _rates(tau: float, magic: float) -> tuple[float, float]:
    """Relaxation rates of even and odd parts; magic 0: the same."""
    if magic == 0.0:
        return 1 / tau, 1 / tau
    return 1 / tau, 1 / (magic / (tau - 0.5) + 0.5)
