"""Claims about blood's fluid on a GPU: all ways through its steps do what those of the cores do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from lattice_tables import Part, box_part

from haloscope.solvers.blood.fluid.boundaries import TiltedOpening
from haloscope.solvers.blood.fluid.fluid import Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant, fastest_way
from haloscope.solvers.blood.fluid.lattice import WEIGHTS
from haloscope.solvers.carreau import Carreau

_PRECISIONS = [("double", 1e-12), ("single", 1e-5)]
_SAME_BITS = 0.0


def _obstacles(shape: tuple[int, int, int]) -> np.ndarray:
    return np.random.default_rng(5).random(shape) < 0.04


def _walls(part: Part) -> WallLinks:
    """All links to walls, some of them near, some far, all of them moving."""
    directions, points = np.nonzero(part.sources == -1)
    directions += 1
    random = np.random.default_rng(7)
    velocities = 1e-3 * random.standard_normal((len(points), 3))
    return WallLinks(points, directions, random.uniform(0.05, 1, len(points)), velocities)


def _open_at_both_ends(part: Part) -> tuple[Opening, Opening]:
    inlet = int((part.sources[0, part.bulk : part.owned] == -2).sum())
    return Opening(0, 1, np.tile([0.01, 0.001, 0.0], (inlet, 1))), Opening(0, -1)


def _tilted_at_one_end(part: Part) -> tuple[Any, ...]:
    """A plane of points at one end, and links askew to the axes at the other."""
    rows, points = np.nonzero(part.sources == -3)
    normal = np.array([0.8, 0.0, 0.6])
    return _open_at_both_ends(part)[0], TiltedOpening(normal, points, rows + 1)


def _thrown_in(part: Part) -> tuple[Any, ...]:
    rows, points = np.nonzero(part.sources == -2)
    thrown = 1e-3 * np.random.default_rng(6).standard_normal(len(points))
    return (
        TiltedOpening(np.array([-0.8, 0.6, 0.0]), points, rows + 1, thrown),
        _tilted_at_one_end(part)[1],
    )


def _fluid_cases() -> dict[str, tuple[Part, dict[str, Any]]]:
    dense = box_part((70, 33, 21))
    shape = (43, 26, 15)
    sparse = box_part(shape, (True, False, True), _obstacles(shape))
    ended = box_part(shape, (False, False, True), _obstacles(shape), [(0, 0), (0, 1)])
    cells = {"with_cells": True, "inside_tau": 1.1}
    return {
        "dense": (dense, {}),
        "bgk": (dense, {"collision": "bgk"}),
        "sparse": (sparse, {}),
        "walls": (sparse, {"walls": _walls(sparse)}),
        "openings": (ended, {"openings": _open_at_both_ends(ended)}),
        "tilted opening": (ended, {"openings": _tilted_at_one_end(ended)}),
        "tilted openings, thinning": (
            ended,
            {"openings": _thrown_in(ended), "carreau": Carreau(0.3, 0.02, 500.0, 0.4)},
        ),
        "tilted openings, cells": (ended, {"openings": _thrown_in(ended), **cells}),
        "cells": (sparse, {"with_cells": True}),
        "two viscosities": (sparse, cells),
        "everything": (
            ended,
            {"openings": _open_at_both_ends(ended), "walls": _walls(ended), **cells},
        ),
        "Carreau": (sparse, {"carreau": Carreau(0.3, 0.02, 500.0, 0.4)}),
    }


def _stepped(device: Any, part: Part, steps: int, **options: Any) -> dict[str, np.ndarray]:
    fluid = Fluid(device, part, **{"tau": 0.7, "body_force": (1e-4, -2e-4, 5e-5), **options})
    random = np.random.default_rng(1)
    fluid.set_populations(WEIGHTS[:, None] * 0.02 * random.standard_normal((19, part.owned)))
    if options.get("with_cells"):
        force = 1e-3 * random.standard_normal((3, part.owned))
        fluid.force[:, : part.owned] = device.from_host(force.astype(fluid.force.dtype))
    if options.get("inside_tau"):
        inside = (random.random(part.owned) < 0.4).astype(np.uint8)
        fluid.inside[: part.owned] = device.from_host(inside)
    for number in range(steps):
        if options.get("openings"):
            fluid.drive(0, 1.0 + 0.1 * number)
            fluid.drive(1, 1.0 - 0.001 * number)
        fluid.step()
    density, velocity = fluid.moments()
    arrays = {"f": fluid.populations(), "density": density, "velocity": velocity}
    if options.get("with_cells"):
        arrays["kept"] = device.to_host(fluid.velocity)[:, : part.owned]
    return arrays


@pytest.mark.parametrize("steps", [4, 5])
@pytest.mark.parametrize(("real", "within"), _PRECISIONS)
@pytest.mark.parametrize("case", list(_fluid_cases()))
def test_the_fluid_agrees(gpu, cores, assert_close, case, real, within, steps):
    part, options = _fluid_cases()[case]
    there, here = (_stepped(device, part, steps, real=real, **options) for device in (gpu, cores))
    power = "carreau" in options  # powers differ in their last digits
    moments = ("density", "velocity")  # summed up by the array modules
    kernels = [{k: v for k, v in arrays.items() if k not in moments} for arrays in (there, here)]
    assert_close(*kernels, within if power else _SAME_BITS)
    assert_close(*({k: arrays[k] for k in moments} for arrays in (there, here)), within)


@pytest.mark.parametrize(
    "way",
    [
        KernelVariant(compact=True),
        KernelVariant(threads=128, blocks=4, lines=True),
        KernelVariant(buffers=2),
        KernelVariant(buffers=2, compact=True, lines=True),
        KernelVariant(buffers=2, pushing=True),
        KernelVariant(buffers=2, threads=512, blocks=1),
        *(fastest_way(itemsize, buffers) for itemsize in (2, 4, 8) for buffers in (1, 2)),
    ],
)
@pytest.mark.parametrize("kept", [("double", "full"), ("single", "full"), ("single", "half")])
def test_all_ways_through_a_step_agree(gpu, cores, assert_close, way, kept):
    for case in ("dense", "everything"):
        part, options = _fluid_cases()[case]
        options = {**options, "real": kept[0], "storage": kept[1]}
        for steps in (1, 4, 5):
            there = _stepped(gpu, part, steps, way=way, **options)
            here = _stepped(cores, part, steps, **options)
            assert_close({"f": there["f"]}, {"f": here["f"]}, _SAME_BITS)


@pytest.mark.parametrize(
    "way", [KernelVariant(), KernelVariant(buffers=2), fastest_way(8), fastest_way(8, 2)]
)
def test_steps_in_a_graph_are_those_without(gpu, assert_close, way):
    part, options = _fluid_cases()["everything"]
    fluids = [Fluid(gpu, part, tau=0.7, way=way, **options) for _ in range(2)]
    start = WEIGHTS[:, None] * 0.02 * np.random.default_rng(1).standard_normal((19, part.owned))

    def pair() -> None:
        for _ in range(2):
            fluids[0].step()

    for fluid in fluids:
        fluid.set_populations(start)
        # Then all steps are of kinds that come again.
        fluid.step()
        fluid.step()
    graph = gpu.graph(pair)
    for turn in range(3):
        for fluid in fluids:
            fluid.drive(0, 1.0 + 0.1 * turn)
        graph.replay()
        for _ in range(2):
            fluids[1].step()
    assert_close(*({"f": fluid.populations()} for fluid in fluids), _SAME_BITS)


@pytest.mark.parametrize("real", ["double", "single"])
@pytest.mark.parametrize("buffers", [1, 2])
def test_steps_that_begin_early_need_nothing_too_early(gpu, real, buffers):
    """So many points that the last blocks of a step run for long beside the first of the next one."""
    shape = (180, 90, 90)
    part = box_part(shape, (False, False, True), _obstacles(shape), [(0, 0), (0, 1)])
    options = {"openings": _open_at_both_ends(part), "body_force": (1e-4, 0, 2e-4), "real": real}
    early = fastest_way(8 if real == "double" else 4, buffers)
    assert early.early
    arrivals = []
    for way in (replace(early, early=False), early):
        fluid = Fluid(gpu, part, tau=0.7, way=way, **options)
        places = 0.37 * gpu.xp.arange(part.owned, dtype=np.float32)
        fluid.set_populations(w * (0.02 * gpu.xp.sin(places + i)) for i, w in enumerate(WEIGHTS))

        def steps(fluid: Fluid = fluid) -> None:
            for _ in range(20):
                fluid.step()

        # By hand, and as graphs of which each begins when the one before has ended.
        steps()
        graph = gpu.graph(steps)
        for turn in range(10):
            fluid.drive(0, 1.0 + 0.01 * turn)
            graph.replay()
        arrivals.append([fluid.arrived(i) for i in range(len(WEIGHTS))])
    assert all(bool((a == b).all()) for a, b in zip(*arrivals, strict=True))
    assert bool(gpu.xp.isfinite(arrivals[0][3]).all())
