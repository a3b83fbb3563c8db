"""Parts of a mesh of tetrahedra given out: rank 0 makes the mesh, each rank gets its own part."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError
from haloscope.exchange.ranks.world import World
from haloscope.exchange.rows import refuse_together
from haloscope.mesh.partition.partition import Method
from haloscope.mesh.tets.node_parts import (
    NodePart,
    NodeShares,
    node_part,
    partition_tets,
    share_nodes,
)
from haloscope.mesh.tets.tets import TetMesh

Array = NDArray[Any]

# Types of a part's arrays by number, as they are told before they are sent.
_TYPES = (np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.int32))
_DIMENSIONS = 2


def node_part_on_ranks(
    world: World, make: Callable[[], TetMesh], method: Method = "auto"
) -> tuple[NodePart, tuple[str, ...]]:
    """Make a mesh on rank 0 and give each rank its part; all ranks call this.

    Rank 0 holds the whole mesh, and one part at a time beside it.
    """
    if not world.present or world.size == 1:
        mesh, shares, lines = _shared_out(make, world.size, method)
        return node_part(mesh, shares, world.rank), lines
    fault = wanting = ""
    if world.is_root:
        try:
            mesh, shares, lines = _shared_out(make, world.size, method)
        except InputError as error:
            fault = str(error)
        except MachineError as error:
            wanting = str(error)
    refuse_together(world, fault)
    if missing := world.gather_texts(wanting)[0]:
        raise MachineError(missing)
    if not world.is_root:
        return _receive(world), ()
    for rank in range(1, world.size):
        _send(world, node_part(mesh, shares, rank))
    return node_part(mesh, shares, 0), lines


def _shared_out(
    make: Callable[[], TetMesh], ranks: int, method: Method
) -> tuple[TetMesh, NodeShares, tuple[str, ...]]:
    mesh = make()
    partition = partition_tets(mesh, ranks, method)
    shares = share_nodes(mesh, partition.parts, ranks)
    lines = (mesh.describe(), *mesh.notes)
    if ranks > 1:
        lines = (*lines, partition.describe(), shares.describe())
    return mesh, shares, lines


def _send(world: World, part: NodePart) -> None:
    """What an array is goes before it: a text first, whose length goes before that."""
    text, arrays = _taken_apart(part)
    packed = np.frombuffer(text.encode(), np.uint8)
    world.send(np.array([len(packed), len(arrays)]), part.rank)
    world.send(packed, part.rank)
    shapes = np.zeros((len(arrays), 1 + _DIMENSIONS), np.int64)
    for row, array in zip(shapes, arrays, strict=True):
        row[0] = _TYPES.index(array.dtype)
        row[1 : 1 + array.ndim] = array.shape
        row[1 + array.ndim :] = -1
    world.send(shapes, part.rank)
    for array in arrays:
        world.send(array, part.rank)


def _receive(world: World) -> NodePart:
    length, count = world.receive((2,), np.int64, 0).tolist()
    text = world.receive((length,), np.uint8, 0).tobytes().decode()
    shapes = world.receive((count, 1 + _DIMENSIONS), np.int64, 0).tolist()
    arrays = [
        world.receive(tuple(size for size in shape if size >= 0), _TYPES[kind], 0)
        for kind, *shape in shapes
    ]
    return _put_together(text, arrays)


_PLAIN = ("rank", "ranks", "whole_nodes", "whole_tets", "interior", "outer_tets", "zone_names")
_ARRAYS = ("nodes", "node_numbers", "tets", "tet_numbers", "multiplicity", "owners", "zones")
_TABLES = ("neighbours", "boundaries", "boundary_tets", "surfaces", "surface_tets")


def _taken_apart(part: NodePart) -> tuple[str, list[Array]]:
    fields = {name: getattr(part, name) for name in _PLAIN}
    fields |= {name: list(getattr(part, name)) for name in _TABLES}
    arrays = [getattr(part, name) for name in _ARRAYS]
    for name in _TABLES:
        arrays += getattr(part, name).values()
    return json.dumps(fields), arrays


def _put_together(text: str, arrays: list[Array]) -> NodePart:
    fields = json.loads(text)
    fields["zone_names"] = tuple(fields["zone_names"])
    waiting = iter(arrays)
    fields |= {name: next(waiting) for name in _ARRAYS}
    for name in _TABLES:
        fields[name] = {key: next(waiting) for key in fields[name]}
    return NodePart(**fields)
