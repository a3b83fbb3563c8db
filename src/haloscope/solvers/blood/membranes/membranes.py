"""Membranes of all cells of one kind on a device: forces on their vertices, energies, shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.program import Field
from haloscope.device.targets import KernelFile, Target
from haloscope.errors import SolutionError
from haloscope.solvers.blood.membranes.elements import (
    GPU_THREADS,
    WARP,
    Chunks,
    ChunkWay,
    Elements,
    GpuBlocks,
    elements_of,
    kernel_constants,
)
from haloscope.solvers.blood.membranes.meshes import CellShapes, MembraneMesh, fault, fold_onset

SOURCE = Path(__file__).with_name("membrane.cpp")
ENERGIES = ("elastic", "bending", "area", "volume", "folds")
_MOMENTS = 12
ALONE, OWN, COPIES, SHARED = range(4)
"""Parts of the cells of a rank: own ones that no other rank holds, others of its own, copies of
others', and the last two together."""

_PARTS = ("alone", "own", "copies")
_PARTS_OF = (("alone",), ("own",), ("copies",), ("own", "copies"))
# Bytes of a GPU's block beside what waits for others.
_GPU_STATIC = 4 << 10
_CORNER_RESPONSE = 7
_TRIANGLE_SHEETS = 2
_FOLD_SHEETS = 4
_LEAST_AREA_RATIO = 0.2
_CORES_SCRATCH = 13 * 8
_CELLS_AT_ONCE = 64
# Threads of a processor that move vertices.
_MOVING = 2048


# Of an element: an equilateral one has 1. Those of crowded cells go down to 0.1.
_LEAST_QUALITY = 0.01


@dataclass(frozen=True)
class MembraneLaw:
    """Law of a membrane, in consistent units (of the lattice, or um, pN and s)."""

    shear_modulus: float  # G, force by length
    # ``skalak``: W = G/4 (I1^2 + 2 I1 - 2 I2 + C I2^2); ``neo-hookean``: W = G/2 (I1 - 1 + 1/(I2 +
    # 1)); I1 and I2 are the invariants of Skalak et al. (1973).
    elasticity: Literal["skalak", "neo-hookean"] = "skalak"
    dilation: float = 1.0  # C of the Skalak law; the modulus of dilation is K = G (1 + 2 C)
    # k_b of Helfrich's energy k_b/2 times the integral of (2 H - c0)^2.
    bending_modulus: float = 0.0
    # c0, positive for a sphere; ``reference``: the curvature 2 H of the shape at rest, place by
    # place, so that this shape is free of bending moments.
    spontaneous_curvature: float | Literal["reference"] = 0.0
    # kappa_A and kappa_V of the energies kappa_A (A - A0)^2/(2 A0), kappa_V (V - V0)^2/(2 V0) of
    # each cell's whole area and volume, of the polyhedron of its vertices.
    area_modulus: float = 0.0
    volume_modulus: float = 0.0
    # Surface shear viscosity mu: tension mu (2 D - tr(D) 1), D the rate of deformation.
    viscosity: float = 0.0
    # kv, force by length, of springs in series with the viscosity (Maxwell's model): what steps
    # have to bear, however large mu is. The tension comes mu/kv late.
    viscous_stiffness: float = 0.005
    # Stiffness, force by length, against folds between neighbouring triangles of the mesh, and
    # against triangles that collapse (membrane_folds.hpp); 0: none.
    fold_guard: float = 0.0

    @property
    def least_area_ratio(self) -> float:
        """Area over that at rest from which on the guard against folds holds a triangle.

        Where a Skalak membrane that is compressed alike in all directions resists most: its tension
        G (1 - r) (1 + C r (1 + r)) is largest at r^2 = (C - 1)/(3 C). At least 0.2.
        """
        if self.elasticity != "skalak":
            return _LEAST_AREA_RATIO
        square = (self.dilation - 1) / (3 * max(self.dilation, 1.0))
        return max(math.sqrt(max(square, 0.0)), _LEAST_AREA_RATIO)


