"""Orthonormal vectors on nodes that ranks may share, made with two reductions a vector."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device
from haloscope.exchange.world import World

Floats = NDArray[np.float64]

_SOURCE = Path(__file__).with_name("node_vectors.cpp")
# As in node_vectors.cpp.
_CHUNK, _LANES, _WIDTH = 512, 256, 32
# A new vector shorter than this many roundings of what it is left from is nothing new.
_ROUNDINGS = 1000.0
_LIMIT = (_ROUNDINGS * float(np.finfo(np.float64).eps)) ** 2


class NodeVectors:
    """Room for vectors of numbers at nodes, and what makes them orthonormal one after the other.

    Vectors hold the same bits in all copies of a node that ranks share; inner products count the
    owner's. They are computed as if in twice the working precision and rounded once, on all ranks
    together, so that but for a rare last bit they depend neither on the number of ranks nor on who
    holds which node. Every rank gets the same bits.

    Orthogonalisation is classical Gram-Schmidt twice (Giraud, Langou and Rozloznik, Comput. Math.
    Appl. 50, 2005). All products of a turn are one reduction, and the length of what is left comes
    from the second one by Pythagoras (as in Swirydowicz, Langou, Ananthan, Yang and Thomas, Numer.
    Linear Algebra Appl. 28, 2021), so that there are two reductions a vector.

    Parameters
    ----------
    device
        Where vectors lie.
    count
        Most vectors.
    size
        Numbers at each node.
    owned
        Whether this rank counts each of its nodes, (nodes,).
    world
        The ranks; without it this is the only one.

    Attributes
    ----------
    vectors
        The vectors, (nodes * size,) each: the same objects as long as this lives.
    """

    def __init__(
        self,
        device: Device,
        count: int,
        size: int,
        owned: np.ndarray,
        world: World | None = None,
    ) -> None:
        self._device, self._world = device, world or World()
        self._values = len(owned) * size
        # An odd number of chunks: rows that lay a multiple of 128 KiB apart would share sets of
        # a cache.
        self._chunks = max(1, -(-self._values // _CHUNK)) | 1
        self._stride = self._chunks * _CHUNK
        self._flat = device.zeros((count * self._stride,), np.float64)
        begins = [row * self._stride for row in range(count)]
        self.vectors = [self._flat[begin : begin + self._values] for begin in begins]
        padded = np.zeros(self._stride // size + 1, np.uint8)
        padded[: len(owned)] = owned
        self._owned = device.from_host(padded)
        self._parts = device.zeros((2 * count * self._chunks,), np.float64)
        # Pairs (sum, what its rounding left) of the first and of the second turn.
        self._products = device.zeros((4 * count,), np.float64)
        self._turns = [self._products[: 2 * count], self._products[2 * count :]]
        self._staging = device.staging(2 * count, np.float64)
        constants = {"B": size}
        self._orthogonalise = device.kernel(_SOURCE, "orthogonalise", constants)
        self._add_parts = device.kernel(_SOURCE, "add_parts", constants)
        self._combine = device.kernel(_SOURCE, "combine", constants)
        self._subtract = device.kernel(_SOURCE, "subtract_from", constants)
        self._count = count

    def start(self) -> float:
        """Give the first vector the length 1; returns what it had. One reduction."""
        self._step(0, 0, project=True)
        self._reduce(0, 0)
        square = float(self._device.to_host(self._turns[0][:1])[0])
        self._step(0, 0, normalise=True)
        return math.sqrt(square) if square >= 0 else math.nan

    def orthonormalise(self, count: int) -> Floats:
        """Make vector `count` orthogonal to the `count` before it, and 1 long. Two reductions.

        Returns
        -------
        array, (count + 1,)
            How much it held of each of the others, and last the length of the rest: 0 where that
            was rounding, and not finite where the vector was not. A rest of 0 leaves zeros.
        """
        self._step(count, 0, project=True)
        self._reduce(count, 0)
        self._step(count, 0, subtract=True, project=True)
        self._reduce(count, 1)
        self._step(count, 1, subtract=True, normalise=True)
        # The one copy to the host if there is one rank.
        pairs = self._device.to_host(self._products).reshape(2, self._count, 2)
        first, second = pairs[:, : count + 1, 0]
        # In the kernel's own order.
        square = float(second[count])
        for product in second[:count].tolist():
            square -= product * product
        small = square <= _LIMIT * float(first[count])
        length = 0.0 if small else math.sqrt(square) if square >= 0 else math.nan
        if not math.isfinite(float(first[count])):
            length = math.nan
        return np.append(first[:count] + second[:count], length)

    def add_to(self, result: Array, factors: Floats) -> None:
        """``result += sum of factors[v] * vector v``; result has the size of a vector."""
        self._combine.bind(
            *(self._flat, self._stride, len(factors)),
            *(self._device.from_host(np.asarray(factors, np.float64)), self._values, result),
            extent=(self._stride,),
            block=(_CHUNK,),
        )()

    def subtract_from(self, given: Array, vector: int) -> None:
        """Replace a vector by `given` minus it."""
        own = self.vectors[vector]
        self._subtract.bind(given, self._values, own, extent=(self._values,))()

    def _step(
        self,
        count: int,
        turn: int,
        *,
        subtract: bool = False,
        normalise: bool = False,
        project: bool = False,
    ) -> None:
        limit = _LIMIT if count else 0.0
        self._orthogonalise.bind(
            *(self._flat, self._stride, count, self._owned, self._turns[0], self._turns[turn]),
            *(limit, int(subtract), int(normalise), int(project), self._parts),
            extent=(self._stride,),
            block=(_CHUNK,),
        )()

    def _reduce(self, count: int, turn: int) -> None:
        """Products of vectors 0 to `count` with the last of them, over all ranks."""
        self._add_parts.bind(
            *(self._parts, self._chunks, count + 1, self._turns[turn]),
            extent=((count + 1) * _LANES,),
            block=(_LANES,),
        )()
        if self._world.size == 1:
            return
        sums = self._turns[turn][: 2 * (count + 1)]
        own = self._device.to_host(sums)
        # Each rank adds the pairs of all in the same way; a sum over ranks would round in any order.
        pairs = self._world.alltoall(np.tile(own, (self._world.size, 1)))
        total = self._staging[: 2 * (count + 1)]
        for product in range(count + 1):
            terms = pairs[:, 2 * product : 2 * product + 2].reshape(-1)
            finite = bool(np.isfinite(terms).all())
            total[2 * product] = math.fsum(terms.tolist()) if finite else math.nan
            total[2 * product + 1] = 0.0
        self._device.copy_in(sums, total)
