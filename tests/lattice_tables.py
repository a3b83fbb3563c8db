"""Small lattices for tests of the fluid, by brute force, and a fluid of two arrays to compare with."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from haloscope.solvers.blood.fluid.lattice import OPPOSITE, VELOCITIES, WEIGHTS


@dataclass
class Part:
    coordinates: np.ndarray
    owned: int
    bulk: int
    numbers: np.ndarray
    sources: np.ndarray
    rows: int = 0


def box_part(shape, periodic=(True, True, True), solid=None, openings=()):
    """All points of a box that are not solid, indexed [x, y, z].

    Openings are (axis, side): planes of points at the lower (0) or upper (1) end, whose neighbours
    beyond the end are outside. Elsewhere beyond an end that is not periodic there is a wall.
    """
    shape = np.array(shape)
    fluid = np.ones(shape, bool) if solid is None else ~solid
    at = np.argwhere(fluid)
    raster = at[:, 0] + shape[0] * (at[:, 1] + shape[1] * at[:, 2])
    in_opening = np.zeros(len(at), bool)
    for axis, side in openings:
        in_opening |= at[:, axis] == (shape[axis] - 1 if side else 0)
    order = np.lexsort((raster, in_opening))
    at, raster = at[order], raster[order]
    index = np.full(shape, -1, np.int32)
    index[tuple(at.T)] = np.arange(len(at))
    sources = np.empty((18, len(at)), np.int32)
    for i in range(1, 19):
        y = at - VELOCITIES[i]
        beyond = np.zeros((len(at), 3, 2), bool)
        beyond[:, :, 0], beyond[:, :, 1] = y < 0, y >= shape
        source = index[tuple((y % shape).T)]
        for axis in range(3):
            if not periodic[axis]:
                source = np.where(beyond[:, axis].any(axis=1), -1, source)
        for k, (axis, side) in enumerate(openings):
            source = np.where(beyond[:, axis, side], -2 - k, source)
        sources[i - 1] = source
    return Part(at.astype(np.int32), len(at), int((~in_opening).sum()), raster, sources)


@dataclass
class TwoArrays:
    """The same fluid, from the formulas as papers print them, one array for the old populations."""

    part: Part
    f: np.ndarray
    tau: np.ndarray | float
    magic: float | None = None
    force: np.ndarray = field(default_factory=lambda: np.zeros((3, 1)))

    def density(self):
        return self.f.sum(axis=0)

    def velocity(self):
        return (VELOCITIES.T @ self.f + self.force / 2) / self.density()

    def step(self):
        rho, u = self.density(), self.velocity()
        c_u, w = VELOCITIES @ u, WEIGHTS[:, None]
        equilibrium = w * rho * (1 + 3 * c_u + 4.5 * c_u**2 - 1.5 * (u**2).sum(axis=0))
        # Guo, Zheng and Shi (2002), equation 20, without the factor 1 - 1 / (2 tau).
        c_g = VELOCITIES @ (self.force + 0 * u)
        source = w * (3 * (c_g - (u * self.force).sum(axis=0)) + 9 * c_u * c_g)
        plus = 1 / self.tau
        minus = plus
        if self.magic is not None:
            minus = 1 / (0.5 + self.magic / (self.tau - 0.5))
        away = self.f - equilibrium
        after = self.f.copy()
        for sign, rate in ((1, plus), (-1, minus)):
            after -= rate * (away + sign * away[OPPOSITE]) / 2
            after += (1 - rate / 2) * (source + sign * source[OPPOSITE]) / 2
        self.stream(after)

    def stream(self, after):
        self.f = after.copy()
        for i in range(1, 19):
            source = self.part.sources[i - 1]
            self.f[i] = np.where(source < 0, after[OPPOSITE[i]], after[i][source])


def split(part, owner):
    """Parts of ranks: each has the points whose owner it is, and ghosts of its own."""
    parts = []
    for rank in range(int(owner.max()) + 1):
        mine = np.flatnonzero(owner == rank)
        sources = part.sources[:, mine]
        there = np.unique(sources[sources >= 0])
        ghosts = there[owner[there] != rank]
        ghosts = ghosts[np.argsort(part.numbers[ghosts])]
        local = np.full(part.owned, -1, np.int32)
        local[mine] = np.arange(len(mine))
        local[ghosts] = len(mine) + np.arange(len(ghosts))
        both = np.concatenate([mine, ghosts])
        parts.append(
            Part(
                part.coordinates[both],
                len(mine),
                int((mine < part.bulk).sum()),
                part.numbers[both],
                np.where(sources >= 0, local[sources], sources).astype(np.int32),
            )
        )
    return parts
