"""Claims about digests and sketches of fields: any change is told, however the grid is cut."""

from __future__ import annotations

import math

import numpy as np
import pytest

from haloscope.exchange.ranks.world import World
from haloscope.mesh.blocks import BlockFields, Blocks, Triple
from haloscope.numerics.reduce import (
    field_digest,
    field_sketch,
    part_of_digest,
    relative_difference,
)


def _fields(values: np.ndarray, parts: Triple, rank: int) -> BlockFields:
    nz, ny, nx = values.shape
    world = World()
    world.rank = rank
    return BlockFields(world, Blocks((nx, ny, nz), parts), (1.0, 1.0, 1.0))


def _digest(values: np.ndarray, parts: Triple = (1, 1, 1)) -> int:
    total = 0
    for rank in range(math.prod(parts)):
        fields = _fields(values, parts, rank)
        total += part_of_digest(fields.own(lambda cut: values[cut]), fields.numbers())
    return total % 2**64


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_digest_does_not_depend_on_how_the_grid_is_cut(dtype):
    values = np.random.default_rng(1).standard_normal((9, 8, 7)).astype(dtype)
    whole = _digest(values)
    for parts in ((2, 1, 1), (1, 3, 1), (1, 1, 4), (3, 2, 2), (7, 8, 9)):
        assert _digest(values, parts) == whole
    fields = _fields(values, (1, 1, 1), 0)
    assert field_digest(World(), fields, values) == f"{whole:016x}"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_digest_changes_with_every_single_bit(dtype):
    values = np.random.default_rng(2).standard_normal((4, 5, 6)).astype(dtype)
    whole = _digest(values)
    bits = values.view(f"u{values.itemsize}")
    for place in ((0, 0, 0), (3, 4, 5), (1, 2, 3)):
        for bit in range(8 * values.itemsize):
            flipped = bits.copy()
            flipped[place] ^= flipped.dtype.type(1 << bit)
            assert _digest(flipped.view(dtype)) != whole


def test_a_digest_changes_when_two_values_change_places():
    values = np.random.default_rng(3).standard_normal((4, 5, 6))
    whole = _digest(values)
    flat = values.ravel()
    for a, b in ((0, 1), (0, 119), (7, 60), (30, 36)):
        swapped = flat.copy()
        swapped[[a, b]] = swapped[[b, a]]
        assert _digest(swapped.reshape(values.shape)) != whole
    assert _digest(values[::-1]) != whole
    assert _digest(np.swapaxes(values, 0, 1).copy()) != whole


def test_a_digest_of_zeros_tells_their_sign_and_the_size_of_the_grid():
    zeros = np.zeros((3, 3, 3))
    assert _digest(zeros) != _digest(-zeros)
    assert _digest(zeros) != _digest(np.zeros((3, 3, 4)))


def test_sketches_tell_how_far_fields_are_from_each_other():
    random = np.random.default_rng(4)
    values = random.standard_normal((9, 8, 70))
    other = values + 1e-3 * random.standard_normal(values.shape)
    fields = _fields(values, (1, 1, 1), 0)
    sketch, near = (field_sketch(World(), fields, array) for array in (values, other))
    wanted = np.linalg.norm(other - values) / np.linalg.norm(values)
    assert relative_difference(near, sketch) == pytest.approx(wanted, rel=0.3)
    assert relative_difference(sketch, sketch) == 0.0
    moved = field_sketch(World(), fields, np.roll(values, 1))
    assert relative_difference(moved, sketch) > 1.0


def test_a_sketch_does_not_depend_on_how_the_grid_is_cut():
    values = np.random.default_rng(5).standard_normal((9, 8, 7))
    whole = field_sketch(World(), _fields(values, (1, 1, 1), 0), values)
    every = [_fields(values, (1, 3, 2), rank) for rank in range(6)]
    parts = [field_sketch(World(), one, one.own(lambda cut: values[cut])) for one in every]
    assert np.allclose(np.sum(parts, axis=0), whole, rtol=0, atol=1e-12)
