"""Fields on the device, and the steps that take them forward in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Device, Launch
from haloscope.domain.hexes import HexMesh
from haloscope.numerics.basis import derivative_matrix
from haloscope.numerics.element_geometry import volume_weights
from haloscope.numerics.timestep import LSERK4
from haloscope.solvers.maxwell.elements import FACE_VALUES, FACES, Material, faces, geometry

SOURCE = Path(__file__).with_name("maxwell.cpp")
FIELDS = ("Ex", "Ey", "Ez", "Hx", "Hy", "Hz")

Floats = NDArray[np.float64]

_WARP = 32
_MOST_THREADS = 512


class Stepping:
    """The fields of all elements of this rank, and time steps.

    Parameters
    ----------
    mesh
        The elements.
    coordinates
        Their nodes (elements, N + 1, N + 1, N + 1, 3).
    order
        Polynomial order N.
    device
        Where to compute.
    materials
        One for each region of the mesh.
    boundaries
        Kind of each boundary by its name.
    upwind
        Upwind flux, or the central one.
    dtype
        Of the fields.
    """

    # How a GPU runs a stage: threads of a block (0: one a node, as far as they fit), and how many
    # blocks a multiprocessor is to hold at least.
    threads = 0
    blocks_a_processor = 1

    def __init__(
        self,
        mesh: HexMesh,
        coordinates: Floats,
        order: int,
        device: Device,
        *,
        materials: Sequence[Material] = (Material(),),
        boundaries: Mapping[str, str] | None = None,
        upwind: bool = True,
        dtype: type = np.float64,
    ) -> None:
        self.order, self.elements = order, mesh.count
        self._device = device
        self._real = np.dtype(dtype)
        nodes = (order + 1) ** 3
        shape = geometry(coordinates, order)
        self.jacobian = 1 / shape[:, 9]
        of = np.array([[m.permittivity, m.permeability, m.impedance] for m in materials])
        of = of[mesh.regions if len(materials) > 1 else np.zeros(mesh.count, np.int64)]
        table = np.stack([1 / of[:, 0], 1 / of[:, 1], of[:, 2], 1 / of[:, 2]], axis=1)
        self._energy_weights = 0.5 * np.stack([of[:, 0], of[:, 1]], axis=1)
        behind = faces(mesh, of[:, 2], boundaries or {}, self._real)

        def put(values: NDArray[np.generic]) -> object:
            return device.from_host(np.ascontiguousarray(values, self._real).ravel())

        count = mesh.count * len(FIELDS) * nodes
        self.fields = device.zeros((count,), self._real)
        self._increments = device.zeros((count,), self._real)
        self._geometry, self._materials = put(shape), put(table)
        self._faces = device.from_host(behind.view(np.uint8).ravel())
        slots = mesh.count * FACES * FACE_VALUES * (order + 1) ** 2
        self._traces = [device.zeros((slots,), self._real) for _ in range(2)]
        D = derivative_matrix(order)
        self._D, self._DT = put(D), put(D.T)
        constants: dict[str, int | float | str] = {
            "real": "float" if self._real == np.float32 else "double",
            "N": order,
            "UPWIND": int(upwind),
        }
        threads = 1
        self._options: dict[str, Any] = {}
        if device.kind != "cpu":
            threads = self.threads or min(_MOST_THREADS, -(-nodes // _WARP) * _WARP)
            constants["THREADS_A_BLOCK"] = threads
            constants["BLOCKS_A_PROCESSOR"] = self.blocks_a_processor
            self._options["shared"] = (6 * nodes + (order + 1) ** 2) * self._real.itemsize
        self._grid: dict[str, Any] = {"extent": (mesh.count * threads,), "block": (threads,)}
        self._stage = device.kernel(SOURCE, "stage", constants)
        first = device.kernel(SOURCE, "first_traces", constants)
        self._first = [
            first.bind(self.fields, self._geometry, trace, 0, mesh.count, **self._grid)
            for trace in self._traces
        ]
        self._current = 0
        self._launches: list[list[Launch]] = []

    def set_step(self, dt: float) -> None:
        """Use a time step from now on."""
        self._launches = [
            [
                self._stage.bind(
                    *(self.fields, self._increments, self._geometry, self._materials, self._faces),
                    *(self._traces[turn], self._traces[1 - turn], self._D, self._DT),
                    *(0, self.elements, float(dt), LSERK4.a[stage], LSERK4.b[stage]),
                    **self._grid,
                    **self._options,
                )
                for stage in range(LSERK4.stages)
            ]
            for turn in range(2)
        ]

    def set_fields(self, values: Floats) -> None:
        """Take fields over, (elements, 6, (N + 1)^3), in the order of :data:`FIELDS`."""
        self.fields[:] = self._device.from_host(
            np.ascontiguousarray(values, self._real).reshape(-1)
        )
        self._first[self._current]()

    def values(self) -> Floats:
        """The fields on the host, (elements, 6, (N + 1)^3)."""
        host = self._device.to_host(self.fields).astype(np.float64)
        return host.reshape(self.elements, len(FIELDS), -1)

    def advance(self, steps: int) -> None:
        """Take time steps."""
        for _ in range(steps):
            for stage in range(LSERK4.stages):
                self._launches[self._current][stage]()
                self._current = 1 - self._current

    def energy(self) -> float:
        """Energy of the field: half the integral of eps E^2 + mu H^2."""
        weights = volume_weights(self.order).ravel() * self.jacobian
        squares = self.values() ** 2
        by_field = np.stack([squares[:, :3].sum(axis=1), squares[:, 3:].sum(axis=1)], axis=1)
        return float(np.einsum("efn,en,ef->", by_field, weights, self._energy_weights))
