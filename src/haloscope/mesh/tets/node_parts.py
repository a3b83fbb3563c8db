"""Tetrahedra shared out over ranks: each element on one rank, its nodes on all ranks that touch them, in Cuthill-McKee order."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError, counted
from haloscope.exchange.plan import first_fault, refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.field_layouts import ranges
from haloscope.mesh.partition import ElementGraph, Method, Partition, partition
from haloscope.mesh.surfaces.surfaces import spread
from haloscope.mesh.tets.tets import Floats, Numbers, TetMesh

# E. Cuthill and J. McKee, "Reducing the bandwidth of sparse symmetric matrices", 1969; reversed, as
# A. George found it to fill in less; begun from nodes far out, as A. George and J. W. H. Liu, "An
# implementation of a pseudoperipheral node finder", ACM Trans. Math. Softw. 5, 1979, find them.
# Neighbours in this order lie near each other in memory, and incomplete factors get better with it.

Integers = NDArray[np.int64]


def node_graph(elements: NDArray[np.integer], nodes: int) -> tuple[Integers, Integers]:
    """Nodes that share an element with each node, in compressed rows.

    `elements`: (n, corners): nodes of simplices, below `nodes`.
    """
    pairs = itertools.combinations(elements.T.astype(np.int64), 2)
    keys = np.concatenate([np.minimum(a, b) * nodes + np.maximum(a, b) for a, b in pairs])
    # Sorting once and dropping repeats needs less memory than numpy.unique.
    keys.sort()
    keys = keys[np.concatenate([keys[:1] >= 0, keys[1:] != keys[:-1]])]
    low, high = np.divmod(keys, nodes)
    both = np.concatenate([keys, high * nodes + low])
    both.sort()
    return np.searchsorted(both, np.arange(nodes + 1) * nodes), both % nodes


def reverse_cuthill_mckee(starts: Integers, neighbours: Integers) -> Integers:
    """Order nodes level by level, each by its first neighbour that has a place and its degree."""
    from scipy.sparse import csr_array

    # scipy's own order begins at a node of least degree, not at one far out. If numbers rise with
    # degrees, its breadth-first search goes in the order of Cuthill and McKee.
    degrees = np.diff(starts)
    count = len(degrees)
    by_degree = np.argsort(degrees, kind="stable")
    number = np.empty_like(by_degree)
    number[by_degree] = np.arange(count)
    keys = np.sort(np.repeat(number, degrees) * count + number[neighbours])
    begins = np.append(0, np.cumsum(degrees[by_degree]))
    graph = csr_array((np.ones(len(keys)), keys % max(count, 1), begins), (count, count))
    seen = np.zeros(count, bool)
    order = [np.empty(0, np.int64)]
    for node in range(count):
        if not seen[node]:
            order.append(_search_from_far_out(graph, degrees[by_degree], node))
            seen[order[-1]] = True
    return by_degree[np.concatenate(order)[::-1]]


def _search_from_far_out(graph: Any, degrees: Integers, node: int) -> Integers:
    """Nodes of the part of a node, breadth first from one with others about as far away as can be."""
    from scipy.sparse.csgraph import breadth_first_order

    place, levels = np.empty_like(degrees), 0
    while True:
        order, before = breadth_first_order(graph, node)
        place[order] = np.arange(len(order))
        parents = place[before[order[1:]]]
        begin, end, depth = 0, 1, 1
        while end < len(order):
            begin, end, depth = end, 1 + int(np.searchsorted(parents, end)), depth + 1
        if depth <= levels:
            return np.asarray(order, np.int64)
        levels, last = depth, order[begin:]
        node = int(last[degrees[last].argmin()])


# Each rank numbers its nodes anew: those of its own elements alone first, then those that it shares,
# each in an order in which neighbours stand near each other. Global numbers are those of the whole
# mesh; what is added up over ranks goes by them.


def partition_tets(mesh: TetMesh, parts: int, method: Method = "auto") -> Partition:
    """Share elements out: few faces between parts, as many elements in each.

    `method`: ``graph`` (METIS), ``coordinates`` or ``auto``, as for
    :func:`haloscope.mesh.partition.partition`.
    """
    elements = np.arange(mesh.count)
    graph = ElementGraph(elements, mesh.neighbours.astype(np.int64), mesh.centres, mesh.count)
    weights = np.ones(mesh.count)
    return partition(World(), graph, weights, method, parts=parts, largest_graph=mesh.count)


@dataclass(frozen=True, eq=False)
class NodeShares:
    """Which ranks hold each node of a mesh."""

    parts: NDArray[np.int32]  # int32 (elements,): the rank of each element
    count: int  # Number of ranks
    starts: Integers  # int64 (nodes + 1,): where each node's ranks begin in `holders`
    # int32: ranks that hold nodes, ascending for each. The first is the node's owner.
    holders: Numbers

    @property
    def multiplicity(self) -> Integers:
        """How many ranks hold each node, (nodes,)."""
        return np.diff(self.starts)

    def between(self) -> Integers:
        """Nodes that each two ranks share, (ranks, ranks); on the diagonal what a rank holds."""
        sizes = self.multiplicity
        group, step = spread(np.repeat(sizes, sizes))
        other = self.holders[np.repeat(self.starts[:-1], sizes)[group] + step]
        pairs = self.holders[group].astype(np.int64) * self.count + other
        return np.bincount(pairs, minlength=self.count**2).reshape(self.count, self.count)

    def describe(self) -> str:
        """One line for a report."""
        shared = int((self.multiplicity > 1).sum())
        between = self.between()
        touching = (int((between > 0).sum()) - self.count) // 2
        pairs = self.count * (self.count - 1) // 2
        per_rank = np.diag(between)
        return (
            f"{len(self.starts) - 1} nodes on {self.count} ranks, {per_rank.min()} to "
            f"{per_rank.max()} each: {100 * shared / (len(self.starts) - 1):.1f} % are shared, "
            f"{touching} of {pairs} pairs of ranks share nodes"
        )


def share_nodes(mesh: TetMesh, parts: NDArray[np.integer], ranks: int) -> NodeShares:
    """Find the ranks of nodes from those of elements.

    `parts`: (elements,): the rank of each element.
    """
    owners = np.asarray(parts)
    if owners.shape != (mesh.count,) or owners.min() < 0 or owners.max() >= ranks:
        raise InputError(
            f"it does not assign a rank to each of {mesh.count} elements",
            location="partition",
            allowed=f"ranks 0 to {ranks - 1}, one an element",
            remedy="partition this mesh anew",
        )
    sizes = np.bincount(owners, minlength=ranks)
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        raise InputError(
            f"the partition leaves rank {empty[0]} of {ranks} without elements "
            f"({counted(len(empty), 'empty rank')})",
            remedy="start fewer ranks or partition the mesh anew",
        )
    keys = (mesh.tets * ranks + owners.astype(np.int64)[:, None]).ravel()
    keys.sort()
    keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
    starts = np.searchsorted(keys, np.arange(len(mesh.nodes) + 1) * ranks)
    holders = (keys % ranks).astype(np.int32)
    return NodeShares(owners.astype(np.int32), ranks, starts, holders)


@dataclass(frozen=True, eq=False)
class NodePart:
    """One rank's part of a mesh of tetrahedra."""

    rank: int
    # Nodes and elements of the whole mesh.
    whole_nodes: int
    whole_tets: int
    nodes: Floats  # float64 (own, 3): places in m. Nodes of this rank alone come first.
    node_numbers: Integers  # int64 (own,): global numbers of the nodes
    # int32 (own elements, 4): nodes of this rank. Elements that touch a shared node come first.
    tets: Numbers
    tet_numbers: Integers  # int64 (own elements,): their numbers in the whole mesh
    owners: Numbers  # int32 (own,): the lowest of the ranks that hold each node
    # As in :class:`haloscope.mesh.tets.tets.TetMesh`, of own elements and in own numbers, int32. Every
    # rank has all names.
    boundaries: Mapping[str, Numbers]
    boundary_tets: Mapping[str, Numbers]
    # Likewise.
    zones: Numbers
    zone_names: tuple[str, ...]

    @property
    def owned(self) -> NDArray[np.bool_]:
        """Nodes that this rank counts in sums over all: each node is owned by one rank, (own,)."""
        return np.asarray(self.owners == self.rank)


