"""The discrete flow equations on a rank's tetrahedra: residual, and the matrix stored or applied without storing it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.targets import KernelFile
from haloscope.numerics.krylov.block_rows import BlockPattern, BlockRows, RowRange
from haloscope.solvers.carreau import Carreau

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
class Medium:
    """The medium of a zone, and its frame of reference."""

    # In kg/m^3 and Pa s.
    density: float
    viscosity: float
    force: Vector = (0.0, 0.0, 0.0)  # Body force per mass in m/s^2
    # Angular velocity of the zone's frame in rad/s, and a point on its axis in m. Velocities are
    # those of the frame at rest.
    rotation: Vector = (0.0, 0.0, 0.0)
    centre: Vector = (0.0, 0.0, 0.0)
    carreau: Carreau | None = None  # How the viscosity falls from that with the shear rate


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
        values += [0.0] * 3 if law is None else [law.at_high_shear, law.time**2, law.power]
    return np.array(values)


@dataclass(frozen=True)
class Terms:
    """Terms of the equations that kernels are compiled for."""

    carreau: bool = False  # Whether any medium's viscosity depends on the shear rate
    tau_slope: bool = False  # Whether the matrix has the derivatives of tau

    @property
    def constants(self) -> dict[str, int | float | str]:
        """Compile-time constants."""
        return {"CARREAU": int(self.carreau), "TAU_SLOPE": int(self.tau_slope)}


class Forces(ABC):
    """Residuals of 4 numbers a node that give forces on boundaries."""

    device: Device

    @abstractmethod
    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put what own elements give at a state into an array."""


class Equations(Forces):
    """Equations for Newton's method, of which each rank gives what its own elements add."""

    rows: BlockRows

    @abstractmethod
    def set_time(self, alpha: float, by_dt: float) -> None:
        """Set the factor of u in its time derivative, and 1 over the time step that tau knows."""

    @abstractmethod
    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """As :meth:`residual`, and put the derivatives in the matrix."""


