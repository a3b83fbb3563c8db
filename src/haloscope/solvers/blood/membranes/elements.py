"""Elements of membranes: flat triangles, Loop's subdivision surfaces, and how GPUs go through them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError
from haloscope.solvers.blood.membranes.meshes import MembraneMesh

# The surface that repeated subdivision of a triangle mesh tends to (Loop, 1987) is within each
# triangle a sum of the positions of the vertices around it. Where all corners have six neighbours
# there are twelve, with the quartic polynomials of Stam (1998) as shape functions; Cirak, Ortiz and
# Schroeder (Int. J. Numer. Methods Eng. 47, 2000) made finite elements of them. Where one corner
# has five neighbours, one subdivision puts the barycentre into a child whose corners have six.

Elements = Literal["loop", "linear"]
SUPPORT = 12


@dataclass(frozen=True)
class LoopElements:
    """The elements of a mesh, and the weights of their vertices at the barycentres."""

    # (E, 12) vertices: the corners of the triangle, those beyond its edges 01, 12, 20, then those
    # that are next to one corner alone: to corner 0 beside the vertex beyond 01 and beside that
    # beyond 20; to corner 1 beside 12 and 01; to corner 2 beside 20 and 12. Triangles whose corner
    # 0 has five neighbours have the same vertex in both places of corner 0. Corners are turned so
    # that an irregular one comes first.
    patches: np.ndarray
    # (E,) number of the mesh's triangle. Those without an irregular corner come first.
    triangles: np.ndarray
    regular: int  # Number of elements without an irregular corner
    # (2, 6, 12) weights of regular and irregular elements: value, derivatives by the barycentric
    # coordinates v and w of corners 1 and 2, second derivatives vv, ww, vw.
    weights: np.ndarray


def _derivatives(terms: dict[tuple[int, int, int], float]) -> np.ndarray:
    """A polynomial of u, v, w and its derivatives by v, w (u = 1 - v - w) at the barycentre."""

    def by(
        terms: dict[tuple[int, int, int], float], axis: int
    ) -> dict[tuple[int, int, int], float]:
        result: dict[tuple[int, int, int], float] = {}
        for sign, which in ((1.0, axis), (-1.0, 0)):
            for powers, factor in terms.items():
                if powers[which]:
                    lower = tuple(p - (n == which) for n, p in enumerate(powers))
                    key = (lower[0], lower[1], lower[2])
                    result[key] = result.get(key, 0.0) + sign * factor * powers[which]
        return result

    v, w = by(terms, 1), by(terms, 2)
    wanted = (terms, v, w, by(v, 1), by(w, 2), by(v, 2))
    return np.array([sum(c / 3 ** sum(p) for p, c in one.items()) for one in wanted])


# Twelve times Stam's shape functions, by powers of the coordinates of (a corner, and the two after
# it): of the corner, of the vertex beyond the edge of a corner and the next one, of a vertex that
# is next to the corner alone.
_CORNER = {
    (4, 0, 0): 6.0,
    (3, 0, 1): 24.0,
    (2, 0, 2): 24.0,
    (1, 0, 3): 8.0,
    (0, 0, 4): 1.0,
    (3, 1, 0): 24.0,
    (2, 1, 1): 60.0,
    (1, 1, 2): 36.0,
    (0, 1, 3): 6.0,
    (2, 2, 0): 24.0,
    (1, 2, 1): 36.0,
    (0, 2, 2): 12.0,
    (1, 3, 0): 8.0,
    (0, 3, 1): 6.0,
    (0, 4, 0): 1.0,
}
_BEYOND = {
    (4, 0, 0): 1.0,
    (3, 0, 1): 2.0,
    (3, 1, 0): 6.0,
    (2, 1, 1): 6.0,
    (2, 2, 0): 12.0,
    (1, 2, 1): 6.0,
    (1, 3, 0): 6.0,
    (0, 3, 1): 2.0,
    (0, 4, 0): 1.0,
}
_BESIDE_NEXT = {(4, 0, 0): 1.0, (3, 1, 0): 2.0}
_BESIDE_LAST = {(4, 0, 0): 1.0, (3, 0, 1): 2.0}


def regular_weights() -> np.ndarray:
    """(6, 12) weights of a patch whose corners all have six neighbours."""

    def turned(terms: dict[tuple[int, int, int], float], k: int) -> np.ndarray:
        """The weights of a function whose coordinates begin with corner k."""
        moved = {}
        for powers, factor in terms.items():
            own = np.roll(powers, k).tolist()
            moved[(own[0], own[1], own[2])] = factor / 12
        return _derivatives(moved)

    columns = [turned(_CORNER, k) for k in range(3)] + [turned(_BEYOND, k) for k in range(3)]
    for k in range(3):
        columns += [turned(_BESIDE_NEXT, k), turned(_BESIDE_LAST, k)]
    return np.stack(columns, axis=1)


def subdivided_weights() -> np.ndarray:
    """(6, 12) weights by one subdivision, of a patch whose corner 0 has five neighbours."""

    def vertex(*shares: tuple[int, float]) -> np.ndarray:
        row = np.zeros(SUPPORT)
        for place, share in shares:
            row[place] += share
        return row

    def edge(a: int, b: int, c: int, d: int) -> np.ndarray:
        return vertex((a, 3 / 8), (b, 3 / 8), (c, 1 / 8), (d, 1 / 8))

    def corner(own: int, ring: list[int]) -> np.ndarray:
        n = len(ring)
        beta = (5 / 8 - (3 / 8 + np.cos(2 * np.pi / n) / 4) ** 2) / n
        return vertex((own, 1 - n * beta), *((place, beta) for place in ring))

    # Vertices beside edges: 3 beyond 01, 4 beyond 12, 5 beyond 20; next to one corner alone:
    # 6, 7 of corner 0 (beside 3 and 5), 8, 9 of corner 1 (4 and 3), 10, 11 of corner 2 (5 and 4).
    e01, e12, e20 = edge(0, 1, 2, 3), edge(1, 2, 0, 4), edge(2, 0, 1, 5)
    p0 = corner(0, [1, 2, 5, 6, 3])
    p1 = corner(1, [2, 0, 3, 9, 8, 4])
    p2 = corner(2, [0, 1, 4, 11, 10, 5])
    e03, e13 = edge(0, 3, 1, 6), edge(1, 3, 0, 9)
    e14, e24 = edge(1, 4, 2, 8), edge(2, 4, 1, 11)
    e25, e05 = edge(2, 5, 0, 10), edge(0, 5, 2, 6)
    # The child in the middle lies upside down: its corners are opposite to those of its parent.
    patch = np.stack([e12, e20, e01, p2, p0, p1, e24, e14, e05, e25, e13, e03])
    scale = np.array([1.0, -2.0, -2.0, 4.0, 4.0, 4.0])
    weights: np.ndarray = (scale[:, None] * regular_weights()) @ patch
    return weights


def loop_elements(mesh: MembraneMesh) -> LoopElements:
    """The elements of a mesh whose triangles have at most one corner with five neighbours."""
    rings = mesh.rings
    valence = np.array([len(ring) for ring in rings])
    patches = np.empty((len(mesh.triangles), SUPPORT), np.int32)
    irregular = (valence[mesh.triangles] != 6).any(axis=1)

    def beyond(a: int, b: int, steps: int) -> int:
        """Vertex of the ring of a that comes `steps` places after b, anticlockwise."""
        ring = rings[a]
        return ring[(ring.index(b) + steps) % len(ring)]

    for e, triangle in enumerate(mesh.triangles.tolist()):
        turn = int(np.argmax(valence[triangle] != 6)) if irregular[e] else 0
        a, b, c = (triangle[(turn + k) % 3] for k in range(3))
        corners = ((a, b, c), (b, c, a), (c, a, b))
        patches[e, :3] = a, b, c
        patches[e, 3:6] = [beyond(p, q, -1) for p, q, _ in corners]
        for k, (p, q, r) in enumerate(corners):
            patches[e, 6 + 2 * k : 8 + 2 * k] = beyond(p, q, -2), beyond(p, r, 2)
    order = np.argsort(irregular, kind="stable")
    weights = np.stack([regular_weights(), subdivided_weights()])
    return LoopElements(patches[order], order, int((~irregular).sum()), weights)


_FOUR = 4
WARP = 32
# Of a GPU's block of linear elements, at most: then each thread may have 96 registers.
GPU_THREADS = 672
_MOST_VERTICES = 1 << 16
_GRADIENTS = 36
# Bytes of a block for the sums of a cell, and what a processor keeps for each block.
_STATIC = 2 << 10
_KEPT = 1 << 10


@dataclass(frozen=True)
class ChunkWay:
    """How a GPU goes through the elements of cells."""

    size: int = 128  # Elements of a chunk and threads of a block
    blocks: int = 3  # Of a processor
    staged: bool = True  # Whether positions lie in shared memory

    def shared(self, vertices: int) -> int:
        """Bytes of shared memory that a block asks for, whose cells have so many vertices."""
        return 8 * (_GRADIENTS * (self.size + 1) + 3 * vertices * self.staged)

    def fitted(self, vertices: int, block_memory: int) -> ChunkWay:
        """The same with as many blocks as have room, where a block may have so many bytes."""
        for staged in (True, False):
            chunks = replace(self, staged=staged)
            needed = chunks.shared(vertices) + _STATIC + _KEPT
            if blocks := min(self.blocks, (block_memory + _KEPT) // needed):
                return replace(chunks, blocks=blocks)
        if self.size > ChunkWay.size:
            return ChunkWay().fitted(vertices, block_memory)
        raise MachineError(
            f"the GPU has too little shared memory for membranes: {block_memory >> 10} KiB a block",
            remedy="run with --device cpu",
        )


SHARE = np.dtype([("vertex", np.int32), ("fours", np.uint16), ("first", np.uint16)])
"""One of a chunk's vertices: fours of gradients that are its own, and whether no chunk before had any."""


