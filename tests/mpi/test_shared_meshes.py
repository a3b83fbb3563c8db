"""Claims about meshes that no rank has as a whole: parts and all they know are those of the whole."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import h5py
import numpy as np

_HERE = Path(__file__).parent

_PARTS = textwrap.dedent(
    """
    import importlib.util
    import sys
    import numpy as np
    sys.path.insert(0, sys.argv[1])
    from turned_meshes import turned
    from haloscope.domain.hex_boxes import some_of_box
    from haloscope.domain.hex_generators import box, sphere
    from haloscope.domain.mesh_parts import rows_of, take
    from haloscope.domain.partition import bisect, partition
    from haloscope.domain.shared_meshes import move, range_of, range_ranks, surroundings
    from haloscope.domain.shared_partition import bisect_on_ranks, partition_on_ranks
    from haloscope.exchange.world import open_world

    world = open_world()

    def same_mesh(one, other):
        for name in ("coordinates", "vertices", "neighbours", "neighbour_faces", "orientations",
                     "boundaries", "regions"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert set(one.surfaces) == set(other.surfaces)
        for name, faces in one.surfaces.items():
            assert set(map(tuple, faces)) == set(map(tuple, other.surfaces[name])), name
        if one.mapping is not None:
            every, middle = np.arange(one.count), np.full((1, 3), 0.3)
            assert np.array_equal(one.mapping(every, middle), other.mapping(every, middle))

    # Cuts are those of one rank, where elements lie anyhow, in planes, and one outweighs all.
    random = np.random.default_rng(0)
    grid = box((7, 5, 6)).centres
    for centres in (random.normal(size=(97, 3)), grid):
        count = len(centres)
        order = random.permutation(count)
        own = order[range_of(world, count)]
        one = np.ones(count)
        for weights in (one, random.integers(2, 4, count) / 2, np.where(one.cumsum() == 1, 1e6, 1)):
            for parts in (2, 5):
                wanted = bisect(centres, parts, weights)
                found = bisect_on_ranks(world, centres[own], own, weights[own], parts)
                assert np.array_equal(found, wanted[own]), (count, parts)

    # Parts, what was moved and what lies around it.
    settings = {"periodic": (True, False, True), "warp": 0.05, "grading": (2.0, 1.0, 1.0)}
    bricks = box((4, 3, 5), **settings)
    elements = turned(box((4, 4, 3)), 3)
    inside = np.argwhere((elements.neighbours >= 0) & (np.arange(elements.count) < 20)[:, None])
    object.__setattr__(elements, "regions", (np.arange(elements.count) % 3).astype(np.int32))
    object.__setattr__(elements, "surfaces", {"sheet": inside, "other": inside[:1]})
    methods = ["coordinates", "auto"]
    if importlib.util.find_spec("pymetis"):
        methods.append("graph")
    for mesh in (bricks, elements, sphere(1.0, box_half_width=2.0)):
        range_here = range_of(world, mesh.count)
        rows = rows_of(mesh, range_here)
        if mesh is bricks:
            rows = some_of_box(range_here, (4, 3, 5), **settings)
        part = rows.part()
        same_mesh(part.mesh, take(mesh, range_here).mesh)
        weights = np.where(mesh.centres[:, 0] > 0.3, 1.5, 1.0)
        for method in methods:
            wanted = partition(mesh, world.size, weights, method)
            found = partition_on_ranks(world, part, weights[part.elements], method)
            assert np.array_equal(found.parts, wanted.parts[part.elements]), method
            assert found.describe() == wanted.describe()
            assert np.array_equal(found.loads, wanted.loads)
        few = partition_on_ranks(world, part, weights[part.elements], largest_graph=10)
        assert few.method == "coordinates"
        told = 7 * part.elements
        moved, ranks, (came,) = move(world, part, found.parts, [told])
        own = wanted.elements(world.rank)
        assert np.array_equal(moved.elements, own) and np.array_equal(came, 7 * own)
        neighbours = mesh.neighbours[own]
        behind = np.where(neighbours >= 0, wanted.parts[neighbours], -1)
        assert np.array_equal(ranks, behind)
        kinds = np.arange(mesh.count) % 2
        whole, part = take(mesh, own, kinds), moved.part(kinds[own])
        same_mesh(part.mesh, whole.mesh)
        assert np.array_equal(part.partners, whole.partners) and part.ranges == whole.ranges
        assert (part.partners >= 0).any()
        around = surroundings(world, part, ranks[np.searchsorted(own, part.elements)])
        assert around.own == len(own) < len(around.numbers) == around.mesh.count
        numbers = around.numbers
        for name in ("coordinates", "vertices", "orientations", "boundaries", "regions"):
            assert np.array_equal(getattr(around.mesh, name), getattr(mesh, name)[numbers]), name
        near = around.mesh.neighbours
        assert np.array_equal(
            np.where(near >= 0, numbers[near], -1)[: len(own)], mesh.neighbours[part.elements]
        )
        element, face = np.nonzero(near >= 0)
        behind, behind_face = near[element, face], around.mesh.neighbour_faces[element, face]
        assert np.array_equal(near[behind, behind_face], element)
        assert np.array_equal(mesh.neighbours[numbers[element], face], numbers[behind])
    print("all the same", flush=True)
    """
)

_CASES = textwrap.dedent(
    """
    import gc
    import sys
    import zlib
    from pathlib import Path
    import numpy as np
    from haloscope.case import check
    from haloscope.device import open_device
    from haloscope.domain.hexes import HexMesh
    from haloscope.errors import InputError
    from haloscope.exchange.world import open_world
    from haloscope.run import Simulation
    from haloscope.solvers.maxwell import meshes
    from haloscope.solvers.maxwell.case import MaxwellCase

    world = open_world()
    sides = ("x-", "x+", "y-", "y+", "z-", "z+")
    pulse = {"kind": "gaussian", "centre": 0.3, "width": 0.1}

    def opened(steps=4, **table):
        data = {"solver": "maxwell", "maxwell": {"order": 2, "units": "natural", **table}}
        data |= {"run": {"steps": steps}, "checkpoint": {"at_end": True}}
        case = check(data | {"output": {"picture": False}}, MaxwellCase, "test")
        simulation = Simulation(case, device=open_device("cpu", threads=1), world=world)
        gc.collect()
        held = [o.count for o in gc.get_objects() if isinstance(o, HexMesh)]
        own = simulation.solver.part.mesh.count
        assert max(held) == own, (held, own)
        assert own < simulation.solver.part.whole or world.size == 1
        return simulation

    def bits(simulation, **run):
        simulation.run(ceilings=False, **run)
        solver = simulation.solver
        found = []
        for name in solver.stored:
            whole = np.zeros(solver.places.shape)
            whole[solver.part.elements] = solver.owned(name)
            found.append(world.sum(whole))
        # On faces, edges and corners the lowest element has the point.
        points = [(float(x), float(y), z + 0.5) for x in range(3) for y in range(3) for z in range(3)]
        found.append(np.array(solver.sample(points)))
        size = float(np.abs(found[0]).max())
        return f"bits {zlib.crc32(b''.join(each.tobytes() for each in found))} {size}"

    walls = dict.fromkeys(sides, "absorbing")
    box = {"elements": [6, 5, 6], "upper": [6, 5, 6]}
    sources = {
        "layer": {"thickness": {"x-": 1.0, "z+": 1.0}},
        "sources": [{"kind": "dipole", "position": [3.0, 2.0, 3.0], "moment": [1, 2, 3.0],
                     "waveform": pulse}],
        "waves": [{"direction": [1, 2, 2], "polarisation": [2, -2, 1], "waveform": pulse,
                   "box": [[2, 1, 1], [4, 4, 4]]}],
    }
    ball = {
        "sphere": {"radius": 1.0, "box_half_width": 2.0, "core": 1, "rings": 1, "outer_rings": 1,
                   "margin": 2.0, "margin_layers": 2},
        "materials": [{"region": "inner", "permittivity": 2.0,
                       "poles": [{"kind": "drude", "plasma_frequency": 2.0, "collision_rate": 0.3}]}],
        "layer": {"thickness": {"x-": 1.0}},
        "waves": [{"direction": [1, 0, 1], "polarisation": [0, 1, 0], "waveform": pulse,
                   "inside": ["inner", "outer"]}],
    }
    made = meshes.box

    def refuse(*_, **__):
        raise AssertionError("a rank has made the whole box")

    meshes.box = refuse
    print(bits(opened(box=box, boundaries=walls, **sources,
                      initial={"Ex": "sin(5*y)", "Hz": "cos(4*x)"})), flush=True)
    meshes.box = made
    folder = Path(sys.argv[1])
    print(bits(opened(boundaries=walls, **ball), out=folder / f"of-{world.size}"), flush=True)
    if world.is_root:
        fields = folder / f"of-{world.size}" / "fields.vtkhdf"
        fields.rename(folder / f"fields-{world.size}")
    again = {} if world.size == 1 else {"out": folder / "of-1", "restart": True}
    print(bits(opened(8, boundaries=walls, **ball), **again), flush=True)
    wrong = {
        "the point (9, 2, 3) lies in no element; the mesh reaches from (0, 0, 0) to (6, 5, 6)":
            {"sources": [sources["sources"][0] | {"position": [9.0, 2.0, 3.0]}]},
        "runs through an absorbing layer": sources | {"layer": {"thickness": {"x+": 3.0}}},
        "a plane wave comes in has no faces":
            {"waves": [sources["waves"][0] | {"box": [[7, 7, 7], [8, 8, 8]]}]},
        "has no kind": {"boundaries": {}},
    }
    if world.size > 2:
        few = {"box": box | {"elements": [1, 1, 2]}}
        wrong["3 parts are out of range for a mesh of 2 elements; allowed are 1 to 2"] = few
    for words, changes in wrong.items():
        try:
            opened(**{"box": box, "boundaries": walls, **changes})
        except InputError as error:
            texts = world.gather_texts(str(error))
            assert words in texts[0] and len(set(texts)) == 1, texts
        else:
            raise AssertionError(words)
    """
)


def test_parts_of_a_mesh_are_those_of_the_whole(run_ranks):
    output = run_ranks(3, ["-c", _PARTS, str(_HERE.parent)]).stdout
    assert output.count("all the same") == 3


def test_no_rank_keeps_the_whole_and_sources_on_parts_give_the_same_bits(run_ranks, tmp_path):
    one, several = (
        re.findall(r"bits (\d+) ([0-9.e+-]+)", run_ranks(count, ["-c", _CASES, tmp_path]).stdout)
        for count in (1, 3)
    )
    assert len(one) == 3
    assert len(several) == 3 * len(one)
    assert set(several) == set(one)
    assert all(float(size) > 1e-3 for _, size in one)
    files = [h5py.File(path)["VTKHDF"] for path in (tmp_path / "fields-1", tmp_path / "fields-3")]
    for name in ("Points", "CellData/region", "PointData/E", "PointData/H"):
        assert np.array_equal(*(file[name][...] for file in files)), name
