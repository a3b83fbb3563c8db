"""Terms added to Maxwell's right-hand sides by kernels of their own, and the elements that hold point sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Kernel, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh, point_text
from haloscope.mesh.hexes.shared_meshes import bounds
from haloscope.numerics.elements.element_maps import gll_basis
from haloscope.numerics.elements.locate import PartLocator

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

COMPONENTS = 6
_WARP = 32
_MOST_THREADS = 256


def kernel_file(
    source: Path, order: int, real: np.dtype[Any], constants: Mapping[str, int]
) -> KernelFile:
    """The kernels of a source for elements of an order, and fields of a type."""
    name = "float" if real == np.float32 else "double"
    return KernelFile(source, {"real": name, "N": order, **constants})


@dataclass(frozen=True)
class Setting:
    """Where the fields live and how many nodes an element has."""

    device: Device  # Where to compute
    order: int  # Polynomial order N
    real: np.dtype[Any]  # Type of the fields

    @property
    def nodes(self) -> int:
        """Nodes of an element."""
        return (self.order + 1) ** 3

    def put(self, values: NDArray[Any], dtype: Any = None) -> Array:
        """Copy on the device, flat, of the fields' type or another."""
        flat = np.ascontiguousarray(values, dtype or self.real).ravel()
        return self.device.from_host(flat if len(flat) else np.zeros(1, flat.dtype))

    def zeros(self, count: int) -> Array:
        """Zeros of the fields' type."""
        return self.device.zeros((max(1, count),), self.real)

    def kernel(self, source: Path, name: str, **constants: int) -> Kernel:
        """Kernel of a source for elements of this order."""
        file = kernel_file(source, self.order, self.real, constants)
        return self.device.kernel(file.source, name, file.constants)

    def blocks(self, count: int, values: int) -> Mapping[str, Any]:
        """Grid of as many blocks, whose threads go through so many values each."""
        threads = min(_MOST_THREADS, -(-values // _WARP) * _WARP)
        return {"extent": (count * threads,), "block": (threads,)}


@dataclass(frozen=True)
class Bound:
    """Arrays to which a term's launches are bound."""

    # Of all elements of the rank.
    fields: Array
    increments: Array
    clock: Array  # Device array of two doubles: the time at which counting began, and steps since
    dt: float  # Time step


@dataclass(eq=False)
class SourceTerm:
    """A kernel that adds something to increments before each stage."""

    name: str
    kernel: Kernel
    arguments: Mapping[str, Any]
    takes: tuple[str, ...]  # Arguments that are parts of :class:`Bound`
    by_stage: Mapping[str, Sequence[float]]  # Arguments that differ from stage to stage

    def bind(self, to: Bound) -> list[Launch]:
        """A launch for each stage."""
        fixed = {**self.arguments, **{name: getattr(to, name) for name in self.takes}}
        stages = zip(*self.by_stage.values(), strict=True)
        return [
            self.kernel.bind(**fixed, **dict(zip(self.by_stage, stage, strict=True)))
            for stage in stages
        ]


@dataclass(eq=False)
class StatefulTerm(SourceTerm):
    """A term with states of its own in some elements."""

    setting: Setting
    elements: Integers
    # On the device, each with its increments: (elements, values, nodes).
    kept: Sequence[tuple[Array, Array]]
    values: int  # At a node, of each of these

    @property
    def states(self) -> Floats:
        """States on the host, (elements, values, nodes)."""
        shape = len(self.elements), self.values, self.setting.nodes
        host = [self.setting.device.to_host(states) for states, _ in self.kept]
        return np.concatenate(
            [part[: math.prod(shape)].astype(np.float64).reshape(shape) for part in host], axis=1
        )

    @states.setter
    def states(self, values: Floats) -> None:
        for number, (states, increments) in enumerate(self.kept):
            first = number * self.values
            states[:] = self.setting.put(values[:, first : first + self.values])
            increments[:] = self.setting.zeros(len(increments))


# Share of its size by which a curved element may bulge out of the box of its geometry nodes.
_BULGE = 0.2


def lagrange(order: int, reference: Floats) -> Floats:
    """The nodes' polynomials at a point of the reference cube, ((N + 1)^3,), i fastest."""
    i, j, k = gll_basis(order, reference)
    return np.asarray((k[:, None, None] * j[:, None] * i).ravel())


def locate(
    world: World, mesh: HexMesh, numbers: Integers, order: int, point: Floats
) -> tuple[int, Floats]:
    """The own element that holds a point, or -1, and the point's place in its reference cube.

    All ranks call this. On a face that elements share it is that of the lowest number.
    `order`: of the polynomials that give the elements their shape.
    """
    flat = mesh.coordinates.reshape(mesh.count, -1, 3)
    low, high = flat.min(axis=1), flat.max(axis=1)
    room = ((high - low).max(axis=1) * _BULGE)[:, None]
    near = np.flatnonzero(((point >= low - room) & (point <= high + room)).all(axis=1))
    located = PartLocator(mesh, order, numbers, near).find(point[None])
    here = float(located.elements[0]) if located.inside[0] else math.inf
    lowest = -world.largest(-here)
    if math.isinf(lowest):
        lower, upper = bounds(world, mesh.coordinates)
        raise InputError(
            f"the point {point_text(point)} lies in no element",
            allowed=f"points of the mesh, within {point_text(lower)} to {point_text(upper)}",
        )
    mine = here == lowest and bool(located.inside[0])
    return (int(located.rows[0]), located.reference[0]) if mine else (-1, np.zeros(3))
