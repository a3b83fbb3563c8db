"""Kernels of a Maxwell case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from haloscope.device.interface import Device
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hex_generators import box
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.krylov.krylov import KrylovSpace
from haloscope.solvers.interface import BenchKernel
from haloscope.solvers.maxwell.case import MaxwellCase, bytes_a_step
from haloscope.solvers.maxwell.solver import MaxwellSolver
from haloscope.solvers.maxwell.stepping import Stepping


class _Unfilled(MaxwellSolver):
    """The solver without its fields: on a device that runs nothing they would be no numbers."""

    def _set_initial(self) -> None:
        self._has_initial_field = True

    def _find_bound(self) -> float:
        KrylovSpace(self._device, 1, 1, self.dtype)
        return self._with_additions(self._guess_bound())


def ask_for_kernels(case: MaxwellCase, device: Device, world: World) -> None:
    """Ask a device for every kernel that a rank of a case needs; for a device that runs none."""
    _Unfilled(case, device, world)


_ORDERS = (3, 7, 14)
_SIZES = {"cpu": (40, 100), "cuda": (50, 100, 200)}
_STAGES = 5
_WARP = 0.02


def kernels(device: Device, sizes: Sequence[int] | None = None) -> Iterator[BenchKernel]:
    """Whole steps on a warped periodic box of about so many nodes along an axis.

    Bytes a node and stage: fields and increments read and written, the geometry, and traces
    written and read.
    """
    for order in _ORDERS:
        for along in sizes or _SIZES[device.kind]:
            elements = max(2, round(along / (order + 1)))
            mesh = box((elements,) * 3, periodic=(True,) * 3, warp=_WARP)
            stepping = Stepping(mesh, nodes(mesh, order), order, device)
            rng = np.random.default_rng(1)
            stepping.set_fields(rng.standard_normal((mesh.count, 6, (order + 1) ** 3)))
            stepping.set_step(1e-6)
            steps = 2 if device.kind == "cpu" else 20

            def launch(stepping: Stepping = stepping, steps: int = steps) -> None:
                stepping.advance(steps)

            count = mesh.count * (order + 1) ** 3
            yield BenchKernel(
                f"stage (order {order})",
                f"{elements}^3 x {order + 1}^3",
                _STAGES * steps * count,
                bytes_a_step(order, single=False),
                launch,
            )
