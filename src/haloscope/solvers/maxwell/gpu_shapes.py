"""Launch shapes of a GPU's stage by order: threads, blocks, shared memory and variants, as measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from haloscope.errors import InputError

STORED, TRILINEAR = 0, 2
"""Values of the kernel's constant GEOMETRY."""

_KILOBYTE = 1024
# What a processor's shared memory keeps for itself of each block.
_KEPT = 1 * _KILOBYTE
_FACE = {8: 40, 4: 24}  # bytes of the kernel's struct Face by those of its reals
_WARP = 32


class KernelVariant(NamedTuple):
    """A way to run a stage; constants as in gpu_pairs.hpp."""

    threads: int
    blocks: int
    matrix_units: int = 0
    buffers: int = 0
    near: int = 0
    behind: int = 1


class Shape(NamedTuple):
    """Launch of a stage."""

    threads: int  # Of a block
    # That a processor holds at once. A launch needs this many times the number of processors, or
    # one an element if that is less: blocks go from element to element. 0: one an element.
    blocks: int
    shared: int  # Bytes of dynamic shared memory of a block
    # Of the kernels; real, N, UPWIND and CHAIN_RULE are left to stepping.py.
    constants: Mapping[str, int | str]

    def extent(self, elements: int, processors: int) -> tuple[int]:
        """Threads of a launch for a number of elements on a GPU with so many processors."""
        most = self.blocks * processors or elements
        return (self.threads * max(1, min(elements, most)),)


# The fastest of those that were tried on an H200 (bench/maxwell_gpu_variants.py): by trilinear geometry or
# stored, bytes of a real; then by order. An order that is not there goes as the next one above it.
_WAYS: dict[tuple[bool, int], dict[int, KernelVariant]] = {
    (False, 8): {
        2: KernelVariant(32, 14, 0, 1, 1),
        3: KernelVariant(32, 12, 0, 1, 1),
        4: KernelVariant(96, 4, 0, 1, 1),
        5: KernelVariant(128, 2, 0, 2, 1),
        6: KernelVariant(224, 2, 0, 1, 1),
        7: KernelVariant(256, 1, 1, 2, 1),
        9: KernelVariant(512, 1, 0, 1, 1),
        15: KernelVariant(384, 1, 0, 1, 0, 0),
    },
    (True, 8): {
        3: KernelVariant(32, 12, 0, 2, 1),
        6: KernelVariant(128, 4, 0, 1),
        7: KernelVariant(128, 3, 1, 1, 1),
        11: KernelVariant(256, 2, 0, 1),
        14: KernelVariant(384, 1, 0, 1),
        15: KernelVariant(384, 1, 0, 1, 0, 0),
    },
    (False, 4): {
        3: KernelVariant(32, 16, 0, 1, 1),
        5: KernelVariant(128, 4, 0, 2, 1),
        7: KernelVariant(128, 4, 0, 1, 1),
        9: KernelVariant(256, 2, 0, 1, 1),
        11: KernelVariant(288, 2, 0, 1),
        15: KernelVariant(512, 1, 0, 1),
    },
}
_WAYS[True, 4] = _WAYS[False, 4]
# Where threads bring elements themselves: GPUs before sm_90, single precision of even orders.
_WITHOUT_COPY_ENGINE = {
    3: KernelVariant(32, 16),
    4: KernelVariant(96, 5),
    6: KernelVariant(128, 4),
    7: KernelVariant(256, 2, 1),
    11: KernelVariant(256, 2),
    19: KernelVariant(384, 1),
}


def shape_of(way: KernelVariant, order: int, real_size: int, geometry: int = STORED) -> Shape:
    """The launch for a way to run a stage; `real_size`: bytes of a value: 8 or 4."""
    size = order + 1
    fields, faces = 6 * size**3, 24 * size**2
    if way.matrix_units:
        steps = -(-size // 4)
        tables = 8 * 4 * (steps + 1 - steps % 2)
    else:
        tables = 2 * size**2 + size % 2
    if geometry == TRILINEAR:
        tables += size + size % 2
    in_place = not way.near
    if way.buffers and (way.buffers == 1 or not in_place) and _copied(order, real_size):
        stored = 24 if geometry == TRILINEAR else 10 * size**3
        one = fields + way.near * stored + way.behind * faces + 4
        shared = 16 + way.buffers * (one * real_size + 6 * _FACE[real_size])
        shared += (tables + (0 if in_place else fields)) * real_size
    else:
        shared = (fields + tables) * real_size
    constants = {
        "THREADS_A_BLOCK": way.threads,
        "BLOCKS_A_PROCESSOR": way.blocks,
        "GEOMETRY": geometry,
        "MATRIX_UNITS": way.matrix_units,
        "BUFFERS": way.buffers,
        "NEAR": way.near,
        "BEHIND": way.behind,
    }
    return Shape(way.threads, way.blocks, shared, constants)


def _copied(order: int, real_size: int) -> bool:
    """Whether the copy engine can bring an element's fields: 16 bytes divide them."""
    return 6 * (order + 1) ** 3 * real_size % 16 == 0


def launch_shape(
    order: int, real_size: int, geometry: int = STORED, *, copy_engine: bool, block_memory: int
) -> Shape:
    """The launch of a stage that was measured to be the fastest of those that a GPU has room for.

    `block_memory`: bytes: :attr:`haloscope.device.interface.Device.block_memory`.
    """
    known = [_WITHOUT_COPY_ENGINE]
    if copy_engine and _copied(order, real_size):
        known.insert(0, _WAYS[geometry == TRILINEAR, real_size])
    for ways in known:
        way = _way(ways, order, real_size)
        shape = shape_of(way, order, real_size, geometry)
        # No more blocks than a processor holds.
        blocks = max(1, min(way.blocks, (block_memory + _KEPT) // (shape.shared + _KEPT)))
        shape = shape_of(way._replace(blocks=blocks), order, real_size, geometry)
        if shape.shared <= block_memory:
            break
    check_room(order, real_size, shape.shared, block_memory)
    return shape


def check_room(order: int, real_size: int, needed: int, block_memory: int) -> None:
    """Refuse elements that do not fit into a GPU's shared memory.

    `order`, `real_size`: polynomial order, and bytes of a value; `needed`, `block_memory`: bytes
    that a block needs, and those that it may have.
    """
    if needed <= block_memory:
        return
    precision = "double" if real_size == 8 else "single"
    raise InputError(
        f"order {order} in {precision} precision needs {-(-needed // _KILOBYTE)} kB of shared "
        f"memory for an element, and this GPU has {block_memory // _KILOBYTE} kB",
        location="maxwell.order",
        remedy="lower the order"
        f"{', use single precision' if real_size == 8 else ''} or use --device cpu",
    )


def _way(ways: dict[int, KernelVariant], order: int, real_size: int) -> KernelVariant:
    """Measured variant of an order, with no more threads than it has work for."""
    way = ways[min((n for n in ways if n >= order), default=max(ways))]
    if way.matrix_units and real_size != 8:
        way = way._replace(matrix_units=0)
    threads = -(-((order + 1) ** 2 * (order // 2 + 1)) // _WARP) * _WARP
    if not way.matrix_units and threads < way.threads:
        way = way._replace(threads=threads)
    return way