def node_part(mesh: TetMesh, shares: NodeShares, rank: int) -> NodePart:
    """A rank's part of a mesh."""
    elements = np.flatnonzero(shares.parts == rank)
    tets = mesh.tets[elements]
    numbers = np.unique(tets)
    local = np.searchsorted(numbers, tets)
    sizes = shares.multiplicity[numbers]
    # Reverse Cuthill-McKee over all nodes; shared ones then move behind the others.
    order = reverse_cuthill_mckee(*node_graph(local, len(numbers)))
    order = order[np.argsort(sizes[order] > 1, kind="stable")]
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    interior = int((sizes == 1).sum())
    local = place[local]
    inner = local.max(axis=1) < interior
    by_node = np.lexsort((elements, local.min(axis=1), inner))
    numbers = numbers[order]
    new_element = np.full(mesh.count, -1, np.int32)
    new_element[elements[by_node]] = np.arange(len(elements), dtype=np.int32)
    new_node = np.full(len(mesh.nodes), -1, np.int32)
    new_node[numbers] = np.arange(len(numbers), dtype=np.int32)

    own_tets = {name: new_element[of] for name, of in mesh.boundary_tets.items()}
    return NodePart(
        rank=rank,
        whole_nodes=len(mesh.nodes),
        whole_tets=mesh.count,
        nodes=mesh.nodes[numbers],
        node_numbers=numbers,
        tets=local[by_node].astype(np.int32),
        tet_numbers=elements[by_node],
        owners=shares.holders[shares.starts[numbers]],
        boundaries={
            name: new_node[triangles[own_tets[name] >= 0]]
            for name, triangles in mesh.boundaries.items()
        },
        boundary_tets={name: of[of >= 0] for name, of in own_tets.items()},
        zones=mesh.zones[elements[by_node]],
        zone_names=mesh.zone_names,
    )