def kernel_files(
    target: Target,
    mesh: Callable[[], MembraneMesh],
    vertices: int,
    *,
    viscous: bool,
    elements: Elements,
) -> list[KernelFile]:
    """The kernels of a kind, for few cells and for many; only subdivision surfaces on GPUs depend on the mesh."""
    blocks: list[GpuBlocks | None] = [None]
    if target.kind != "cpu" and elements == "linear":
        blocks = [GpuBlocks.of_linear(vertices)]
    elif target.kind != "cpu":
        nodes, regular, _ = elements_of(mesh(), elements)
        blocks = [
            GpuBlocks.of_loop(vertices, nodes, regular, target.block_memory, way)
            for way in (Membranes.CHUNKS, Membranes.FEW)
        ]
    return [KernelFile(SOURCE, kernel_constants(elements, one, viscous=viscous)) for one in blocks]


class Membranes:
    """The cells of one kind that are present: arrays over their vertices, and laws between them."""

    # Forces are minus the gradients of the discrete energies. Those of viscosity are due to the
    # strain of springs that give way as :meth:`relax` says. On cores the bits do not depend on
    # threads, nor on which other cells are present.

    CHUNKS = ChunkWay()
    """How GPUs go through subdivision surfaces, where a block's memory allows it."""

    FEW = ChunkWay(size=256, blocks=1)
    """The same of cells of which each has a processor of its own: half as many chunks, one after the other."""

    def __init__(
        self,
        device: Device,
        mesh: MembraneMesh,
        capacity: int,
        law: MembraneLaw,
        *,
        elements: Elements = "loop",
    ) -> None:
        # The shape at rest, lengths in the unit of the positions.
        self.mesh, self.law, self.capacity = mesh, law, capacity
        self.vertices = len(mesh.vertices)
        self._device = device
        size = 3 * capacity * self.vertices
        # Flat arrays of float64: component d of vertex v of cell c is at (d * capacity + c) *
        # vertices + v. Positions are not wrapped.
        self.positions = device.zeros((size,), "f8")
        self.velocities = device.zeros((size,), "f8")
        self.forces = device.zeros((size,), "f8")
        self._before = device.zeros((size,), "f8")
        self._fields = {
            id(array): Field(name, array, cells=_PARTS)
            for name, array in (
                ("positions", self.positions),
                ("velocities", self.velocities),
                ("forces", self.forces),
                ("velocities before", self._before),
            )
        }
        # Two such arrays where the membrane is viscous, none otherwise: metrics of elements in
        # which the springs in series with the viscosity are at rest, component d = 11, 12, 22 of
        # element e < vertices in the first, e - vertices in the second.
        self.natural = [device.zeros((size,), "f8") for _ in range(2 if law.viscosity else 0)]
        # What forces and motion follow from: positions, velocities and natural metrics.
        self.state = [self.positions, self.velocities, *self.natural]
        self._elements, self._loop = elements, elements == "loop"
        self._set_elements()
        # Members of struct Law of membrane.hpp.
        self._law = {
            "G": law.shear_modulus,
            "C": law.dilation,
            "kb": law.bending_modulus,
            "kA": law.area_modulus,
            "kV": law.volume_modulus,
            "A0": mesh.area(),
            "V0": mesh.volume(),
            "kv": law.viscous_stiffness,
            "keep": law.viscosity / (law.viscosity + law.viscous_stiffness or 1.0),
            "skalak": float(law.elasticity == "skalak"),
            "kf": law.fold_guard * mesh.area() / len(mesh.triangles),
            "cf": min(math.cos(fold_onset(mesh)), 0.0),
            "rf": law.least_area_ratio,
        }
        self._energies = device.zeros((len(ENERGIES) * capacity,), "f8")
        self._moments = device.zeros((_MOMENTS * capacity,), "f8")
        self._set_scratch()
        self._launches: dict[tuple[str, int], Launch] = {}
        self._of_parts: dict[tuple[str, int], Launch] = {}
        self.parts = (0, 0, 0)  # How many cells :meth:`divide` has put into each part
        self._divided = np.zeros(capacity, np.int32)
        self._rows = device.from_host(self._divided)
        # Where each part begins, and where the last one ends.
        self._spans = device.zeros((2 * (len(self.parts) + 1),), np.int32)

    def compute_forces(self, count: int) -> None:
        """Set the forces of the first `count` cells."""
        self._launch("forces", count)

    def divide(self, *parts: NDArray[np.integer]) -> None:
        """Say which cells, by their places, belong to the first part and which to the second.

        Launches for the parts stay as they are.
        """
        first, second, third, *_ = (*(len(part) for part in parts), 0, 0)
        counts = (first, second, third)
        divided = np.zeros_like(self._divided)
        divided[: sum(counts)] = np.concatenate(parts)
        if counts != self.parts or not np.array_equal(divided, self._divided):
            self.parts, self._divided = counts, divided
            self._rows[...] = self._device.from_host(divided)
            a, b, c = np.cumsum(counts).tolist()
            spans = np.array([0, a, a, b, b, c, a, c], np.int32)
            self._spans[...] = self._device.from_host(spans)

    def compute_forces_of(self, part: int, stream: Any = None) -> None:
        """Set the forces of the cells of a part, on a stream of the device; None: the main one.

        A part always has the same stream.
        """
        self._launch_part("forces", part, stream)

    def view(self, array: Array, part: int | None) -> Any:
        """One of the arrays of vertices with the cells of a part; None: all of them."""
        return array if part is None else self._fields[id(array)][_PARTS_OF[part]]

    def part(self, number: int) -> tuple[Array, Array]:
        """Where the cells of a part stand: all rows in turn, and which of them are this part's."""
        return self._rows, self._spans[2 * number : 2 * number + 2]

    def advance(self, part: int) -> None:
        """Move the cells of a part for one step, with the mean of its velocities and those of the step before.

        Lattices keep momentum that changes its sign from step to step, and membranes that went with it
        would feed it: each push comes a step late, when it has become one onwards.
        """
        self._launch_part("advance", part)

    def relax(self, part: int) -> None:
        """Let the springs of the cells of a part give way for a step; needed of viscous ones alone."""
        if self.natural:
            self._launch_part("relax", part)

    def keep_velocities(self) -> None:
        """Take the present velocities for those of the step before the next."""
        self._before[...] = self.velocities

    def energies(self, count: int) -> dict[str, np.ndarray]:
        """Energies of the first `count` cells by name (:data:`ENERGIES`), each (count,)."""
        self._launch("energies", count)
        energies = self._device.to_host(self._energies).reshape(len(ENERGIES), self.capacity)
        return {name: energies[k, :count] for k, name in enumerate(ENERGIES)}

    def shapes(self, count: int) -> CellShapes:
        """Volumes, centres, moments and worst elements of the first `count` cells."""
        self._launch("moments", count)
        moments = self._device.to_host(self._moments).reshape(_MOMENTS, self.capacity)[:, :count]
        cells = self.positions.reshape(3, self.capacity, self.vertices)
        first = self._device.to_host(cells[:, :count, 0]).T
        return CellShapes.from_moments(moments, first)

    def require_sound(
        self, count: int, numbers: np.ndarray | None = None, kind: str = "cell"
    ) -> None:
        """Refuse to go on if an element of the first `count` cells is inverted, a spike or NaN.

        `numbers`: (count,) by which cells are named in messages; by default their places.
        """
        quality = self.shapes(count).quality
        bad = np.flatnonzero(quality < _LEAST_QUALITY)
        if bad.size:
            name = int(bad[0] if numbers is None else numbers[bad[0]])
            others = f" and {bad.size - 1} more" if bad.size > 1 else ""
            x = self.on_host(self.positions, count)[bad[0]]
            problem, remedy = fault(x, self.mesh)
            raise SolutionError(
                f"the membrane has folded over: {problem}",
                location=f"{kind} {name}{others}",
                remedy=remedy,
            )

    def set_cells(self, first: int, vertices: np.ndarray) -> None:
        """Put cells at given places: positions (n, V, 3) of cells `first` to `first` + n - 1.

        Springs in series with viscosity are at rest then.
        """
        for array, values in zip(
            self.state, np.moveaxis(self.settled(vertices), 1, 0), strict=True
        ):
            cells = array.reshape(3, self.capacity, self.vertices)
            components = np.ascontiguousarray(np.moveaxis(values, 2, 0), np.float64)
            cells[:, first : first + len(vertices)] = self._device.from_host(components)
        self.keep_velocities()

    def settled(self, vertices: np.ndarray) -> np.ndarray:
        """State of cells without motion: (n, arrays of the state, V, 3) for vertices (n, V, 3)."""
        states = np.zeros((len(vertices), len(self.state), self.vertices, 3))
        states[:, 0] = vertices
        if self.natural:
            count = len(self.mesh.triangles)
            sheets = states[:, 2:].reshape(len(vertices), 2 * self.vertices, 3)
            # All patches of many cells at once would take half a megabyte each.
            for begin in range(0, len(vertices), _CELLS_AT_ONCE):
                span = slice(begin, begin + _CELLS_AT_ONCE)
                a1, a2 = self._tangents(np.asarray(vertices[span], np.float64))
                metrics = [(p * q).sum(axis=2) for p, q in ((a1, a1), (a1, a2), (a2, a2))]
                sheets[span, :count] = np.stack(metrics, axis=2)
        return states

    def fitted(self, state: np.ndarray) -> np.ndarray:
        """A state (n, 2 or 4, V, 3) that these or other cells had, as these cells have one.

        What was viscous leaves its springs behind; what becomes viscous begins with springs at rest.
        """
        if state.shape[1] >= len(self.state):
            return state[:, : len(self.state)]
        states = self.settled(state[:, 0])
        states[:, 1] = state[:, 1]
        return states

    def on_host(self, array: Array, count: int) -> np.ndarray:
        """Values of one of the flat arrays for the first `count` cells, as (count, V, 3)."""
        # One component after the other: a GPU copies what has gaps once more before it gives it.
        cells = array.reshape(3, self.capacity, self.vertices)
        stacked = np.stack([self._device.to_host(one[:count]) for one in cells])
        return np.moveaxis(stacked, 0, 2)

    def _set_elements(self) -> None:
        mesh, device = self.mesh, self._device
        nodes, regular, weights = elements_of(mesh, self._elements)
        self._regular, self._nodes, self._weights = regular, nodes, weights
        self._kernel_weights = np.ascontiguousarray(weights[:, 1:].swapaxes(1, 2))
        reference, curvature = self._reference(nodes, weights)
        counts, wedges = self._around(nodes[:, :3])
        # Arguments of kernels by name.
        self._tables = {
            "elements": device.from_host(np.ascontiguousarray(nodes.T, np.int32)),
            "weights": device.from_host(self._kernel_weights),
            "reference": device.from_host(reference),
            "curvature": device.from_host(curvature),
            "counts": device.from_host(np.ascontiguousarray(counts, np.int32)),
            "wedges": device.from_host(np.ascontiguousarray(wedges, np.int32)),
        }
        self._sizes: dict[str, Any] = {
            "capacity": self.capacity,
            "V": self.vertices,
            "E": len(self.mesh.triangles),
        }

    def _around(self, triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Corners that each vertex is, (V,), and of these the flat place and vertices, (most, V, 4)."""
        owners = triangles.ravel()
        places = np.argsort(owners, kind="stable")
        counts = np.bincount(owners, minlength=self.vertices)
        rank = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        around = np.zeros((counts.max(), self.vertices, 4), np.int32)
        around[rank, owners[places], 0] = places
        around[rank, owners[places], 1:] = triangles[places // 3]
        return counts, around

    def _reference(self, nodes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Metric at rest and area of each element, and spontaneous curvatures."""
        x = self.mesh.vertices[nodes]
        a1, a2 = (tangents[0] for tangents in self._tangents(self.mesh.vertices[None]))
        if self._loop:
            kinds = (np.arange(len(nodes)) >= self._regular).astype(int)
            d = np.einsum("ewk,ekx->wex", weights[kinds], x)
        a11, a12, a22 = ((p * q).sum(axis=1) for p, q in ((a1, a1), (a1, a2), (a2, a2)))
        S = np.cross(a1, a2)
        det = a11 * a22 - a12**2
        sides = x[:, [1, 2, 0]] - x[:, :3]
        flat = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=1) / 2
        Q = flat / (sides**2).sum(axis=(1, 2))
        reference = np.stack([a22 / det, -a12 / det, a11 / det, 1 / det, np.sqrt(det) / 2, flat, Q])
        if self.law.spontaneous_curvature != "reference":
            count = len(nodes) if self._loop else self.vertices
            return reference, np.full(count, float(self.law.spontaneous_curvature))
        if self._loop:
            Y = a22[:, None] * d[3] + a11[:, None] * d[4] - 2 * a12[:, None] * d[5]
            return reference, -(S * Y).sum(axis=1) / det**1.5
        return reference, self._vertex_curvatures(x, S / 2)

    def _tangents(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of all elements of cells with vertices (n, V, 3): two of (n, E, 3)."""
        x = vertices[:, self._nodes]
        if not self._loop:
            return x[:, :, 1] - x[:, :, 0], x[:, :, 2] - x[:, :, 0]
        kinds = (np.arange(len(self._nodes)) >= self._regular).astype(int)
        v, w = np.einsum("ewk,nekx->wnex", self._weights[kinds, 1:3], x)
        return v, w

    def _vertex_curvatures(self, x: np.ndarray, S: np.ndarray) -> np.ndarray:
        """2 H at the vertices at rest, as the kernel has it: M.N / (|N| A)."""
        area = np.linalg.norm(S, axis=1)
        M, N = np.zeros((2, self.vertices, 3))
        A = np.zeros(self.vertices)
        for k in range(3):
            to = self.mesh.triangles[:, k]
            opposite = x[:, (k + 2) % 3] - x[:, (k + 1) % 3]
            np.add.at(M, to, np.cross(S / area[:, None], opposite) / 2)
            np.add.at(N, to, S / 3)
            np.add.at(A, to, area / 3)
        curvature: np.ndarray = (M * N).sum(axis=1) / np.linalg.norm(N, axis=1) / A
        return curvature

    def _set_scratch(self) -> None:
        """How the kernel of forces goes through cells, and room in which it keeps what a few of them say."""
        device, count = self._device, len(self.mesh.triangles)
        self._threads, self._room, self._on_chip, self._shared = WARP, 0, 1, 0
        self._blocks: GpuBlocks | None = None
        self._of_chunks: dict[str, Any] = {}
        together = 1
        if device.kind == "cpu":
            # 13 vectors of a vertex, for up to 8 cells side by side.
            self._room, self._on_chip = _CORES_SCRATCH * self.vertices, 0
        elif self._loop:
            nodes, regular, room = self._nodes, self._regular, device.block_memory
            few = self.capacity <= device.multiprocessors
            ways = self.FEW if few else self.CHUNKS
            blocks = GpuBlocks.of_loop(self.vertices, nodes, regular, room, ways)
            assert blocks.chunks is not None
            self._blocks, (way, tables) = blocks, blocks.chunks
            self._threads, together = blocks.threads, way.blocks
            self._shared = way.shared(self.vertices)
            self._of_chunks = self._chunk_arguments(tables)
        else:
            self._blocks = GpuBlocks.of_linear(self.vertices)
            self._threads = self._blocks.threads
            self._room = _CORNER_RESPONSE * self.vertices + _TRIANGLE_SHEETS * count
            self._room += _FOLD_SHEETS * count if self.law.fold_guard else 0
            shared = 8 * (self._room + 3 * self.vertices)
            room = device.block_memory
            together = max(1, min(room // (shared + _GPU_STATIC), GPU_THREADS // self._threads))
            self._on_chip = int(shared + _GPU_STATIC <= room)
            self._shared = shared * self._on_chip
        self._slots = device.multiprocessors * together
        kept = self._slots * self._room if not self._on_chip else 1
        self._scratch = device.zeros((kept or 1,), "f8")
        self._scratch_aside: Array | None = None

    def _scratch_of(self, stream: Any) -> Array:
        """Scratch for launches on a stream: those on two streams run at the same time."""
        if stream is None:
            return self._scratch
        if self._scratch_aside is None:
            self._scratch_aside = self._device.zeros(self._scratch.shape, "f8")
        return self._scratch_aside

    def _kernel(self, name: str) -> Kernel:
        viscous = self.law.viscosity > 0
        constants = kernel_constants(self._elements, self._blocks, viscous=viscous)
        return self._device.kernel(SOURCE, name, constants)

    def _launch(self, name: str, count: int) -> None:
        """Run a kernel over the first `count` cells."""
        if count == 0:
            return
        if (name, count) not in self._launches:
            # Cells come and go: only the launches of one number of them are kept.
            self._launches = {key: one for key, one in self._launches.items() if key[1] == count}
            self._launches[name, count] = self._bind(name, count)
        self._launches[name, count]()

    def _launch_part(self, name: str, part: int, stream: Any = None) -> None:
        if (name, part) not in self._of_parts:
            self._of_parts[name, part] = self._bind_part(name, *self.part(part), part, stream)
        self._of_parts[name, part]()

    def _bind_part(
        self, name: str, rows: Array, span: Array, part: int | None = None, stream: Any = None
    ) -> Launch:
        arguments = {"positions": self.view(self.positions, part), "rows": rows, "span": span}
        moving = _MOVING * self._device.multiprocessors
        if name == "advance":
            return self._kernel(name).bind(
                **arguments,
                velocities=self.view(self.velocities, part),
                before=self.view(self._before, part),
                capacity=self.capacity,
                V=self.vertices,
                extent=(min(self.capacity * self.vertices, moving),),
            )
        # Membranes that are not viscous have no natural metrics.
        first, second = self.natural or (None, None)
        arguments |= {"first_natural": first, "second_natural": second, **self._sizes}
        arguments |= {"law": self._law, "regular": self._regular}
        scratch: dict[str, Any] = {}
        if not self._of_chunks:
            scratch = {"scratch": self._scratch_of(stream), "slots": self._slots}
            scratch["room"] = self._room
        if name == "relax":
            return self._kernel(name).bind(
                **arguments,
                elements=self._tables["elements"],
                weights=self._tables["weights"],
                **(scratch if self._device.kind == "cpu" else {}),
                extent=(min(self.capacity * len(self.mesh.triangles), moving),),
            )
        of_elements = self._of_chunks or {**self._tables, **scratch, "on_chip": self._on_chip}
        return self._kernel(name).bind(
            **arguments,
            result=self.view(self.forces, part),
            **of_elements,
            extent=(min(self._slots, self.capacity) * self._threads,),
            block=(self._threads,),
            stream=stream,
            shared=self._shared,
        )

    def _chunk_arguments(self, tables: Chunks) -> dict[str, Any]:
        """Arguments of the kernel of forces that goes through elements in chunks."""
        give = self._device.from_host
        elements, begins, shares, taken = tables.as_integers()
        regular, irregular = self._kernel_weights.reshape(2, -1)
        return {
            "elements": give(elements),
            "weights": {"regular": regular, "irregular": irregular},
            "reference": self._tables["reference"],
            "curvature": self._tables["curvature"],
            "chunks": give(begins),
            "shares": give(shares),
            "taken": give(taken),
        }

    def _bind(self, name: str, count: int) -> Launch:
        if name == "forces":
            give = self._device.from_host
            rows, span = np.arange(count, dtype=np.int32), np.array([0, count], np.int32)
            return self._bind_part(name, give(rows), give(span))
        arguments: dict[str, Any] = {
            "positions": self.positions,
            "result": self._energies,
            **self._tables,
            "law": self._law,
            "regular": self._regular,
        }
        if name == "moments":
            elements, moments = self._tables["elements"], self._moments
            arguments = {"positions": self.positions, "elements": elements, "result": moments}
        return self._kernel(name).bind(
            **arguments, count=count, **self._sizes, extent=(count * 128,), block=(128,)
        )
