"""Kernels of a Maxwell case: `haloscope build` compiles them, `haloscope bench` times them with their bytes model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from haloscope.device.interface import Device
from haloscope.device.targets import KernelFile, Target
from haloscope.exchange import entries
from haloscope.mesh.hexes.hex_generators import box
from haloscope.numerics import time_integration
from haloscope.numerics.elements.element_maps import nodes
from haloscope.solvers.interface import BenchKernel
from haloscope.solvers.maxwell.case import MaxwellCase, bytes_a_step, generated_elements
from haloscope.solvers.maxwell.elements import FACE_VALUES, FACES, STORED, ways_to_know
from haloscope.solvers.maxwell.stepping import SOURCE, Stepping, stage_shape
from haloscope.solvers.maxwell.terms.additions import kernel_files


def manifest(case: MaxwellCase, target: Target, ranks: int) -> Iterator[KernelFile]:
    """All kernel files that the ranks of a case may need on a target.

    How elements are known depends on the mesh: the case tells it for bricks; others may be of any shape.
    """
    table = case.maxwell
    order, real, chain_rule = table.order, table.real, table.curl == "chain-rule"
    bricks = table.box is not None and table.box.warp == 0
    known = ways_to_know(order, target.kind == "cpu", bricks=bricks)
    for mode in (STORED,) if chain_rule else known:
        shape = stage_shape(
            target, order, real, mode, upwind=table.flux == "upwind", chain_rule=chain_rule
        )
        yield KernelFile(SOURCE, shape.constants)
    yield time_integration.kernel_file(real)
    layer, currents, waves = table.additions()
    media = [medium.material(table.unit_system) for medium in table.materials]
    yield from kernel_files(order, real, media, layer, [*currents, *waves])
    if ranks > 1:
        # Messages hold traces of some of a rank's elements, with room for flags and gaps.
        elements = generated_elements(table)
        most = 4 * FACES * FACE_VALUES * (order + 1) ** 2 * (elements or math.inf)
        for values in (1, most):
            yield entries.kernel_file(real, entries.index_type(values), FACE_VALUES)


_ORDERS = (3, 7, 14)
# Fewest nodes along an axis: those of two elements of order 14.
LEAST_SIZE = 30
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
            count = mesh.count * (order + 1) ** 3
            yield BenchKernel(
                f"stage (order {order})",
                f"{elements}^3 x {order + 1}^3",
                _STAGES * steps * count,
                bytes_a_step(order, single=False),
                partial(stepping.advance, steps),
            )