def node_part_on_ranks(
    world: World, make: Callable[[], TetMesh], method: Method = "auto"
) -> tuple[NodePart, tuple[str, ...]]:
    """Make a mesh on rank 0 and give each rank its part; all ranks call this.

    Rank 0 holds the whole mesh, and one part at a time beside it.
    """
    fault: InputError | None = None
    missing: MachineError | None = None
    if world.is_root:
        try:
            mesh, shares, lines = _shared_out(make, world.size, method)
        except InputError as error:
            fault = error
        except MachineError as error:
            missing = error
    refuse_together(world, fault)
    if missing_fields := first_fault(world, missing):
        raise MachineError(**missing_fields)
    if not world.is_root:
        return _receive(world), ()
    for rank in range(1, world.size):
        _send(world, node_part(mesh, shares, rank))
    return node_part(mesh, shares, 0), lines


def _shared_out(
    make: Callable[[], TetMesh], ranks: int, method: Method
) -> tuple[TetMesh, NodeShares, tuple[str, ...]]:
    mesh = make()
    shared = partition_tets(mesh, ranks, method)
    shares = share_nodes(mesh, shared.parts, ranks)
    lines = (mesh.describe(), *mesh.notes)
    if ranks > 1:
        lines = (*lines, shared.describe(), shares.describe())
    return mesh, shares, lines


# Bytes of a message at most: MPI counts them in 31 bits.
_MOST_BYTES = 1 << 30


def _send(world: World, part: NodePart) -> None:
    """Send a description and arrays as bytes, after their number and lengths."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(part, protocol=5, buffer_callback=buffers.append)
    parts: list[Any] = [text, *(one.raw() for one in buffers)]
    arrays = [np.frombuffer(one, np.uint8) for one in parts]
    world.send(np.array([len(arrays)]), part.rank)
    world.send(np.array([len(array) for array in arrays]), part.rank)
    for array in arrays:
        for begin, end in ranges(len(array), _MOST_BYTES):
            world.send(array[begin:end], part.rank)


def _receive(world: World) -> NodePart:
    (count,) = world.receive((1,), np.int64, 0).tolist()
    arrays = [np.empty(length, np.uint8) for length in world.receive((count,), np.int64, 0)]
    for array in arrays:
        for begin, end in ranges(len(array), _MOST_BYTES):
            array[begin:end] = world.receive((end - begin,), np.uint8, 0)
    part: NodePart = pickle.loads(arrays[0].tobytes(), buffers=arrays[1:])
    return part
