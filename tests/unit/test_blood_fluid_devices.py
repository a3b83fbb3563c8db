"""Claims about the fluid on ranks, threads and GPUs: the same bits whatever way its steps go."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from fluid_on_one_thread import Compiled, PassingForGpu, compiled
from lattice_tables import box_part, split
from small_fluids import fixture_device, obstacles, random_start  # noqa: F401

from haloscope.device.cpu import CpuDevice
from haloscope.device.jit import assemble
from haloscope.mesh.lattice.lattice_parts import raster_coordinates, take
from haloscope.solvers.blood.fluid import boundaries, gpu_layout, populations
from haloscope.solvers.blood.fluid.fluid import SOURCE, WALLS, Fluid, Opening, WallLinks
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant, neighbours
from haloscope.solvers.blood.fluid.lattice import VELOCITIES
from haloscope.solvers.blood.fluid.populations import stride_of
from haloscope.solvers.blood.outputs.wall_stress import ChosenPoints


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_slots_begin_at_lines_of_their_own(kind, itemsize):
    line = {"cpu": 64, "cuda": 128}[kind]
    for count in (1, 1000, 2048, 4096 // itemsize, 123457):
        starts = stride_of(count, itemsize, kind) * itemsize * np.arange(19)
        assert starts[1] >= count * itemsize
        assert not (starts % line).any()
        assert len(set(starts % 4096)) == 19


def options_of_all_kinds(part):
    """Everything at once: cells, walls that move, openings, two viscosities."""
    directions, points = np.nonzero(part.sources == -1)
    directions += 1
    random = np.random.default_rng(7)
    number = part.numbers[points]
    fractions = 0.1 + 0.9 * ((number * 19 + directions) % 101) / 100
    velocities = 1e-3 * (((number * 19 + directions) % 103)[:, None] - [50, 40, 30]) / 50
    inlet = np.zeros((int((part.sources[0, part.bulk : part.owned] == -2).sum()), 3))
    inlet[:, 0] = 0.01 * random.random(1)
    return {
        "tau": 0.7,
        "inside_tau": 1.0,
        "with_cells": True,
        "walls": WallLinks(points, directions, fractions, velocities),
        "openings": (Opening(0, 1, inlet), Opening(0, -1)),
        "body_force": (1e-4, 2e-4, 0),
    }


def whole_and_parts():
    shape = (23, 6, 5)
    whole = box_part(shape, (False, False, True), obstacles(shape), [(0, 0), (0, 1)])
    x, y = whole.coordinates[:, 0], whole.coordinates[:, 1]
    owner = np.where(x < 12, 0, np.where(y < 3, 1, 2))
    return whole, owner, split(whole, owner)


def exchange(fluids, parts):
    """Copy what other ranks need: slots of ghosts are those of their owners' points."""
    owner_of = {int(n): r for r, p in enumerate(parts) for n in p.numbers[: p.owned]}
    for fluid, part in zip(fluids, parts, strict=True):
        owners = np.array([owner_of[int(part.numbers[g])] for g in fluid.ghost_slots[:, 0]])
        for other in set(owners.tolist()):
            theirs, come = fluids[other], fluid.ghost_slots[owners == other]
            at = {int(n): i for i, n in enumerate(parts[other].numbers[: parts[other].owned])}
            points = np.array([at[int(n)] for n in part.numbers[come[:, 0]]])
            go = come[:, 1] * theirs.stride + points
            here, there = fluid.state.destination, theirs.state.destination
            if not fluid.state.turn.pushed:
                here[come[:, 2]] = there[go]
            else:
                there[go] = here[come[:, 2]]


def step_together(fluids, parts):
    for fluid in fluids:
        launch(fluid, walls=False)
    exchange(fluids, parts)
    for fluid in fluids:
        launch(fluid, walls=True)
        fluid.state.go_on()


def launch(fluid, *, walls):
    fluid._device.fork()
    for node in fluid.program.steps[fluid.state.phase].nodes:
        if (node.region is WALLS) == walls:
            node.run()
    fluid._device.join()


