"""A red cell pulled by optical tweezers: its shapes at rest under forces on two opposite patches.

Without fluid: what is looked for is the equilibrium, which does not depend on the way there. All
forces are applied at once, each to a cell of its own. Lengths are in um, forces in pN.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal

import numpy as np

from haloscope.device.interface import Device
from haloscope.errors import SolutionError
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import red_cell

PATCH = 0.05
"""Share of the vertices that each bead holds: a patch 2.6 um by 2.3 um on the cell's rim.

Mills et al. give a contact of 2 um. A patch holds its shape, as on a stiff bead. Were each of its
vertices pulled by itself, tips would be drawn out and the cell be 8 to 22 % longer.
"""
_DATA = "red_cell_stretching_mills2004.csv"
# FIRE with its authors' parameters: E. Bitzek et al., Phys. Rev. Lett. 97 (2006) 170201.
_DELAY, _FASTER, _SLOWER, _MIXING, _LESS_MIXING = 5, 1.1, 0.5, 0.1, 0.99
_LONGEST_STEP = 0.4
"""Pseudo-time by the period of a mesh whose stiffness is the modulus of dilation, at mass 1."""
_FARTHEST = 0.1
"""Distance in um that a vertex may go in a step."""
_MOST_STEPS = 20_000
_AREA_MODULUS = 100.0
_VOLUME_MODULUS = 1000.0


@dataclass(frozen=True)
class Measured:
    """Mean and range of measured diameters, each (n,) in um, at forces (n,) in pN."""

    force: np.ndarray
    axial: np.ndarray
    axial_range: tuple[np.ndarray, np.ndarray]
    transverse: np.ndarray
    transverse_range: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Stretched:
    """Computed shapes."""

    force: np.ndarray  # (n,) in pN
    # (n,) diameters along the forces, and across them in the plane of the cell, in um.
    axial: np.ndarray
    transverse: np.ndarray
    # (n,) in um^3 and um^2.
    volume: np.ndarray
    area: np.ndarray
    steps: int  # Of the relaxation
    residual: np.ndarray  # (n,) largest force left on a vertex, in pN


def measured() -> Measured:
    """The measurements of Mills et al., Mech. Chem. Biosyst. 1 (2004) 169."""
    text = resources.files("haloscope.solvers.blood.verification").joinpath(_DATA).read_text()
    rows = list(csv.reader(line for line in text.splitlines() if not line.startswith("#")))
    f, a, a0, a1, t, t0, t1 = np.array(rows[1:], float).T
    return Measured(f, a, (a0, a1), t, (t0, t1))


def stretch(
    device: Device,
    forces: Sequence[float] | np.ndarray,
    *,
    shear_modulus: float = 2.5,
    dilation: float = 10.0,
    bending_modulus: float = 0.2,
    vertices: int = 642,
    elements: Literal["loop", "linear"] = "loop",
    tolerance: float = 0.01,
) -> Stretched:
    """Shapes of a red cell in equilibrium with forces on two patches at opposite ends.

    `forces`: (n,) whole force on each patch, in pN; `shear_modulus`, `dilation`, `bending_modulus`:
    g in pN/um and C of the Skalak law, k_b in pN um.
    """
    pull = np.asarray(forces, np.float64)
    count = len(pull)
    mesh = red_cell(vertices)
    law = MembraneLaw(
        shear_modulus,
        dilation=dilation,
        bending_modulus=bending_modulus,
        area_modulus=_AREA_MODULUS,
        volume_modulus=_VOLUME_MODULUS,
    )
    cells = Membranes(device, mesh, count, law, elements=elements)
    patches = [_patch(mesh.vertices, sign) for sign in (-1.0, 1.0)]

    def forces_at(x: np.ndarray) -> np.ndarray:
        cells.set_cells(0, x)
        cells.compute_forces(count)
        forces = cells.on_host(cells.forces, count)
        for sign, patch in zip((-1.0, 1.0), patches, strict=True):
            forces[:, patch] = forces[:, patch].mean(axis=1, keepdims=True)
            forces[:, patch, 0] += sign * pull[:, None] / len(patch)
        return forces

    enough = tolerance * np.maximum(pull, 1.0) / len(patches[0])
    longest = _LONGEST_STEP / math.sqrt(shear_modulus * (1 + 2 * dilation))
    start = np.repeat(mesh.vertices[None], count, axis=0)
    x, residual, steps = _relax(start, forces_at, enough, longest)
    cells.require_sound(count)
    shapes = cells.shapes(count)
    axial, transverse = (np.ptp(x[:, :, axis], axis=1) for axis in (0, 1))
    return Stretched(pull, axial, transverse, shapes.volume, shapes.area, steps, residual)


def _patch(vertices: np.ndarray, sign: float) -> np.ndarray:
    """The vertices nearest to the cell's end on the positive or negative side of x."""
    end = np.array([sign * np.abs(vertices[:, 0]).max(), 0.0, 0.0])
    distance = np.linalg.norm(vertices - end, axis=1)
    count = max(1, round(len(vertices) * PATCH))
    # Mirror images are equally far but for rounding: all or none of them belong to the patch.
    return np.flatnonzero(distance <= np.sort(distance)[count - 1] * (1 + 1e-9))


def _relax(
    x: np.ndarray,
    forces_at: Callable[[np.ndarray], np.ndarray],
    enough: np.ndarray,
    longest: float,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Equilibrium of n cells by the fast inertial relaxation engine, each at its own pace.

    `x`: (n, V, 3) positions to start from; `forces_at`: gives the forces at positions, both (n, V,
    3); `enough`: (n,) largest force on a vertex with which a cell counts as at rest.
    """

    def per_vertex(values: np.ndarray) -> np.ndarray:
        return values[:, None, None]

    v = np.zeros_like(x)
    dt, mixing = np.full(len(x), 0.1 * longest), np.full(len(x), _MIXING)
    downhill_since = np.zeros(len(x), int)
    for step in range(_MOST_STEPS):
        f = forces_at(x)
        size = np.linalg.norm(f, axis=2)
        residual = size.max(axis=1)
        if (residual <= enough).all():
            return x, residual, step
        downhill = (f * v).sum(axis=(1, 2)) > 0
        downhill_since = np.where(downhill, downhill_since + 1, 0)
        steady = downhill & (downhill_since > _DELAY)
        ratio = np.linalg.norm(v, axis=(1, 2)) / np.maximum(np.linalg.norm(size, axis=1), 1e-300)
        v *= per_vertex(np.where(downhill, 1 - mixing, 0.0))
        v += per_vertex(np.where(downhill, mixing * ratio, 0.0)) * f
        dt = np.where(steady, np.minimum(dt * _FASTER, longest), dt)
        dt = np.where(downhill, dt, dt * _SLOWER)
        mixing = np.where(steady, mixing * _LESS_MIXING, np.where(downhill, mixing, _MIXING))
        v += per_vertex(dt) * f
        farthest = dt * np.linalg.norm(v, axis=2).max(axis=1)
        x = x + per_vertex(dt * np.minimum(1.0, _FARTHEST / np.maximum(farthest, _FARTHEST))) * v
    raise SolutionError(
        f"the stretched cell is not at rest after {_MOST_STEPS} steps: the residual force on a vertex is "
        f"{residual.max():.3g} pN",
        remedy="use a finer mesh or a smaller force",
    )
