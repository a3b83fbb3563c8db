"""The discrete flow equations on a rank's tetrahedra: residual and matrix on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel
from haloscope.numerics.krylov.block_pattern import OFFSET_TYPES
from haloscope.numerics.krylov.block_rows import BlockRows

Floats = NDArray[np.float64]
Vector = tuple[float, float, float]

UNKNOWNS = 4
"""Of a node: velocity along x, y, z, and pressure."""
VISCOUS_CONSTANT = 36.0
"""C_I of the viscous part of tau."""
TEAM = 32
"""Threads of a GPU that have a row, as in places.hpp."""
_MOST_ZONES = 256


@dataclass(frozen=True)
class Carreau:
    """mu = mu_inf + (mu_0 - mu_inf) (1 + (time * rate)^2)^((exponent - 1)/2), in Pa s and s.

    P. J. Carreau, Trans. Soc. Rheol. 16 (1972) 99. mu_0 is the medium's viscosity.
    """

    at_high_shear: float
    time: float
    exponent: float


@dataclass(frozen=True)
class Medium:
    """What fills a zone, and the frame in which it is seen."""

    # In kg/m^3 and Pa s.
    density: float
    viscosity: float
    force: Vector = (0.0, 0.0, 0.0)  # Body force per mass in m/s^2
    # Angular velocity of the zone's frame in rad/s, and a point on its axis in m. Velocities are
    # those of the frame at rest.
    rotation: Vector = (0.0, 0.0, 0.0)
    centre: Vector = (0.0, 0.0, 0.0)
    carreau: Carreau | None = None  # How the viscosity falls with the shear rate


def medium_values(
    media: Sequence[Medium], alpha: float = 0.0, by_dt: float = 0.0, *, lsic: bool = True
) -> Floats:
    """Numbers of all media, one after the other, as elements.hpp's Medium has them.

    alpha and by_dt are those of :meth:`ElementEquations.set_time`.
    """
    values: list[float] = []
    for medium in media:
        law = medium.carreau
        values += [medium.density, medium.viscosity, alpha, by_dt]
        values += [*medium.force, *medium.rotation, *medium.centre]
        values += [VISCOUS_CONSTANT, float(lsic)]
        values += [0.0] * 3 if law is None else [
            law.at_high_shear, law.time**2, (law.exponent - 1) / 2
        ]  # fmt: skip
    return np.array(values)


class ElementEquations:
    """Residual and derivatives of equations on a rank's tetrahedra, row by row of the nodes.

    With several ranks each gives what its own elements add; sums over the ranks that share a node
    are the caller's.
    """

    # `nodes`: positions in m, (nodes, 3).
    # `zones`: of each element, (elements,); all the first by default.

    source: ClassVar[Path]
    """Where the kernels are."""
    residuals_kernel: ClassVar[str]
    linearise_kernel: ClassVar[str]

    def __init__(
        self,
        rows: BlockRows,
        nodes: Floats,
        media: Sequence[Medium],
        zones: NDArray[np.integer] | None = None,
        *,
        lsic: bool = True,
        linearise_tau: bool = False,
    ) -> None:
        if len(media) > _MOST_ZONES:
            raise ValueError(f"{len(media)} zones are too many; at most {_MOST_ZONES} are possible")
        self.device: Device = rows.device
        self.rows, self.media, self.lsic = rows, tuple(media), lsic
        give = self.device.from_host
        elements = len(rows.pattern.element_nodes)
        of_elements = np.zeros(elements) if zones is None else np.asarray(zones)
        self._zones = give(of_elements.astype(np.uint8))
        self._nodes = give(np.pad(np.asarray(nodes, np.float64), ((0, 0), (0, 1))).ravel())
        self._media = give(medium_values(self.media, lsic=lsic))
        carreau = any(medium.carreau is not None for medium in media)
        self._terms: dict[str, int | float | str] = {
            "CARREAU": int(carreau),
            "TAU_SLOPE": int(linearise_tau),
        }
        self._residuals = self._kernel(self.residuals_kernel)
        self._linearise = self._kernel(self.linearise_kernel)

    def set_time(self, alpha: float, by_dt: float) -> None:
        """Set the factor of u in its time derivative, and 1 over the time step that tau knows.

        Both in 1/s; 0 in steady flow.
        """
        values = medium_values(self.media, alpha, by_dt, lsic=self.lsic)
        self._media[...] = self.device.from_host(values)

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put the residual of a state into an array, a number an unknown."""
        rows = self.rows
        self._residuals.bind(
            *(self._nodes, state, self._in_fours(past), rows.element_nodes, self._zones),
            *(self._media, rows.node_starts, rows.node_places, rows.nodes, residual),
            extent=(rows.nodes * TEAM,),
            block=(TEAM,),
        )()

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """As :meth:`residual`, and put its derivatives by all unknowns in the matrix."""
        rows = self.rows
        self._linearise.bind(
            *(self._nodes, state, self._in_fours(past), rows.element_nodes, self._zones),
            *(self._media, rows.node_starts, rows.node_places, rows.offsets, rows.starts),
            *(rows.nodes, rows.values, residual),
            extent=(rows.nodes * TEAM,),
            block=(TEAM,),
        )()

    def _kernel(self, name: str) -> Kernel:
        offset = OFFSET_TYPES[self.rows.pattern.offsets.itemsize]
        return self.device.kernel(self.source, name, {**self._terms, "offset": offset})

    def _in_fours(self, past: Array) -> Array:
        """The past with four numbers a node, which cores and GPUs load at once."""
        return past


class FlowEquations(ElementEquations):
    """The stabilised equations at a time; see elements.hpp.

    States are (u, v, w, p) of each node, in blocks of 4; the past is what the time derivative has
    beside alpha times the velocity, 3 a node.
    """

    source = Path(__file__).with_name("flow.cpp")
    residuals_kernel, linearise_kernel = "residuals", "linearise"

    def __init__(
        self,
        rows: BlockRows,
        nodes: Floats,
        media: Sequence[Medium],
        zones: NDArray[np.integer] | None = None,
        *,
        lsic: bool = True,
        linearise_tau: bool = False,
    ) -> None:
        super().__init__(rows, nodes, media, zones, lsic=lsic, linearise_tau=linearise_tau)
        self._past = self.device.zeros((4 * len(nodes),), np.float64)
        self._spread = self._kernel("spread")

    def _in_fours(self, past: Array) -> Array:
        nodes = self.rows.nodes
        self._spread.bind(past, nodes, self._past, extent=(nodes,))()
        return self._past
