"""Runs every kernel of dialect_kernels.cpp on a device, so that two devices can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).with_name("dialect_kernels.cpp")
REALS = {"double": np.float64, "float": np.float32}
WIDTH = 8
VALUES = 1000
BLOCKS = 37
BOX = (13, 7, 5)
PARTS = 64
BINS = 3
ADDITIONS = 4096
ROOTS = 1 << 20
LEAST_ROOTS = {"double": 2.0**-970, "float": 2.0**-101}


def constants(real: str) -> dict[str, int | float | str]:
    """Compile-time constants of the kernels."""
    return {"real": real, "WIDTH": WIDTH}


def operands(real: str, count: int = VALUES) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values a, b, c whose a * b + c loses most digits when the product is rounded first."""
    random = np.random.default_rng(7)
    a, b = (random.standard_normal(count).astype(REALS[real]) for _ in range(2))
    return a, b, (-a * b).astype(REALS[real])


def normal_numbers(real: str, count: int = ROOTS) -> np.ndarray:
    """Numbers of every size that root_of_normal takes, those at both ends of its range among them."""
    random = np.random.default_rng(11)
    dtype, least = REALS[real], LEAST_ROOTS[real]
    largest = np.finfo(dtype).max
    logs = random.uniform(np.log2(least), np.log2(float(largest)), count)
    values = np.exp2(logs).astype(dtype).clip(dtype(least), largest)
    values[: count // 2] = random.uniform(1.0, 4.0, count // 2)
    values[-4:] = [least, largest, 1.0, 4.0]
    return values


def run_all(device: Any, real: str) -> dict[str, np.ndarray]:
    """What each kernel gives for fixed values.

    Parameters
    ----------
    device
        Any device.
    real
        ``double`` or ``float``.

    Returns
    -------
    dict
        Host arrays by the name of the kernel, or of the array where a kernel fills several.
    """
    dtype = REALS[real]
    outputs: dict[str, np.ndarray] = {}

    def launch(name: str, extent: Any, block: Any = None, **arguments: Any) -> None:
        kernel = device.kernel(SOURCE, name, constants(real))
        kernel.bind(extent=extent, block=block, **arguments)()

    a, b, c = (device.from_host(values) for values in operands(real))
    into = device.zeros((VALUES,), dtype)
    launch("each", (VALUES,), a=a, b=into, n=VALUES)
    outputs["each"] = device.to_host(into)

    into = device.zeros((VALUES,), dtype)
    for backward in range(2):
        launch("from_an_end", (VALUES,), a=a, b=into, n=VALUES, backward=backward)
    outputs["from either end"] = device.to_host(into)

    size = BOX[0] * BOX[1] * BOX[2]
    into = device.zeros((size,), "i8")
    box = dict(zip(("nx", "ny", "nz"), BOX, strict=True))
    launch("cells", BOX, visits=into, **box)
    outputs["cells"] = device.to_host(into)

    source = device.from_host(np.arange(BLOCKS * WIDTH**2).astype(dtype))
    for name, values, block in (
        ("blocks", WIDTH, (WIDTH,)),
        ("kept", WIDTH, (WIDTH,)),
        ("squares", WIDTH**2, (WIDTH, WIDTH)),
    ):
        into = device.zeros((BLOCKS * values,), dtype)
        extent = (BLOCKS * WIDTH,) if len(block) == 1 else (BLOCKS * WIDTH, WIDTH)
        launch(name, extent, block, a=source, b=into, count=BLOCKS)
        outputs[name] = device.to_host(into)

    visits, counts = device.zeros((size,), "i8"), device.zeros((PARTS,), "i8")
    launch("parts", (PARTS,), visits=visits, counts=counts, n=PARTS, **box)
    outputs["visits"], outputs["cells in all parts"] = (
        device.to_host(visits),
        np.array([device.to_host(counts).sum()]),
    )

    kinds = {"singles": "f4", "doubles": "f8", "integers": "i8"}
    sums = {name: device.zeros((BINS,), kind) for name, kind in kinds.items()}
    launch("bins", (ADDITIONS,), **sums, bins=BINS, n=ADDITIONS)
    outputs |= {name: device.to_host(into) for name, into in sums.items()}

    into = device.zeros((3 * ROOTS,), dtype)
    numbers = device.from_host(normal_numbers(real))
    launch("roots", (ROOTS,), a=numbers, results=into, n=ROOTS)
    names = ("root_of_normal", "roots", "reciprocal_of_normal")
    outputs.update(zip(names, device.to_host(into).reshape(3, ROOTS), strict=True))

    into = device.zeros((6 * VALUES,), dtype)
    launch("arithmetic", (VALUES,), a=a, b=b, c=c, results=into, n=VALUES)
    rows = device.to_host(into).reshape(6, VALUES)
    names = ("fused", "apart", "larger", "smaller", "square_root", "absolute")
    outputs.update(zip(names, rows, strict=True))
    return outputs
