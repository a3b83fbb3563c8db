"""Fields on a regular grid cut into blocks: gathered for files, read back, looked at in points."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.exchange.ranks.world import World
from haloscope.mesh.grid.blocks import Blocks
from haloscope.mesh.grid.collect import collect, interpolation, node_values, whole

_SLAB_BYTES = 1 << 28

Read = Callable[[tuple[slice, ...]], np.ndarray]


class BlockFields:
    """Where the values of fields on a grid lie: in space, on ranks, in files.

    A field as a whole has the shape (nz, ny, nx); a rank's own values that of its block.
    `spacing`: distances of nodes in m.
    """

    def __init__(self, world: World, blocks: Blocks, spacing: tuple[float, float, float]) -> None:
        self._world, self._blocks, self._spacing = world, blocks, spacing
        nx, ny, nz = blocks.nodes
        self.shape = (nz, ny, nx)
        self.parts = list(blocks.parts)

    def describe(self) -> str:
        """What there is, for people."""
        return " x ".join(str(n) for n in self._blocks.nodes if n > 1) + " nodes"

    def describe_parts(self) -> str:
        """How it is shared out, for people."""
        return " x ".join(map(str, self._blocks.parts))

    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Planes `begin` to `end` of a field on rank 0, from all ranks' own values."""
        region = whole(self._blocks)
        part = (region[0], region[1], slice(begin, end))
        return collect(self._world, self._blocks, owned, part)

    def own(self, read: Read) -> np.ndarray:
        """Own values of a field on this rank, which `read` gives by slices of its axes."""
        block = self._blocks.block(self._world.rank)
        cuts = (slice(a, b) for a, b in zip(block.start, block.stop, strict=True))
        return read(tuple(reversed(tuple(cuts))))

    def numbers(self) -> Iterator[NDArray[np.uint64]]:
        """Global numbers of a rank's own values, a plane at a time."""
        block, (nx, ny, _) = self._blocks.block(self._world.rank), self._blocks.nodes
        x, y, z = (
            np.arange(a, b, dtype=np.uint64) for a, b in zip(block.start, block.stop, strict=True)
        )
        in_plane = y[:, None] * np.uint64(nx) + x
        for plane in z:
            yield in_plane + plane * np.uint64(nx * ny)

    def describe_grid(self) -> str:
        """Nodes, and their distances."""
        distances = " x ".join(f"{h:.9g}" for h in self._spacing)
        return f"{' x '.join(map(str, self._blocks.nodes))} nodes, {distances} m apart"

    def landmarks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float64]]]:
        """None: the description tells where all nodes lie."""
        return iter(())

    def require_inside(self, location: str, position: tuple[float, float, float]) -> None:
        """Refuse a point outside."""
        nodes = self._blocks.nodes
        for axis, (x, h, n) in enumerate(zip(position, self._spacing, nodes, strict=True)):
            limit = h * (n - 1)
            if not -1e-9 * h <= x <= limit * (1 + 1e-9):
                raise InputError(
                    f"{location}: {'xyz'[axis]} = {x:g} m lies outside the grid; "
                    f"allowed are 0 to {limit:g} m"
                )

    def sample(
        self, positions: Sequence[tuple[float, float, float]], owned: np.ndarray
    ) -> list[float]:
        """Values at points by linear interpolation, the same on every rank."""
        samples = []
        for position in positions:
            corners, weights = interpolation(position, self._spacing, self._blocks.nodes)
            samples.append(float(node_values(self._world, self._blocks, owned, corners) @ weights))
        return samples

    def write(
        self,
        path: Path,
        values: Mapping[str, Callable[[], np.ndarray]],
        vectors: Mapping[str, Sequence[str]],
        time: float,
    ) -> None:
        """Write fields as VTKHDF, gathered on rank 0 some planes at a time."""
        from haloscope.io.vtkhdf import ImageWriter

        with contextlib.ExitStack() as stack:
            writer = None
            if self._world.is_root:
                writer = stack.enter_context(
                    ImageWriter(
                        path,
                        shape=self.shape,
                        origin=(0.0, 0.0, 0.0),
                        spacing=self._spacing,
                        time=time,
                    )
                )
            for name, begin, part in arrays_of(self, values, vectors, writer, axis=-1):
                if writer is not None:
                    writer.write(name, (begin, 0, 0), part)


class Creating(Protocol):
    """A writer of files."""

    def create(self, name: str, dtype: np.dtype, components: int = 1) -> None:
        """Add an array of scalars or vectors."""


class Collected(Protocol):
    """Fields that can be gathered on rank 0."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a whole field."""

    def collect(self, owned: np.ndarray, begin: int, end: int) -> np.ndarray | None:
        """Part of a field's slowest axis on rank 0; None on other ranks."""


def gathered(fields: Collected, owned: np.ndarray) -> Iterator[tuple[int, np.ndarray | None]]:
    """A field in ranges of its slowest axis of about 256 MiB, gathered on rank 0.

    Yields where each begins and the values; None on other ranks, all of which must go through it.
    """
    row = int(np.prod(fields.shape[1:], dtype=np.int64)) * owned.dtype.itemsize
    step = max(1, _SLAB_BYTES // row)
    for begin in range(0, fields.shape[0], step):
        end = min(begin + step, fields.shape[0])
        yield begin, fields.collect(owned, begin, end)


def arrays_of(
    fields: Collected,
    values: Mapping[str, Callable[[], np.ndarray]],
    vectors: Mapping[str, Sequence[str]],
    writer: Creating | None,
    *,
    axis: int,
) -> Iterator[tuple[str, int, np.ndarray]]:
    """What goes to a file: scalars and vectors piece by piece, each array made before its first."""
    components = {name for group in vectors.values() for name in group}
    groups = {name: (name,) for name in values if name not in components}
    for array, names in {**groups, **vectors}.items():
        owned = [values[name]() for name in names]
        if writer is not None:
            writer.create(array, owned[0].dtype, 1 if array in groups else 3)
        for pieces in zip(*(gathered(fields, own) for own in owned), strict=True):
            arrays = [part for _, part in pieces if part is not None]
            if not arrays:
                continue
            if array not in groups:
                arrays += [np.zeros_like(arrays[0])] * (3 - len(arrays))
            part = arrays[0] if array in groups else np.stack(arrays, axis=axis)
            yield array, pieces[0][0], part