@pytest.mark.parametrize("real", ["double", "single"])
def test_rows_along_any_axis_give_the_same_bits(device, real):
    shape = (37, 36, 38)
    places = raster_coordinates(np.arange(np.prod(shape)), shape)
    # A vessel aslant, with an opening at each end of x, and holes in it.
    aside = places[:, 1:] - 9 - 0.5 * places[:, :1]
    numbers = np.flatnonzero(((aside**2).sum(axis=1) < 60) & (places.sum(axis=1) % 31 > 0))
    ends = {0: 0, shape[0] - 1: 1}
    on = np.array([ends.get(x, -1) for x in places[numbers, 0].tolist()])
    whole = take(
        numbers,
        shape,
        ((0, 0, 0), shape),
        1,
        VELOCITIES[1:],
        openings=on,
        outward=[[-1, 0, 0], [1, 0, 0]],
    )
    assert 0 < whole.bulk < whole.owned
    populations = []
    for axis in range(3):
        part = whole.along(axis)
        order = np.argsort(part.numbers)
        options = options_of_all_kinds(part) | {"real": real}
        fluid = Fluid(device, part, **options)
        start = random_start(whole)[:, np.argsort(whole.numbers)]
        fluid.set_populations(start[:, np.argsort(order)])
        for _ in range(5):
            fluid.step()
        populations.append(fluid.populations()[:, order])
    assert np.array_equal(populations[0], populations[1])
    assert np.array_equal(populations[0], populations[2])
    assert (populations[0] != start).any(axis=0).all()


def test_several_ranks_and_threads_and_a_restart_give_the_bits_of_one(device):
    whole, owner, parts = whole_and_parts()
    start = random_start(whole)
    inside = np.random.default_rng(8).random(whole.owned) < 0.4
    g = 1e-4 * np.random.default_rng(9).standard_normal((3, whole.owned))

    def fill(fluid, mine):
        fluid.set_populations(start[:, mine])
        fluid.inside[: len(mine)] = inside[mine]
        fluid.force[:, : len(mine)] = g[:, mine]
        return fluid

    everything = np.arange(whole.owned)
    one = fill(Fluid(device, whole, **options_of_all_kinds(whole)), everything)
    two_threads = Fluid(CpuDevice(threads=2), whole, **options_of_all_kinds(whole))
    fill(two_threads, everything)
    many = [
        fill(Fluid(device, part, **options_of_all_kinds(part)), np.flatnonzero(owner == rank))
        for rank, part in enumerate(parts)
    ]
    for step in range(5):
        one.step()
        two_threads.step()
        if step == 2:
            again = one.populations()
            one = fill(Fluid(device, whole, **options_of_all_kinds(whole)), everything)
            one.set_populations(again)
        step_together(many, parts)
        expected = one.populations()
        assert np.array_equal(two_threads.populations(), expected)
        for rank, fluid in enumerate(many):
            assert np.array_equal(fluid.populations(), expected[:, owner == rank])
    for rank, fluid in enumerate(many):
        expected = one.velocity[:, : one.owned][:, owner == rank]
        assert np.array_equal(fluid.velocity[:, : fluid.owned], expected)


def same_bits(fluids, part, steps=4):
    digits = 1e-2 if fluids[0].state.source.itemsize == 2 else 1e-5
    for one in fluids:
        one.set_populations(random_start(part))
        one.inside[: part.owned] = np.random.default_rng(8).random(part.owned) < 0.4
        one.force[:, : part.owned] = 1e-3
    for _ in range(steps):
        for one in fluids:
            one.step()
        assert np.array_equal(fluids[0].populations(), fluids[1].populations())
        speeds = [one.velocity[:, : one.owned] for one in fluids]
        assert np.array_equal(*speeds)
        for here, there in zip(fluids[0].moments(), fluids[1].moments(), strict=True):
            assert np.array_equal(here, there)
        gains = [np.sort(one.gained_at_walls()) for one in fluids]
        assert np.abs(gains[0] - gains[1]).max() < digits * np.abs(gains[0]).max()