class Chunks(NamedTuple):
    """Tables of membrane_loop_gpu.hpp."""

    elements: NDArray[np.uint16]  # (3, E, 4) vertices of elements
    begins: NDArray[np.int32]  # (chunks + 1,) first share of each chunk, and how many there are
    # (shares,) of :data:`SHARE`, in each chunk those with most gradients first.
    shares: NDArray[np.void]
    # (most fours, shares, 4) where the first components of a share's gradients lie, of those of
    # elements in ascending order; ``size`` stands for none.
    taken: NDArray[np.uint16]

    def as_integers(self) -> tuple[NDArray[np.integer], ...]:
        """The same memory without structs, which not all devices' arrays have."""
        return self.elements, self.begins, self.shares.view(np.int32), self.taken


def chunk_tables(nodes: NDArray[np.integer], regular: int, size: int) -> Chunks:
    """Say which gradients a vertex takes of which chunk.

    `nodes`: (E, 12) vertices of elements.
    """
    if (count := int(nodes.max()) + 1) > _MOST_VERTICES:
        raise InputError(
            f"a cell has {count} vertices",
            allowed=f"at most {_MOST_VERTICES} on a GPU",
            remedy="lower blood.cells.vertices, or run with --device cpu",
        )
    used = np.ones(nodes.shape, bool)
    # The second place of an irregular corner's lone vertex has no weight.
    used[regular:, 7] = False
    elements, places = np.nonzero(used)
    vertices, chunks = nodes[elements, places].astype(np.int64), elements // size
    at = 3 * places * (size + 1) + elements % size
    order = np.lexsort((elements, vertices, chunks))
    vertices, chunks, at = vertices[order], chunks[order], at[order]
    begins = np.flatnonzero(
        (np.diff(vertices, prepend=-1) != 0) | (np.diff(chunks, prepend=-1) != 0)
    )
    counts = np.diff(begins, append=len(at))
    owners, of_chunk = vertices[begins], chunks[begins]
    ends = np.searchsorted(of_chunk, np.arange(1, of_chunk[-1] + 2))
    first = np.zeros(len(owners), np.uint16)
    first[np.unique(owners, return_index=True)[1]] = 1
    sorting = np.concatenate(
        [
            begin + _spread_over_warps(counts[begin:end], size, chunk)
            for chunk, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
        ]
    )
    fours = -(-counts // _FOUR)
    shares = np.zeros(len(owners), SHARE)
    shares["vertex"], shares["fours"], shares["first"] = owners, fours, first
    taken = np.full((len(owners), fours.max() * _FOUR), size, np.uint16)
    which = np.repeat(np.arange(len(owners)), counts)
    taken[which, np.arange(len(at)) - begins[which]] = at
    return Chunks(
        np.ascontiguousarray(nodes.reshape(len(nodes), -1, _FOUR).swapaxes(0, 1), np.uint16),
        np.concatenate([[0], ends]).astype(np.int32),
        shares[sorting],
        np.ascontiguousarray(taken[sorting].reshape(len(owners), -1, _FOUR).swapaxes(0, 1)),
    )


def _spread_over_warps(counts: NDArray[np.integer], threads: int, turn: int) -> NDArray[np.integer]:
    """In which order threads take a chunk's shares of so many gradients."""
    # Threads of a warp go through as many, if they can. The first warp, which takes what is more
    # than there are threads for, has few before; which of the others has most changes from chunk to
    # chunk, so that all parts of a processor have as much to do.
    ranked = np.argsort(-counts, kind="stable")
    warps = np.split(ranked[:threads], range(WARP, min(threads, len(ranked)), WARP))
    *full, last = warps
    if len(last) < WARP:
        return ranked
    turn %= max(len(full), 1)
    return np.concatenate([last, *full[turn:], *full[:turn], ranked[threads:]])


def elements_of(mesh: MembraneMesh, kind: Elements) -> tuple[np.ndarray, int, np.ndarray]:
    """Vertices of elements (E, ..), number of regular ones, which come first, and weights."""
    if kind == "linear":
        nodes = np.concatenate([mesh.triangles, mesh.across], axis=1)
        return nodes, len(nodes), np.zeros((2, 6, SUPPORT))
    elements = loop_elements(mesh)
    return elements.patches, elements.regular, elements.weights


@dataclass(frozen=True)
class GpuBlocks:
    """How a GPU's kernel of forces goes through cells."""

    threads: int  # Of a block
    # With subdivision surfaces: chunks of elements, and their tables.
    chunks: tuple[ChunkWay, Chunks] | None = None

    @classmethod
    def of_linear(cls, vertices: int) -> GpuBlocks:
        """For linear elements of cells with so many vertices."""
        return cls(min(GPU_THREADS, -(-vertices // WARP) * WARP))

    @classmethod
    def of_loop(
        cls, vertices: int, nodes: np.ndarray, regular: int, block_memory: int, way: ChunkWay
    ) -> GpuBlocks:
        """For subdivision surfaces, with vertices of elements as of :func:`elements_of`."""
        fitted = way.fitted(vertices, block_memory)
        return cls(fitted.size, (fitted, chunk_tables(nodes, regular, fitted.size)))


def kernel_constants(
    elements: Elements, blocks: GpuBlocks | None, *, viscous: bool
) -> dict[str, int]:
    """Compile-time constants of membrane.cpp; `blocks`: on a GPU."""
    constants = {"LOOP": int(elements == "loop"), "VISCOUS": int(viscous)}
    if blocks is None:
        return constants
    constants["THREADS_A_BLOCK"] = blocks.threads
    if blocks.chunks is not None:
        way, tables = blocks.chunks
        constants |= {"CHUNK": way.size, "BLOCKS_A_PROCESSOR": way.blocks}
        constants |= {"MOST_FOURS": len(tables.taken), "STAGED": int(way.staged)}
    return constants
