"""Compares ways to run a stage of Maxwell's equations on a GPU: first their results, then their pace.

    python bench/maxwell_gpu_variants.py --order 7 --ways 256x1,m,b2,n 128x3,m,b1,n --points 8e6

A way is threads x blocks of a processor, then letters: m matrix units, b1 or b2
buffers of the copy engine, n geometry brought by it, -t traces not brought, g2 trilinear geometry. Bytes are those that must be moved: fields, increments (not read by the first stage,
not written by the last), geometry, traces. gpu_shapes.py holds the fastest.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from haloscope.device import open_device
from haloscope.device.meters import measure_ceilings
from haloscope.mesh.hexes.hex_generators import box
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import geometry
from haloscope.solvers.maxwell.gpu_shapes import STORED, TRILINEAR, KernelVariant, Shape, shape_of
from haloscope.solvers.maxwell.stepping import SOURCE, Stepping

REPEATS = 7
CHECKED_POINTS = 2e4
DT = 1e-6


def opened(device: Any, order: int, points: float, dtype: type) -> Stepping:
    """Random fields on a warped periodic box with about that many nodes."""
    side = max(2, round((points / (order + 1) ** 3) ** (1 / 3)))
    mesh = box((side,) * 3, periodic=(True,) * 3, warp=0.02)
    stepping = Stepping(mesh, nodes(mesh, order), order, device, dtype=dtype)
    shape = (mesh.count, 6, (order + 1) ** 3)
    stepping.set_fields(np.random.default_rng(1).standard_normal(shape))
    stepping.set_step(DT)
    return stepping


def understood(way: str, order: int, size: int) -> Shape:
    """The shape that a way's letters stand for."""
    launch, *letters = way.split(",")
    threads, blocks = map(int, launch.split("x"))
    names = {"m": "matrix_units", "b": "buffers", "n": "near"}
    numbers = {names[one[0]]: int(one[1:] or 1) for one in letters if one[0] in names}
    chosen = KernelVariant(threads, blocks, behind=int("-t" not in letters), **numbers)
    mode = TRILINEAR if "g2" in letters else STORED
    return shape_of(chosen, order, size, mode)


def shapes_of_elements(stepping: Stepping, shape: Shape) -> Any:
    """Geometry of the elements as the way wants it."""
    places = nodes(stepping.part.mesh, stepping.order)
    trilinear = shape.constants["GEOMETRY"] == TRILINEAR
    if trilinear:
        last = stepping.order
        corners = places[:, ::last, ::last, ::last]
        return np.ascontiguousarray(np.moveaxis(corners, -1, 1))
    return geometry(places, stepping.order)


def steps_of(device: Any, stepping: Stepping, shape: Shape, elements: Any) -> Callable[[int], None]:
    """Takes steps of the stepping's own fields in another way; their number is even."""
    real = stepping.fields.dtype
    constants = {
        "real": "float" if real == np.float32 else "double",
        "N": stepping.order,
        "UPWIND": 1,
        "CHAIN_RULE": 0,
        **shape.constants,
    }
    put = device.from_host(np.ascontiguousarray(elements, real).ravel())
    grid = {
        "extent": shape.extent(stepping.elements, device.multiprocessors),
        "block": (shape.threads,),
        "shared": shape.shared,
    }
    turns = []
    for turn in range(2):
        turns.append(
            [
                device.kernel(
                    SOURCE, "stage" if s < LSERK4.stages - 1 else "last_stage", constants
                ).bind(
                    fields=stepping.fields,
                    increments=stepping.increments,
                    geometry=put,
                    materials=stepping._materials,
                    faces=stepping._faces,
                    traces_before=stepping._traces[turn],
                    traces_after=stepping._traces[1 - turn],
                    D=stepping._D,
                    DT=stepping._DT,
                    first=0,
                    elements=stepping.elements,
                    dt=DT,
                    rka=LSERK4.a[s],
                    rkb=LSERK4.b[s],
                    **grid,
                )
                for s in range(LSERK4.stages)
            ]
        )

    def advance(steps: int) -> None:
        for stage in range(steps * LSERK4.stages):
            turns[stage % 2][stage % LSERK4.stages]()

    return advance


def difference(device: Any, order: int, dtype: type, shape: Shape) -> float:
    """Largest difference between a way's two steps and the stepping's own."""
    stepping = opened(device, order, CHECKED_POINTS, dtype)
    elements = shapes_of_elements(stepping, shape)
    start = stepping.values()
    traces = stepping._traces[0].copy()
    stepping.advance(2)
    wanted = stepping.values()
    stepping.fields[:] = device.from_host(np.ascontiguousarray(start, dtype).ravel())
    stepping._traces[0][:] = traces
    stepping.increments[:] = np.nan
    steps_of(device, stepping, shape, elements)(2)
    return float(np.abs(stepping.values() - wanted).max())


def bytes_a_node(order: int, size: int, shape: Shape) -> float:
    """Bytes that a stage must move, a mean of a step's."""
    values = 24 / (order + 1) ** 3 if shape.constants["GEOMETRY"] == TRILINEAR else 10
    return size * (24 - 12 / LSERK4.stages + values + 48 / (order + 1))


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--order", type=int, default=7)
    parser.add_argument("--points", type=float, nargs="+", default=[8e6])
    parser.add_argument("--single", action="store_true", help="single precision")
    parser.add_argument("--ways", nargs="+", required=True)
    options = parser.parse_args()
    device = open_device("cuda")
    dtype = np.float32 if options.single else np.float64
    size = np.dtype(dtype).itemsize
    ceiling = measure_ceilings(device)
    print(device.name, ceiling.as_dict())
    shapes = {way: understood(way, options.order, size) for way in options.ways}
    apart = {
        way: difference(device, options.order, dtype, shape)
        for way, shape in shapes.items()
        if shape.constants["GEOMETRY"] == STORED
    }
    for points in options.points:
        stepping = opened(device, options.order, points, dtype)
        count = stepping.elements * (options.order + 1) ** 3
        for way, shape in shapes.items():
            advance = steps_of(device, stepping, shape, shapes_of_elements(stepping, shape))
            steps = 2 * max(1, round(4e6 / count))
            graph = device.graph(lambda advance=advance, steps=steps: advance(steps))
            device.seconds(graph.replay)
            seconds = (
                statistics.median(device.seconds(graph.replay) for _ in range(REPEATS)) / steps
            )
            rate = LSERK4.stages * count / seconds
            moved = bytes_a_node(options.order, size, shape) * rate / 1e9
            print(
                f"N={options.order} {count} nodes, {way}: {6e-9 * rate:.2f} GDOF/s, "
                f"{moved / ceiling.best:.2f} of the memory's pace, differs by {apart.get(way, np.nan):.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