@pytest.mark.parametrize(
    ("real", "storage", "way"),
    [
        ("double", "full", KernelVariant()),
        ("double", "full", KernelVariant(compact=True)),
        ("single", "full", KernelVariant(compact=True)),
        ("double", "full", KernelVariant(early=True, lines=True)),
        ("single", "half", KernelVariant()),
        ("single", "half", KernelVariant(compact=True, buffers=2, lines=True, early=True)),
        ("single", "half", KernelVariant(compact=True, buffers=2, pushing=True)),
        ("double", "full", KernelVariant(buffers=2)),
        ("single", "full", KernelVariant(compact=True, buffers=2)),
        ("single", "half", KernelVariant(buffers=2)),
        # Of blocks in which lanes find no room for each other's links.
        ("double", "full", KernelVariant(buffers=2, threads=512)),
        ("double", "full", KernelVariant(buffers=2, pushing=True)),
        ("single", "half", KernelVariant(buffers=2, pushing=True)),
    ],
)
def test_kernels_for_gpus_give_the_bits_of_those_for_cores(
    device, passing_for_gpu, monkeypatch, real, storage, way
):
    """Their code is run by one thread of a core, on a part that has ghosts or on the whole."""
    monkeypatch.setattr(populations, "LINE", 32)
    whole, _, parts = whole_and_parts()
    # Where nobody fetches what ghosts need, each buffer has its own.
    part = parts[0] if way.buffers == 1 else whole
    options = {**options_of_all_kinds(part), "real": real, "storage": storage}
    fluid = Fluid(device, part, **options)
    there = Fluid(passing_for_gpu, part, way=way, **options)
    same_bits((fluid, there), part)
    # Set again, from whatever kind of step: an even number of them, then an odd one.
    there.step()
    for steps in (2, 3):
        same_bits((fluid, there), part, steps)


