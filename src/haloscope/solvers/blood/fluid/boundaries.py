"""Boundaries of the fluid: openings, and links to walls that move or do not lie halfway between points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.declarations import Constants
from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.mesh.lattice.lattice_parts import LatticePart
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS, OPPOSITE, VELOCITIES, WEIGHTS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Opening:
    """An inlet or outlet in a plane of lattice points."""

    # The inward normal is `sign` (1 or -1) along `axis` (0, 1, 2).
    axis: int
    sign: int
    # Given velocities of this rank's points in the opening, in their order, (points, 3); they are
    # multiplied by the number that :meth:`Fluid.drive` sets, 1 at first. None: the density is given
    # by that number, and flow is along the normal.
    velocity: Floats | None = None
    # Oscillating velocities into the vessel of these points, (modes, points), which take the place of the given ones.
    modes: NDArray[np.complex128] | None = None


@dataclass(frozen=True)
class TiltedOpening:
    """An inlet or outlet at an end askew to the axes: links of points that it cuts."""

    normal: Floats  # Out of the vessel, of length 1, (3,)
    # Own points and directions i of what comes in: the opening lies on the way from x to x - c_i.
    points: NDArray[np.integer[Any]]
    directions: NDArray[np.integer[Any]]
    # What comes in with each link beyond what it throws back, (links,); it is multiplied by the number
    # that :meth:`Fluid.drive` sets. None: the density is given by that number.
    thrown: Floats | None = None
    modes: NDArray[np.complex128] | None = None  # The same of oscillating flow, (modes, links)


AnyOpening = Opening | TiltedOpening
# Of the kinds of points, as the kernel `openings` has them.
_DOWN, _DENSITY, _TILTED = 4, 8, 16


@dataclass(frozen=True)
class WallLinks:
    """Links to walls that move, or that do not lie halfway between points."""

    # Of each link the own point x and the direction i of what the wall sends back to it: the wall
    # lies on the way from x to x - c_i.
    points: NDArray[np.integer[Any]]
    directions: NDArray[np.integer[Any]]
    # How far on this way, above 0 and up to 1 (Bouzidi, Firdaouss and Lallemand, Phys. Fluids 13
    # (2001) 3452, linear). Where x + c_i is no fluid point the link is taken as halfway.
    fractions: Floats
    # (links, 3) of the wall where the link meets it, in the middle of a step (Ladd, J. Fluid Mech. 271
    # (1994) 285, with the mean density).
    velocities: Floats
    # Whether walls of the vessel move, if none of these does: ranks have the same kernels.
    moving: bool = False


class OpeningTables:
    """Tables of a rank's points in openings for the kernel; see fluid.cpp.

    `numbers`: opening of each of these points, (points,).
    """

    def __init__(
        self, part: LatticePart, openings: Sequence[AnyOpening], *, reacting: bool = False
    ) -> None:
        self._openings, self._reacting = tuple(openings), reacting
        self._bulk = part.bulk
        self._sources = np.ascontiguousarray(part.sources[:, part.bulk : part.owned])
        self.numbers = behind = -2 - self._sources.min(axis=0, initial=0)
        self._kinds = np.zeros(len(behind), np.uint8)
        # Velocities before they are multiplied, (3, points).
        self.velocities = np.zeros((3, len(behind)))
        self.tilted = any(isinstance(opening, TiltedOpening) for opening in openings)
        # Of each link the opening that it passes through, and 1 more; what comes in with it.
        self._links = np.zeros(self._sources.shape, np.uint8)
        self._thrown = np.zeros(self._sources.shape)
        self._normals = np.zeros((4, len(openings)))
        for number, opening in enumerate(openings):
            at = np.flatnonzero(behind == number)
            if isinstance(opening, TiltedOpening):
                self._kinds[at] = _TILTED
                link = np.asarray(opening.directions) - 1, np.asarray(opening.points) - part.bulk
                self._links[link] = number + 1
                self._normals[:3, number] = opening.normal
                self._normals[3, number] = opening.thrown is None
                if opening.thrown is not None:
                    self._thrown[link] = opening.thrown
                continue
            density = _DENSITY * (opening.velocity is None)
            self._kinds[at] = opening.axis + _DOWN * (opening.sign < 0) + density
            if opening.velocity is not None:
                self.velocities[:, at] = opening.velocity.T

    def arrays(self, dtype: np.dtype) -> dict[str, NDArray[Any]]:
        """Arguments of the kernel `openings`: of each point its sources, kind, number and velocity."""
        return {
            "sources": self._sources,
            "kinds": self._kinds,
            "numbers": self.numbers.astype(np.uint8),
            "prescribed": self.velocities.astype(dtype),
            "links": self._links,
            "thrown": self._thrown.astype(dtype),
            "ends": self._normals.astype(dtype),
            "passed": np.zeros(self._passed_shape),
        }

    @property
    def _passed_shape(self) -> tuple[int, ...]:
        if self.tilted:
            return self._links.shape
        return (max(1, len(self.numbers)),) if self._reacting else (1,)

    def places_of(self, opening: int) -> NDArray[np.int64]:
        """Where `passed` holds what passes an opening with a pressure: at its links or at its points."""
        if isinstance(self._openings[opening], TiltedOpening):
            return np.flatnonzero(self.links_of(opening))
        return np.flatnonzero(self.numbers == opening)

    def links_of(self, opening: int) -> NDArray[np.bool_]:
        """Which of the kernel's links, (18, points), pass through a tilted opening."""
        return np.asarray(self._links == opening + 1)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Which points miss nothing that arrives, (points,): those at tilted openings."""
        return np.asarray(self._kinds == _TILTED)

    def wave_of(self, opening: int) -> tuple[str, NDArray[np.complex128], NDArray[np.int64]] | None:
        """Argument of the kernel that an opening's oscillating profiles go to, these, and places in it."""
        one = self._openings[opening]
        if one.modes is None:
            return None
        count = len(self.numbers)
        if isinstance(one, TiltedOpening):
            points = np.asarray(one.points, np.int64) - self._bulk
            return "thrown", one.modes, (np.asarray(one.directions, np.int64) - 1) * count + points
        places = one.axis * count + np.flatnonzero(self.numbers == opening)
        return "prescribed", one.sign * one.modes, places

    def moments(
        self, arrived: Floats, drives: Floats, force: Floats, boundary_velocities: Floats
    ) -> tuple[Floats, Floats]:
        """Density (points,) and velocity (3, points) as `complete` in lattice.hpp has them.

        `arrived`: populations less their weights, (19, points); `force`: force density, (3,
        points); `velocities`: before they are multiplied, (3, points).
        """
        density, velocity = np.ones(len(self.numbers)), np.zeros((3, len(self.numbers)))
        for number, opening in enumerate(self._openings):
            if isinstance(opening, TiltedOpening):
                continue
            at = np.flatnonzero(self.numbers == number)
            inward = opening.sign * VELOCITIES[:, opening.axis]
            known = (1 - np.sign(inward)) * (inward <= 0) @ arrived[:, at].astype(np.float64)
            mass = 1 + known - 0.5 * opening.sign * force[opening.axis, at]
            if opening.velocity is None:
                density[at] = drives[number]
                velocity[opening.axis, at] = opening.sign * (1 - mass / drives[number])
            else:
                velocity[:, at] = drives[number] * boundary_velocities[:, at]
                density[at] = mass / (1 - opening.sign * velocity[opening.axis, at])
        return density, velocity