class ElementEquations(Equations):
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

    @classmethod
    def kernel_file(cls, terms: Terms, offset: str) -> KernelFile:
        """Kernels of these equations, for rows with a type of offsets."""
        return KernelFile(cls.source, {**terms.constants, "offset": offset})

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
        self.device = rows.device
        self.rows, self.media, self.lsic = rows, tuple(media), lsic
        give = self.device.from_host
        elements = len(rows.pattern.element_nodes)
        of_elements = np.zeros(elements) if zones is None else np.asarray(zones)
        self._zones = give(of_elements.astype(np.uint8))
        self._nodes = give(np.pad(np.asarray(nodes, np.float64), ((0, 0), (0, 1))).ravel())
        self._media = give(medium_values(self.media, lsic=lsic))
        carreau = any(medium.carreau is not None for medium in media)
        self._terms = Terms(carreau=carreau, tau_slope=linearise_tau)
        self._residuals = self._kernel(self.residuals_kernel)
        self._linearise = self._kernel(self.linearise_kernel)
        self._open()

    def _open(self) -> None:
        """Make what a kind of equations has beside."""

    def set_time(self, alpha: float, by_dt: float) -> None:
        """Set the factor of u in its time derivative, and 1 over the time step that tau knows.

        Both in 1/s; 0 in steady flow.
        """
        values = medium_values(self.media, alpha, by_dt, lsic=self.lsic)
        self._media[...] = self.device.from_host(values)

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put the residual of a state into an array, a number an unknown."""
        self._launch(self._residuals, state, past, R=residual)

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """As :meth:`residual`, and put its derivatives by all unknowns in the matrix."""
        rows = self.rows
        lists = {"offsets": rows.offsets, "starts": rows.starts}
        self._launch(self._linearise, state, past, R=residual, values=rows.values, **lists)

    def _launch(self, kernel: Kernel, state: Array, past: Array, **arrays: Array) -> None:
        nodes = self.rows.nodes
        kernel.bind(
            extent=(nodes * TEAM,),
            block=(TEAM,),
            nodes=nodes,
            **arrays,
            **self._mesh(state, self._in_fours(past)),
        )()

    def _mesh(self, state: Array, past: Array) -> dict[str, Array]:
        """Arguments of kernels, as struct Mesh in places.hpp has them."""
        rows = self.rows
        return {
            "X": self._nodes,
            "q": state,
            "past": past,
            "elements": rows.element_nodes,
            "zones": self._zones,
            "media": self._media,
            "node_starts": rows.node_starts,
            "places": rows.node_places,
        }

    def _kernel(self, name: str) -> Kernel:
        source, constants = self.kernel_file(self._terms, self.rows.pattern.offset)
        return self.device.kernel(source, name, constants)

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

    def _open(self) -> None:
        self._past = self.device.zeros((4 * self.rows.nodes,), np.float64)
        self._spread = self._kernel("spread")

    def _in_fours(self, past: Array) -> Array:
        nodes = self.rows.nodes
        self._spread.bind(extent=(nodes,), three=past, nodes=nodes, four=self._past)()
        return self._past


_MATRIX_FREE = Path(__file__).with_name("matrix_free.cpp")


def matrix_free_file(terms: Terms) -> KernelFile:
    """Kernels of :class:`UnstoredRows` and of :class:`MatrixFreeEquations`."""
    return KernelFile(_MATRIX_FREE, terms.constants)


class UnstoredRows(BlockRows):
    """The matrix of :class:`MatrixFreeEquations`: it holds the nodes' own blocks alone."""

    # It takes the place of stored rows in products, also over ranks
    # (:class:`haloscope.numerics.shared_nodes.SharedProduct`), in point blocks, where unknowns are
    # given, and where boundaries add to own blocks. It has no other blocks for a preconditioner,
    # and none for walls with slip.
    #
    # A node of a tetrahedral mesh has about 15 blocks. Stored ones take 2.2 kB a node with their
    # lists; these take 0.4, the state of the linearisation included.

    def __init__(self, device: Device, pattern: BlockPattern) -> None:
        own = np.arange(pattern.nodes, dtype=np.int32)
        kept = replace(
            pattern,
            starts=np.arange(pattern.nodes + 1, dtype=np.int32),
            columns=own,
            diagonal=own,
            offsets=np.zeros((1, pattern.element_nodes.shape[1]), np.uint8),
        )
        super().__init__(device, kept, UNKNOWNS)
        self.is_fixed = device.zeros((self.nodes * UNKNOWNS,), np.uint8)
        self._mesh: Mapping[str, Array] | None = None

    @property
    def bytes_of_product(self) -> int:
        """Bytes that a product moves if each number is moved once."""
        own = 8 * UNKNOWNS**2 + UNKNOWNS
        fields = 3 * 8 * UNKNOWNS
        lists = 4 * (self.nodes + 1) + self.pattern.element_nodes.size * 8
        zones = len(self.pattern.element_nodes)
        return self.nodes * (own + fields + 2 * 8 * UNKNOWNS) + lists + zones

    def follow(self, mesh: Mapping[str, Array], terms: Terms) -> None:
        """Multiply with the derivatives of a mesh's elements from now on.

        `mesh`: arguments of kernels, as struct Mesh in places.hpp has them.
        """
        self._mesh = mesh
        source, constants = matrix_free_file(terms)
        self._multiply = self.device.kernel(source, "multiply_unstored", constants)
        self._give = self.device.kernel(source, "give", constants)

    def product(self, x: Array, y: Array, rows: RowRange, values: Array | None = None) -> Launch:
        """Bind the product to two arrays that do not overlap, to be launched again and again."""
        if values is not None:
            raise ValueError(
                "unstored rows have no copy in single precision; give Newton's method a product of its own"
            )
        assert self._mesh is not None
        count = rows.end - rows.first
        return self._multiply.bind(
            extent=(count * TEAM,),
            block=(TEAM,),
            own=self.values,
            prescribed=self.is_fixed,
            first=rows.first,
            count=count,
            x=x,
            y=y,
            **self._mesh,
        )

    def fixing(self, unknowns: np.ndarray, owned: np.ndarray | None = None) -> Launch:
        """As of stored rows: until the equations are linearised again."""
        chosen = np.asarray(unknowns, np.int32)
        ones = np.ones(len(chosen)) if owned is None else owned[chosen // UNKNOWNS]
        return self._give.bind(
            extent=(len(chosen),),
            unknowns=self.device.from_host(chosen),
            ones=self.device.from_host(np.asarray(ones, np.float64)),
            count=len(chosen),
            own=self.values,
            prescribed=self.is_fixed,
        )


class MatrixFreeEquations(FlowEquations):
    """The equations, linearised without a matrix; see matrix_free.cpp."""

    # :meth:`linearise` computes the residual and the nodes' own blocks, and keeps the state. Each
    # product then computes what elements add to a row from that state, element by element, and
    # multiplies at once. Sums run row by row in the order of elements, as those of stored rows do,
    # with the same bits for any number of threads; they differ from a stored matrix's by rounding,
    # since that adds first what elements have in a block.

    rows: UnstoredRows

    def _open(self) -> None:
        super()._open()
        rows = self.rows
        # Where the equations were linearised.
        self._frozen = self._mesh(rows.vector(), rows.vector())
        self._frozen["media"] = self.device.zeros(self._media.shape, np.float64)
        source, constants = matrix_free_file(self._terms)
        self._linearise_own = self.device.kernel(source, "linearise_own", constants)
        rows.follow(self._frozen, self._terms)

    def linearise(self, state: Array, past: Array, residual: Array) -> None:
        """As :meth:`residual`, and keep what products with the derivatives need."""
        rows, frozen = self.rows, self._frozen
        frozen["q"][:] = state
        frozen["past"][:] = self._in_fours(past)
        frozen["media"][:] = self._media
        self._linearise_own.bind(
            extent=(rows.nodes * TEAM,),
            block=(TEAM,),
            nodes=rows.nodes,
            own=rows.values,
            prescribed=rows.is_fixed,
            R=residual,
            **frozen,
        )()


SLAB_UNKNOWNS = 2 * UNKNOWNS
"""Of a node: velocity and pressure at the slab's start, seen from above, then those at its end."""


class SlabEquations(ElementEquations):
    """The stabilised equations of one slab; see space_time.hpp."""

    # States are (u, v, w, p) of each node at the slab's start, then at its end, in blocks of 8; the
    # past is (u, v, w) of each node at the end of the slab before, and a number of no meaning. 1
    # over the slab's length in time is both numbers of :meth:`set_time`. Residuals are means over
    # the slab, so that they compare with those of
    # :class:`haloscope.solvers.flow.equations.equations.FlowEquations`.

    source = Path(__file__).with_name("space_time.cpp")
    residuals_kernel, linearise_kernel = "slab_residuals", "linearise_slab"


class SlabEnds(Forces):
    """Forces at the end of a slab of :class:`SlabEquations`, as equations with 4 a node."""

    # The residuals of a node at both levels are means over the slab of T_0 and T_1 times the force
    # that holds the flow there. Taken as linear in time, that force is 4 R_1 - 2 R_0 at the end;
    # its mean is R_0 + R_1.

    def __init__(self, equations: SlabEquations) -> None:
        self.device, self._equations = equations.device, equations
        self._both = equations.rows.vector()

    def residual(self, state: Array, past: Array, residual: Array) -> None:
        """Put residuals at the end into an array of 4 a node."""
        self._equations.residual(state, past, self._both)
        levels = self._both.reshape(-1, 2, UNKNOWNS)
        residual[:] = (4.0 * levels[:, 1] - 2.0 * levels[:, 0]).ravel()