@pytest.mark.parametrize(
    ("pushing", "real", "compact", "by_warps"),
    [
        (False, "double", False, False),
        (True, "double", False, False),
        (False, "single", True, False),
        (False, "double", True, True),
    ],
)
def test_two_buffers_on_several_ranks_give_the_bits_of_one_on_one(
    device, tmp_path, passing_for_gpu, monkeypatch, pushing, real, compact, by_warps
):
    # So short that parts as small as these have lines without points of the edge.
    monkeypatch.setattr(populations, "LINE", 32)
    whole, owner, parts = whole_and_parts()
    start, way = random_start(whole), KernelVariant(buffers=2, pushing=pushing, compact=compact)
    one = Fluid(device, whole, real=real, **options_of_all_kinds(whole))
    there = passing_for_gpu
    if by_warps:
        monkeypatch.setattr(boundaries, "WARP", 32)
        there = PassingForGpu(tmp_path, by_warps=True)
    mine = [np.flatnonzero(owner == rank) for rank in range(len(parts))]
    many = [Fluid(there, part, way=way, real=real, **options_of_all_kinds(part)) for part in parts]
    for fluid in many:
        on_lines = np.resize(fluid.on_edge[: fluid.bulk], (fluid.bulk // 4, 4)).any(axis=1)
        assert 0.2 < on_lines.mean() < 0.95
    one.set_populations(start)
    for fluid, points in zip(many, mine, strict=True):
        fluid.set_populations(start[:, points])
    for step in range(7):
        one.step()
        for fluid in many:
            assert fluid.state.turn.pushed == pushing
        step_together(many, parts)
        expected = one.populations()
        if step == 3:
            # As from a file: some of them in the middle of what the others do.
            many[1].set_populations(expected[:, mine[1]])
            for fluid, points in zip(many[::2], mine[::2], strict=True):
                fluid.set_populations(expected[:, points])
        for fluid, points in zip(many, mine, strict=True):
            assert np.array_equal(fluid.populations(), expected[:, points])
            assert np.array_equal(fluid.velocity[:, : fluid.owned], one.velocity[:, points])


def test_what_walls_send_back_is_told_of_chosen_points_too(device, passing_for_gpu):
    """Steps between two buffers work it out as they fetch it: it is not among what is stored."""
    part = whole_and_parts()[0]
    options = options_of_all_kinds(part)
    one = Fluid(device, part, **options)
    gpu = passing_for_gpu
    there = Fluid(gpu, part, way=gpu_layout.fastest_way(8, 2), **options)
    points = np.random.default_rng(3).permutation(part.bulk)[: part.bulk // 2]
    chosen = [
        ChosenPoints(device, fluid, part, points) for device, fluid in ((device, one), (gpu, there))
    ]
    for fluid in (one, there):
        fluid.set_populations(random_start(part))
    for _ in range(4):
        one.step()
        there.step()
        assert np.array_equal(chosen[0].populations(), one.populations()[:, points])
        assert np.array_equal(chosen[1].populations(), chosen[0].populations())


@pytest.mark.parametrize(("real", "storage"), [("double", "full"), ("single", "half")])
def test_lanes_of_a_warp_take_each_others_links(device, tmp_path, real, storage):
    """Of points with many links and with none, of a last warp that is not full."""
    part = whole_and_parts()[0]
    options = {**options_of_all_kinds(part), "real": real, "storage": storage}
    links = np.bincount(options["walls"].points[options["walls"].points < part.bulk] // 32)
    assert 0 < links.min() < 32 < 96 < links.max()
    assert part.bulk % 32
    there = PassingForGpu(tmp_path, by_warps=True)
    fluid = Fluid(there, part, way=gpu_layout.fastest_way(8, 2), **options)
    assert fluid.constants["WALLS"] == 2
    same_bits((Fluid(device, part, **options), fluid), part)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a kind of x86-64 processor")
@pytest.mark.parametrize(
    ("real", "storage"), [("double", "full"), ("single", "full"), ("single", "half")]
)
def test_narrower_vectors_give_the_same_bits(device, tmp_path, real, storage):
    part = whole_and_parts()[0]
    options = {**options_of_all_kinds(part), "real": real, "storage": storage}
    fluid = Fluid(device, part, **options)
    text = assemble(SOURCE, fluid.constants)
    library = compiled(tmp_path, text, "-march=haswell", "-fopenmp")
    same_bits((fluid, Fluid(Compiled(library, "cpu"), part, **options)), part)


@pytest.mark.parametrize("differ", [True, False])
def test_points_share_rows_of_distances_where_neighbours_lie_alike(monkeypatch, differ):
    if not differ:
        # All rows look alike, and none may be taken for another.
        monkeypatch.setattr(gpu_layout, "_FACTORS", np.zeros(18, np.uint64))
    part = whole_and_parts()[0]
    neighbour_table = neighbours(part.sources, KernelVariant())
    rows = neighbour_table.distances[neighbour_table.kinds, :18].T
    absent = rows == gpu_layout.NONE
    assert np.array_equal(absent, part.sources < 0)
    assert np.array_equal((rows + np.arange(part.owned))[~absent], part.sources[~absent])
    neighbour_table = neighbours(part.sources, KernelVariant(compact=True))
    assert np.array_equal(_of_compact_kinds(neighbour_table, 0), np.maximum(part.sources, -1))
    # Four numbers are read at once.
    assert neighbour_table.pitch % 4 == (1 << neighbour_table.mask_bits) % 4 == 0
    full = np.arange(9 * 8 * 7)
    one_mask = take(full, (9, 8, 7), ((0, 0, 0), (9, 8, 7)), 1, VELOCITIES[1:])
    alike = neighbours(one_mask.sources, KernelVariant(compact=True))
    assert alike.pitch % 4 == (1 << alike.mask_bits) % 4 == 0 < alike.mask_bits
    # Rows of periodic boxes go on at their other ends.
    assert (
        neighbours(box_part((9, 8, 7)).sources, KernelVariant(compact=True)).mask_bits == 0
        or not differ
    )
    box = neighbours(box_part((9, 8, 7)).sources, KernelVariant())
    assert len(box.distances) == 27 or not differ


def _of_compact_kinds(neighbour_table, axis):
    """Sources (18, points) that compact kinds tell, -1 where there is none."""
    bits, table, at = neighbour_table.mask_bits, neighbour_table.distances, neighbour_table.pitch
    masks, eights, wide = table[: 1 << bits], table[1 << bits : at], table[at:]
    result = np.full((18, len(neighbour_table.kinds)), -1)
    for p, kind in enumerate(neighbour_table.kinds.tolist()):
        if kind < 0:
            row = wide.reshape(-1, gpu_layout.ROW)[-2 - kind, :18]
            result[:, p] = np.where(row == gpu_layout.NONE, -1, p + row)
            continue
        eight, mask = eights.reshape(-1, 8)[kind >> bits], int(masks[kind % (1 << bits)])
        for i, c in enumerate(VELOCITIES[1:].tolist()):
            along, (one, other) = c.pop(axis), c
            place = 3 * one + other + 4
            base = 0 if place == 4 else eight[place - (place > 4)]
            if mask >> i & 1:
                result[i, p] = p + base - along
    return result


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_compact_kinds_tell_the_same_neighbours_in_less_room(monkeypatch, axis):
    shape = (14, 15, 16)
    solid = np.random.default_rng(2).random(np.prod(shape)) < 0.01
    # Cut along x, with ghosts beyond, and closed along z: some rows do not go on as others do.
    numbers = np.flatnonzero(~solid)
    part = take(
        numbers, shape, ((0, 0, 0), (9, 15, 16)), 1, VELOCITIES[1:], periodic=(False, False, True)
    ).along(axis)
    neighbour_table = neighbours(part.sources, KernelVariant(compact=True), axis)
    assert np.array_equal(_of_compact_kinds(neighbour_table, axis), part.sources)
    assert -1 not in neighbour_table.kinds
    assert 0 < np.mean(neighbour_table.kinds < 0) < 0.3
    # As in vessels, where rows of points are long and end here and there.
    places = raster_coordinates(np.arange(60**3), (60,) * 3)
    aside = np.delete(places, axis, axis=1) - 20 - 0.3 * places[:, axis, None]
    vessel = np.flatnonzero((aside**2).sum(axis=1) < 200)
    whole = take(vessel, (60,) * 3, ((0, 0, 0), (60,) * 3), 1, VELOCITIES[1:]).along(axis)
    compact = neighbours(whole.sources, KernelVariant(compact=True), axis)
    assert np.array_equal(_of_compact_kinds(compact, axis), np.maximum(whole.sources, -1))
    whole_table = neighbours(whole.sources, KernelVariant())
    rows = compact.pitch - (1 << compact.mask_bits)
    assert rows < 0.5 * whole_table.distances.size
    # Taken a few at a time.
    monkeypatch.setattr(gpu_layout, "_AT_ONCE", 7)
    again = neighbours(whole.sources, KernelVariant(compact=True), axis)
    assert np.array_equal(again.kinds, compact.kinds)
    assert np.array_equal(again.distances, compact.distances)


@pytest.mark.parametrize("bulk", [0, 1, 2])
def test_ranks_with_hardly_a_point_outside_openings_step_too(device, passing_for_gpu, bulk):
    """As where a short vessel is cut into slices of one opening each."""
    way = gpu_layout.fastest_way(8, 2)
    part = box_part((1 + bulk, 3, 3), (False, True, True), openings=[(0, 0)])
    assert part.bulk == 9 * bulk
    options = {"tau": 0.8, "openings": (Opening(0, 1, np.tile([0.01, 0.0, 0.0], (9, 1))),)}
    one = Fluid(device, part, **options)
    there = Fluid(passing_for_gpu, part, way=way, **options)
    for fluid in (one, there):
        fluid.set_populations(random_start(part))
        for _ in range(3):
            fluid.step()
    assert np.array_equal(one.populations(), there.populations())


def test_what_compact_kinds_cannot_tell_is_told_by_whole_rows(device, passing_for_gpu, monkeypatch):
    part, way = whole_and_parts()[0], KernelVariant(compact=True, buffers=2)
    options = options_of_all_kinds(part)
    few = neighbours(part.sources, way)
    monkeypatch.setattr(gpu_layout, "_KIND_BITS", few.mask_bits + 2)
    assert neighbours(part.sources, way).mask_bits == 0
    fluid = Fluid(device, part, **options)
    whole_rows = KernelVariant(buffers=2)
    there = Fluid(passing_for_gpu, part, way=way, **options)
    assert there.constants["KINDS"] == whole_rows.constants()["KINDS"]
    there.take(way)
    assert there.constants["KINDS"] == whole_rows.constants()["KINDS"]
    same_bits((fluid, there), part)