@dataclass(frozen=True, eq=False)
class OpeningLinks:
    """Links between the points of an opening across an axis and their neighbours in the vessel."""

    # Own points at which populations arrive, their directions, and from where: (links,) each.
    points: NDArray[np.int64]
    directions: NDArray[np.int64]
    sources: NDArray[np.int64]
    signs: Floats  # 1 where they go to the opening, -1 where they come from it

    @classmethod
    def of(cls, part: LatticePart, opening: int, on_edge: NDArray[np.bool_]) -> OpeningLinks:
        """Links of an opening; `on_edge`: own points that may have ghosts as neighbours, (owned,)."""
        tags = part.openings
        own = np.flatnonzero(tags[: part.owned] == opening)
        sources = part.sources[:, own].astype(np.int64)
        row, column = np.nonzero(sources >= 0)
        out = np.stack([own[column], row + 1, sources[row, column]])
        out = out[:, tags[out[2]] < 0]
        # The other way: to own points from own ones, and from those of other ranks.
        back = out[:, out[2] < part.owned]
        edge = np.flatnonzero(on_edge & (tags[: part.owned] < 0))
        sources = part.sources[:, edge].astype(np.int64)
        row, column = np.nonzero(sources >= part.owned)
        beside = np.stack([edge[column], row + 1, sources[row, column]])
        beside = beside[:, tags[beside[2]] == opening]
        into = np.stack([back[2], OPPOSITE[back[1]], back[0]])
        columns = np.concatenate([out, into, beside], axis=1)
        signs = np.ones(len(columns[0]))
        signs[out.shape[1] :] = -1
        return cls(columns[0], columns[1], columns[2], signs)


