"""Claims about the rows of cells on a device: where cells are, and rows that come, go and move up."""

from __future__ import annotations

import numpy as np
import pytest
from small_membranes import ownership

from haloscope.device.cpu import CpuDevice
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import sphere

_COUNT = 7


def _cells(device, capacity, count=_COUNT, viscosity=0.0):
    """Cells with values of their own in all that is theirs."""
    law = MembraneLaw(1.0, viscosity=viscosity)
    cells = Membranes(device, sphere(42, 1.0), capacity, law, elements="linear")
    random = np.random.default_rng(capacity)
    for array in cells.state:
        there = array.reshape(3, capacity, cells.vertices)
        there[:, :count] = random.uniform(-40, 40, (3, count, cells.vertices))
    return cells


def _state(cells, count=_COUNT):
    """(count, 6 or, of viscous cells, 12, V)."""
    shape = (3, cells.capacity, cells.vertices)
    parts = [a.reshape(shape)[:, :count].swapaxes(0, 1) for a in cells.state]
    return np.concatenate(parts, axis=1)


def test_outlines_are_those_of_the_vertices_for_any_threads():
    results = []
    for threads in (1, 2):
        device = CpuDevice(threads=threads)
        cells = _cells(device, 9)
        results.append(ownership(device).outlines_of(cells, _COUNT))
        state = _state(cells)
    for one, two in zip(vars(results[0]).values(), vars(results[1]).values(), strict=True):
        assert np.array_equal(one, two)
    outlines = results[0]
    assert np.array_equal(outlines.low, state[:, :3].min(axis=2))
    assert np.array_equal(outlines.high, state[:, :3].max(axis=2))
    assert np.array_equal(outlines.fastest, np.abs(state[:, 3:]).max(axis=(1, 2)))
    assert outlines.centre == pytest.approx(state[:, :3].mean(axis=2), abs=1e-12)
    assert outlines.velocity == pytest.approx(state[:, 3:6].mean(axis=2), abs=1e-12)
    assert outlines.finite.all()


def test_means_do_not_depend_on_which_other_cells_are_there():
    device = CpuDevice(threads=1)
    cells, rows = _cells(device, 9), ownership(device)
    before = rows.outlines_of(cells, _COUNT).centre
    rows.rearrange(cells, cells, np.array([5, 2]), np.empty((0, 6, 42)))
    assert np.array_equal(rows.outlines_of(cells, 2).centre, before[[5, 2]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["positions", "velocities"])
def test_a_vertex_without_a_place_is_seen(name, value):
    device = CpuDevice(threads=1)
    cells = _cells(device, 9)
    getattr(cells, name).reshape(3, 9, 42)[1, 3, 41] = value
    outlines = ownership(device).outlines_of(cells, _COUNT)
    assert outlines.finite.tolist() == [c != 3 for c in range(_COUNT)]
    assert np.isfinite(outlines.fastest).sum() >= _COUNT - 1


@pytest.mark.parametrize(("viscosity", "fields"), [(0.0, 6), (1.0, 12)])
@pytest.mark.parametrize("room", [9, 12])
def test_rows_come_go_and_move_up(room, viscosity, fields):
    device = CpuDevice(threads=2)
    cells, handler = _cells(device, 9, viscosity=viscosity), ownership(device)
    into = cells if room == 9 else Membranes(device, cells.mesh, room, cells.law, elements="linear")
    before = _state(cells)
    came = np.random.default_rng(1).standard_normal((2, fields, 42))
    rows = np.array([-2, 0, 1, 1, 6, -1, 4, 3])
    handler.rearrange(cells, into, rows, came)
    wanted = np.where((rows < 0)[:, None, None], came[(-1 - rows) % 2], before[rows % _COUNT])
    assert np.array_equal(_state(into, len(rows)), wanted)
    assert np.array_equal(handler.states_of_rows(into, np.array([6, 0, 3])), wanted[[6, 0, 3]])


def test_where_no_cell_is_nothing_is_done():
    device = CpuDevice(threads=1)
    cells, handler = _cells(device, 1, 0), ownership(device)
    assert handler.outlines_of(cells, 0).low.shape == (0, 3)
    assert handler.states_of_rows(cells, np.zeros(0, np.int64)).shape == (0, 6, 42)
    handler.rearrange(cells, cells, np.zeros(0, np.int64), np.empty((0, 6, 42)))
    assert not cells.positions.any()
