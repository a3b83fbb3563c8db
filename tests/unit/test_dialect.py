"""Claims about the dialect on cores: each word of kernel.hpp does what its legend says."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from fractions import Fraction
from pathlib import Path

import dialect
import numpy as np
import pytest

from haloscope.device import jit
from haloscope.device.cpu import CpuDevice

pytestmark = pytest.mark.parametrize("real", ["double", "float"])


@pytest.fixture(params=[1, 3], ids=["one thread", "three threads"])
def outputs(request: pytest.FixtureRequest, real: str) -> dict[str, np.ndarray]:
    return dialect.run_all(CpuDevice(threads=request.param), real)


def _given(real: str, count: int) -> np.ndarray:
    return np.arange(count).astype(dialect.REALS[real])


def test_a_flat_loop_reaches_every_value_once(outputs, real):
    a, _, _ = dialect.operands(real)
    np.testing.assert_array_equal(outputs["each"], 2 * a + _given(real, dialect.VALUES))


def test_a_flat_loop_from_either_end_reaches_every_value_once(outputs, real):
    a, _, _ = dialect.operands(real)
    wanted = 2 * a + _given(real, dialect.VALUES)
    np.testing.assert_array_equal(outputs["from either end"], wanted + wanted)


def test_a_box_loop_reaches_every_cell_once(outputs, real):
    x, y, z = (np.arange(n) for n in dialect.BOX)
    wanted = 1 + x + 100 * y[:, None] + 10000 * z[:, None, None]
    np.testing.assert_array_equal(outputs["cells"], wanted.ravel())


def test_threads_of_a_block_share_an_array(outputs, real):
    values = _given(real, dialect.BLOCKS * dialect.WIDTH).reshape(dialect.BLOCKS, dialect.WIDTH)
    np.testing.assert_array_equal(outputs["blocks"], values[:, ::-1].ravel())


def test_threads_in_two_directions_share_a_square(outputs, real):
    squares = _given(real, dialect.BLOCKS * dialect.WIDTH**2)
    squares = squares.reshape(dialect.BLOCKS, dialect.WIDTH, dialect.WIDTH)
    np.testing.assert_array_equal(outputs["squares"], squares.swapaxes(1, 2).ravel())


def test_a_private_value_outlives_a_barrier(outputs, real):
    values = _given(real, dialect.BLOCKS * dialect.WIDTH).reshape(dialect.BLOCKS, dialect.WIDTH)
    wanted = 10 * values + np.roll(values, -1, axis=1)
    np.testing.assert_array_equal(outputs["kept"], wanted.ravel())


def test_the_parts_of_a_box_hold_every_cell_once(outputs, real):
    assert outputs["visits"].min() == outputs["visits"].max() == 1
    assert outputs["cells in all parts"] == math.prod(dialect.BOX)


def test_atomic_additions_are_all_counted(outputs, real):
    bins = [range(first, dialect.ADDITIONS, dialect.BINS) for first in range(dialect.BINS)]
    assert outputs["singles"].tolist() == [len(numbers) for numbers in bins]
    assert outputs["doubles"].tolist() == [sum(numbers) for numbers in bins]
    assert outputs["integers"].tolist() == [sum(numbers) for numbers in bins]


def _rounded_once(a: float, b: float, c: float, real: str) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if real == "double":
        return float(exact)
    # Through double would round twice: of the floats around it take the nearest, even in a tie.
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return float(
        min(
            around,
            key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1),
        )
    )


def test_fused_rounds_once_and_plain_arithmetic_twice(outputs, real):
    a, b, c = dialect.operands(real)
    once = [
        _rounded_once(float(x), float(y), float(z), real) for x, y, z in zip(a, b, c, strict=True)
    ]
    assert outputs["fused"].tolist() == once
    twice = (a * b).astype(a.dtype) + c
    np.testing.assert_array_equal(outputs["apart"], twice)
    assert (outputs["fused"] != outputs["apart"]).mean() > 0.5  # else the values tell nothing


def test_pointwise_functions_are_those_of_ieee_arithmetic(outputs, real):
    a, b, _ = dialect.operands(real)
    np.testing.assert_array_equal(outputs["larger"], np.maximum(a, b))
    np.testing.assert_array_equal(outputs["smaller"], np.minimum(a, b))
    np.testing.assert_array_equal(outputs["square_root"], np.sqrt(np.abs(a)))
    np.testing.assert_array_equal(outputs["absolute"], np.abs(a))


def test_a_root_without_a_look_at_the_range_has_the_bits_of_the_other(outputs, real):
    wanted = np.sqrt(dialect.normal_numbers(real))
    np.testing.assert_array_equal(outputs["roots"], wanted)
    np.testing.assert_array_equal(outputs["root_of_normal"], wanted)
    np.testing.assert_array_equal(outputs["reciprocal_of_normal"], 1 / wanted)


_SEED = """
#include <cmath>
#include <cstring>
#define __device__
#define __forceinline__ inline
#define INLINE static inline
#define asm(...) y = ROUGH(a)
static int __double2hiint(double a) { long w; memcpy(&w, &a, 8); return (int)(w >> 32); }
static int __double2loint(double a) { long w; memcpy(&w, &a, 8); return (int)w; }
static double __hiloint2double(int high, int low) {
  const unsigned long w = (unsigned long)(unsigned)high << 32 | (unsigned)low;
  double a;
  memcpy(&a, &w, 8);
  return a;
}
// About as far off as a GPU's own instruction, and differently for each a.
static double off(double a) { return std::sin((double)__double2loint(a)); }
static double off(float a) { return std::sin(1e9 * std::log((double)a)); }
static double upper(double a) { return __hiloint2double(__double2hiint(a), 0); }
static double root(double a) { return upper(1 / std::sqrt(a) * (1 + 5e-7 * off(a))); }
static float root(float a) { return (float)(1 / std::sqrt((double)a) * (1 + 1e-7 * off(a))); }
static double reciprocal(double a) { return upper(1 / a * (1 + 5e-7 * off(a))); }
static float reciprocal(float a) { return (float)(1 / (double)a * (1 + 5e-8 * off(a))); }
"""
_LOOP = """
extern "C" void all(const real *a, real *b, long n) {
  for (long i = 0; i < n; ++i) b[i] = WORD(a[i]);
}
"""


def _from_rough(folder: Path, real: str, word: str, rough: str, numbers: np.ndarray) -> np.ndarray:
    """What a word's GPU part makes of numbers, on cores."""
    text = jit.DIALECT.read_text()
    start = text.index(f"INLINE {real} {word}({real} a) {{\n")
    source, library = folder / f"{word}.cpp", folder / f"{word}.so"
    body = text[start : text.index("\n}\n", start) + 3]
    names = f"#define ROUGH {rough}\n#define WORD {word}\ntypedef {real} real;\n"
    source.write_text(f"{_SEED}{names}{body}{_LOOP}")
    flags = ["-O1", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    command = [*jit.find_compiler().command, *flags, str(source), "-o", str(library)]
    subprocess.run(command, check=True, timeout=60)
    roots = np.empty_like(numbers)
    run = ctypes.CDLL(str(library)).all
    run(numbers.ctypes, roots.ctypes, ctypes.c_long(numbers.size))
    return roots


def test_what_a_gpu_makes_of_its_rough_root_has_all_bits_right(tmp_path, real):
    numbers = dialect.normal_numbers(real)
    roots = _from_rough(tmp_path, real, "root_of_normal", "root", numbers)
    np.testing.assert_array_equal(roots, np.sqrt(numbers))


def test_what_a_gpu_makes_of_its_rough_reciprocal_has_all_bits_right(tmp_path, real):
    numbers = np.sqrt(dialect.normal_numbers(real))
    # That of the greatest fraction lies nearly midway: which way it goes is the GPU's own affair.
    numbers = numbers[np.frexp(numbers)[0] != np.nextafter(numbers.dtype.type(1), 0)]
    reciprocals = _from_rough(tmp_path, real, "reciprocal_of_normal", "reciprocal", numbers)
    np.testing.assert_array_equal(reciprocals, 1 / numbers)


def test_every_word_of_the_legend_is_exercised(real):
    legend = re.findall(r"^//   (\w+)[ (]", jit.DIALECT.read_text(), re.MULTILINE)
    assert len(legend) >= 13
    source = dialect.SOURCE.read_text()
    missing = [word for word in legend if not re.search(rf"\b{word}\b", source)]
    assert missing == []