# Units of rounding below which a share leaves no digit of what it multiplied.
_LEAST_DIGITS = 10.0


def replaced_by_correction(
    after: Floats, other: Floats, left: Floats, coefficients: Floats, rounding: float
) -> Floats:
    """Populations that `correct_walls` replaced, from those after it, (links,) each.

    `left`: what left each point along the direction of its link; `rounding`: relative, of stored values.
    """
    a, c = coefficients
    # In the precision of the kernel.
    b = 1 - a
    # A wall through a point: the fluid rests there, so that as much left to the wall as the other way.
    lost = a < _LEAST_DIGITS * rounding
    return np.where(lost, left, (after - b * other - c) / np.where(lost, 1.0, a))


_WAVES = Path(__file__).with_name("waves.cpp")


def wave_kernel_file(real: str) -> KernelFile:
    """The kernel that adds oscillating profiles up; `real`: type of the fluid."""
    return KernelFile(_WAVES, {"real": real})


class Waves:
    """Velocities of an opening whose profile changes over time: a sum of oscillating profiles.

    `profiles`: (modes, points or links); `places`: of these in `target`.
    """

    def __init__(
        self,
        device: Device,
        real: str,
        profiles: NDArray[np.complex128],
        places: NDArray[np.integer[Any]],
        target: Array,
    ) -> None:
        self._device = device
        modes, count = profiles.shape
        parts = np.stack([profiles.real, profiles.imag], axis=1)
        self._amplitudes = device.zeros((2 * modes,), np.float64)
        file = wave_kernel_file(real)
        self._launch = None
        if count:
            self._launch = device.kernel(file.source, "add_waves", file.constants).bind(
                profiles=device.from_host(np.ascontiguousarray(parts).ravel()),
                amplitudes=self._amplitudes,
                modes=modes,
                count=count,
                places=device.from_host(places.astype(np.int32)),
                target=target,
                extent=(count,),
                block=_BLOCK,
            )

    def set(self, amplitudes: NDArray[np.complex128]) -> None:
        """Set the velocities of the next step: with amplitudes (modes,) that hold the phases."""
        if self._launch is not None:
            parts = np.stack([amplitudes.real, amplitudes.imag], axis=1).ravel()
            self._amplitudes[...] = self._device.from_host(np.ascontiguousarray(parts))
            self._launch()


def link_tables(part: LatticePart, walls: WallLinks, stride: int) -> list[tuple[NDArray[Any], ...]]:
    """Addresses and coefficients that `correct_walls` of fluid.cpp reads after each parity."""
    x = np.asarray(walls.points, np.int64)
    i = np.asarray(walls.directions, np.int64)
    beyond = part.sources[OPPOSITE[i] - 1, x].astype(np.int64)
    q = np.where(beyond >= 0, walls.fractions, 0.5)
    near = q < 0.5
    a = np.where(near, 2 * q, 1 / (2 * q))
    pushed = 6 * WEIGHTS[i] * (VELOCITIES[i] * walls.velocities).sum(axis=1)
    coefficients = np.stack([a, np.where(near, 1.0, a) * pushed])
    here = OPPOSITE[i] * stride + x
    there = np.where(beyond >= 0, i * stride + beyond, here)
    # Near walls need what arrives at x against c_i, far ones what left x along c_i: after an even
    # step the one is at the source's slot and the other at x, after an odd one the reverse.
    others = (np.where(near, there, here), np.where(near, here, there))
    return [(i * stride + x, other, coefficients) for other in others]


WARP = 32
"""Threads of a GPU that run side by side, each with a point."""

# Shared memory that a block has without asking for more.
_BLOCK_BYTES = 48 << 10
_BLOCK = (256,)


def wall_constants(moving: bool | None) -> Constants:
    """Compile-time constants of sent_back_gpu.hpp.

    `moving`: whether walls move whose links steps take; None: steps take no links.
    """
    return {"WALLS": 0} if moving is None else {"WALLS": 2 if moving else 1, "WARP": WARP}


def lanes_find_room(threads: int, real: np.dtype[Any]) -> bool:
    """Whether blocks of so many threads have room for what lanes leave for each other."""
    return threads * (DIRECTIONS - 1) * real.itemsize <= _BLOCK_BYTES


def split_links(walls: WallLinks, bulk: int) -> tuple[WallLinks, WallLinks]:
    """Links of points of the bulk, and of those in openings."""
    inside = np.asarray(walls.points) < bulk
    first, second = (
        replace(
            walls,
            points=walls.points[links],
            directions=walls.directions[links],
            fractions=walls.fractions[links],
            velocities=walls.velocities[links],
        )
        for links in (inside, ~inside)
    )
    return first, second


class WallLinkTables:
    """Links of the bulk's points, as steps between two buffers read them; see sent_back_gpu.hpp.

    Stored populations have not met these walls yet: to read arrived populations after such a step,
    apply :meth:`put_into`.
    """

    def __init__(
        self,
        device: Device,
        part: LatticePart,
        walls: WallLinks,
        launched: tuple[NDArray[np.int64], ...],
        stride: int,
        real: np.dtype[Any],
    ) -> None:
        self._device, self._real = device, real
        self._points = np.asarray(walls.points, np.int64)
        self._directions = np.asarray(walls.directions, np.int64)
        self._of_direction = [np.flatnonzero(self._directions == i) for i in range(DIRECTIONS)]
        # As after a step that leaves all in own slots.
        place, other, shares = link_tables(part, walls, stride)[0]
        self._places, self._shares = (place, other), shares.astype(real)
        # What comes against a near link lies in the same row of slots.
        far = other // stride != self._directions
        bits = (self._directions - 1 << 5) | (OPPOSITE[self._directions] - 1 << 10) | (far << 15)
        self.moving = walls.moving or bool(np.any(walls.velocities))
        # What each launch reads: arguments by name.
        self.tables = tuple(self._of_launch(points, part.bulk, bits) for points in launched)

    def _of_launch(
        self, points: NDArray[np.int64], bulk: int, bits: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Links of the points of a launch, warp by warp."""
        position = np.full(bulk, -1)
        there = points >= 0
        position[points[there]] = np.flatnonzero(there)
        at = position[self._points]
        warp, lane = np.divmod(at, WARP)
        # By direction: lanes side by side then read populations side by side.
        order = np.lexsort((lane, self._directions, warp))[np.count_nonzero(at < 0) :]
        starts = np.zeros(-(-len(points) // WARP) + 1, np.int32)
        np.cumsum(np.bincount(warp[order], minlength=len(starts) - 1), out=starts[1:])
        give = self._device.from_host
        links = np.zeros(max(1, len(order)), np.uint16)
        links[: len(order)] = (lane | bits)[order]
        shares = np.zeros((2, len(links)), self._real)
        shares[:, : len(order)] = self._shares[:, order]
        return {
            "starts": give(starts),
            "links": give(links),
            "shares": give(shares),
            "total": len(links),
        }

    def put_into(self, arrived: Array, i: int, kernel: Any, stored: Array) -> None:
        """Put what these walls send back along direction i in place of what would come from halfway.

        `arrived`: (owned,) what has arrived along i, changed in place.
        """
        chosen = self._of_direction[i]
        if len(chosen):
            arrived[self._device.xp.asarray(self._points[chosen])] = self.sent(
                chosen, kernel, stored
            )

    def sent(self, chosen: NDArray[np.int64], kernel: Any, stored: Array) -> Array:
        """Values that walls return along their links, on the device."""
        device = self._device
        place, other = (device.from_host(table[chosen]) for table in self._places)
        shares = device.from_host(np.ascontiguousarray(self._shares[:, chosen]))
        values = device.zeros((len(chosen),), self._real)
        launch: Launch = kernel.bind(
            f=stored,
            place=place,
            other=other,
            coefficients=shares,
            count=len(chosen),
            sent=values,
            extent=(len(chosen),),
            block=_BLOCK,
        )
        launch()
        return values

    def gained(self, kernel: Any, stored: Array, numbers: Callable[[Array], Array]) -> Floats:
        """Populations that these walls return less those that halfway walls would, on the host, (links,)."""
        sent = self.sent(np.arange(len(self._points)), kernel, stored)
        replaced = numbers(stored[self._device.from_host(self._places[0])])
        give = self._device.to_host
        return np.asarray(give(sent), np.float64) - np.asarray(give(replaced), np.float64)

    def of_points(self, points: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], ...]:
        """Links of some points, each named once: their numbers, and direction and place in `points` of each."""
        if len(points) == 0:
            return (np.zeros(0, np.int64),) * 3
        order = np.argsort(points)
        at = np.searchsorted(points, self._points, sorter=order)
        at = order[np.minimum(at, len(points) - 1)]
        chosen = np.flatnonzero(np.asarray(points)[at] == self._points)
        return chosen, self._directions[chosen], at[chosen]
