"""Claims about meshes that no rank has as a whole: parts and all they know are those of the whole."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest
from written_meshes import write_gmsh

from haloscope.mesh.hexes.hex_generators import box

_HERE = Path(__file__).parent

_PARTS = textwrap.dedent(
    """
    import importlib.util
    import sys
    import numpy as np
    sys.path.insert(0, sys.argv[1])
    from turned_meshes import turned
    from haloscope.mesh.hexes.hex_boxes import box_elements
    from haloscope.mesh.hexes.hex_generators import box, sphere
    from haloscope.errors import InputError
    from haloscope.mesh.hexes.mesh_parts import mesh_of, rows_of, take
    from haloscope.numerics.elements.element_maps import check_jacobians
    from haloscope.mesh.partition import bisect, graph_of, partition
    from haloscope.mesh.hexes.shared_meshes import move, range_of, range_ranks, surroundings
    from haloscope.exchange.ranks.world import World, open_world

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
                wanted = bisect(World(), centres, np.arange(count), weights, parts)
                found = bisect(world, centres[own], own, weights[own], parts)
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
            rows = box_elements(range_here, (4, 3, 5), **settings)
        part = rows.part()
        same_mesh(part.mesh, take(mesh, range_here).mesh)
        weights = np.where(mesh.centres[:, 0] > 0.3, 1.5, 1.0)
        for method in methods:
            graph = graph_of(take(mesh, np.arange(mesh.count)))
            wanted = partition(World(), graph, weights, method, parts=world.size)
            found = partition(world, graph_of(part), weights[part.elements], method)
            assert np.array_equal(found.parts, wanted.parts[part.elements]), method
            assert found.describe() == wanted.describe()
            assert np.array_equal(found.loads, wanted.loads)
        few = partition(world, graph_of(part), weights[part.elements], largest_graph=10)
        assert few.method == "coordinates"
        told = 7 * part.elements
        moved, ranks, (came,) = move(world, part, found.parts, [told])
        own = np.flatnonzero(wanted.parts == world.rank)
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

    # Elements inside out are counted over all ranks.
    mirrored = mesh_of(bricks, np.arange(bricks.count))
    object.__setattr__(mirrored, "coordinates", bricks.coordinates * [-1.0, 1.0, 1.0])
    object.__setattr__(mirrored, "mapping", None)
    refusals = []
    for ranks in (World(), world):
        try:
            check_jacobians(ranks, take(mirrored, range_of(ranks, bricks.count)), 2)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) == 2 and refusals[0] == refusals[1], refusals
    assert "in 60 of 60 elements (60 of them are negative" in refusals[0]
    print("all the same", flush=True)
    """
)

_MADE = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    import numpy as np
    sys.path.insert(0, sys.argv[1])
    from turned_meshes import turned
    from written_meshes import write_gmsh
    from haloscope.mesh.hexes.hex_generators import box, cylinder, cylinder_parts, sphere, sphere_parts
    from haloscope.mesh.files.mesh_files import read_mesh
    from haloscope.mesh.hexes.hexes import FACE_CORNERS
    from haloscope.mesh.hexes.mesh_parts import rows_of, mesh_of
    from haloscope.mesh.hexes.shared_periodic import join_periodic
    from haloscope.mesh.hexes.shared_meshes import NamedQuads, check_boundaries, connect
    from haloscope.mesh.hexes.shared_meshes import range_of
    from haloscope.errors import InputError
    from haloscope.exchange.ranks.world import World, open_world

    world = open_world()
    folder = Path(sys.argv[2])

    def same(rows, whole, what):
        own = range_of(world, whole.count)
        wanted = rows_of(whole, own)
        assert rows.whole == whole.count and np.array_equal(rows.elements, own), what
        assert np.array_equal(rows.behind, wanted.behind), what
        for name in ("coordinates", "vertices", "orientations", "boundaries", "regions"):
            found = getattr(rows.mesh, name)
            assert np.array_equal(found, getattr(wanted.mesh, name)), (what, name)
            assert found.dtype == getattr(wanted.mesh, name).dtype
        for name in ("order", "boundary_names", "region_names"):
            assert getattr(rows.mesh, name) == getattr(whole, name), (what, name)
        assert list(rows.mesh.surfaces) == list(whole.surfaces)
        for name, faces in rows.mesh.surfaces.items():
            assert np.array_equal(faces, wanted.mesh.surfaces[name])
        if whole.mapping is not None:
            every, middle = np.arange(len(own)), np.full((1, 3), 0.3)
            assert np.array_equal(
                rows.mesh.mapping(every, middle), wanted.mesh.mapping(every, middle)
            )

    cylinders = [(3, 2, 4), (1, 1, 1), (2, 3, 2), (1, 2, 3)]
    for core, rings, layers in cylinders:
        for periodic in (False, True):
            given = {"core": core, "rings": rings, "layers": layers, "periodic": periodic}
            parts = cylinder_parts(0.5, -1, 2, **given, order=3)
            same(parts.rows(world), cylinder(0.5, -1, 2, **given, order=3), given)
    for given in (
        {"core": 1, "rings": 1},
        {"core": 3, "outer_radius": 2.0, "outer_rings": 3},
        {"core": 2, "box_half_width": 2.0, "outer_rings": 1, "margin": 1.0, "margin_layers": 1},
        {"core": 1, "box_half_width": 2.0, "margin": 1.0, "margin_layers": 3},
    ):
        same(sphere_parts(1.0, **given).rows(world), sphere(1.0, **given), given)

    # Elements that do not fit, one on each rank.
    bricks = box((1, 1, 3))
    own, new = range_of(world, 3), np.arange(100, 104)
    good = bricks.vertices
    faulty = {
        "twisted": [good[0], good[1][[0, 1, 3, 2, 4, 5, 6, 7]], good[2]],
        "on one side": [good[0], np.append(new, good[0][4:]), good[2]],
        "crowded": [good[0], good[1], np.append(good[0][4:], new)],
        "collapsed": [good[0], good[1], np.append(good[2][:7], good[2][6])],
    }
    quads = [good[0][:4], good[2][4:]]
    stray = [[*good[2][4:7], 103], *(good[element][FACE_CORNERS[face]] for element in (0, 2) for face in range(4))]
    all_own = np.arange(3)

    def refusal(world, own, quads, vertices):
        rows = mesh_of(bricks, own)
        object.__setattr__(rows, "vertices", np.array(vertices)[own])
        # As from a file: rank 0 has them.
        corners = np.array(quads)[: len(quads) * world.is_root]
        names = np.zeros(len(corners), np.int32)
        centres = np.tile(np.arange(len(corners)), (3, 1)).T.astype(float)
        try:
            connect(world, rows, own, 3, 104, NamedQuads(corners, names, centres))
        except InputError as error:
            return str(error)

    for what, vertices in {"good": good, "stray": good, **faulty}.items():
        named = stray if what == "stray" else quads
        error = refusal(world, own, named, vertices)
        assert error == refusal(World(), all_own, named, vertices), error
        if what == "stray":
            assert "1 of 9 quadrilaterals" in error and "(0, 0, 0)" in error, error
        assert (error is None) == (what == "good"), what
        assert len(set(world.gather_texts(str(error)))) == 1

    # A file with elements turned anyhow, two regions, a named sheet inside, and pairs.
    def write(name, mesh, drop=(), twice=False, **wrong):
        sheet = np.argwhere((mesh.neighbours >= 0) & (mesh.regions[:, None] == 1))
        sheet = sheet[mesh.regions[mesh.neighbours[tuple(sheet.T)]] == 0]
        named = {n: mesh.outer_faces(n) for n in mesh.boundary_names if n not in drop}
        named["sheet"] = sheet
        if twice:
            named["sheet"] = np.concatenate([sheet, named["x-"][:1]])
        if world.is_root:
            write_gmsh(folder / name, mesh, named, **wrong)
        world.barrier()
        return str(folder / name)

    mesh = turned(box((3, 4, 3), (0, 0, 0), (3, 2, 1.5)), 5)
    object.__setattr__(mesh, "regions", (mesh.centres[:, 1] > 1).astype(np.int32))
    object.__setattr__(mesh, "region_names", ("low", "high"))
    path = write("good.msh", mesh)
    pairs = [("x-", "x+", (3.0, 0.0, 0.0)), ("z+", "z-", None)]

    def read(world, path, pairs, scale=1.0):
        rows = read_mesh(world, path, scale)
        for pair in pairs:
            rows = join_periodic(world, rows, pair)
        check_boundaries(world, rows)
        return rows

    def wanted(path, pairs, scale=1.0):
        return read(World(), path, pairs, scale).whole_mesh()

    for some in ([], pairs[:1], pairs):
        here = [(a, b, None if t is None else tuple(np.array(t) / 2)) for a, b, t in some]
        whole = wanted(path, here, 0.5)
        assert "sheet" in whole.surfaces and len(whole.region_names) == 2
        same(read(world, path, here, 0.5), whole, some)

    few = write("few.msh", box((1, 1, 2)))
    same(read_mesh(world, few), wanted(few, []), "fewer elements than ranks")
    # A face in two groups.
    twice = write("twice.msh", mesh, twice=True)
    rows = read_mesh(world, twice)
    same(rows, wanted(twice, []), "twice")
    assert len(rows.mesh.notes) == (1 if world.is_root else 0)
    wrong = [
        (write("unnamed.msh", mesh, drop=("x-",)), []),
        (write("twisted.msh", mesh, twisted=7), []),
        (path, [("x-", "y+", None)]),
        (path, [("x-", "nothing", None)]),
        (path, [("x-", "x-", None)]),
        (str(folder / "none.msh"), []),
    ]
    for path, pairs in wrong:
        said = []
        for ranks in (World(), world):
            try:
                read(ranks, path, pairs)
            except InputError as error:
                said.append(str(error))
        assert len(said) == 2 and said[0] == said[1], (path, said)
        assert len(set(world.gather_texts(said[1]))) == 1
    print("all the same", flush=True)
    """
)

_CASES = textwrap.dedent(
    """
    import gc
    import importlib.util
    import sys
    import zlib
    from pathlib import Path
    import numpy as np
    from haloscope.case.tables import check
    from haloscope.device import open_device
    from haloscope.mesh.hexes.hexes import HexMesh
    from haloscope.errors import InputError
    from haloscope.exchange.ranks.world import open_world
    from haloscope.run import Simulation
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
            whole = np.zeros(solver.layout.shape)
            whole[solver.part.elements] = solver.owned(name)
            found.append(world.sum(whole))
        # On faces, edges and corners the lowest element has the point.
        points = [(float(x), float(y), z + 0.5) for x in range(3) for y in range(3) for z in range(3)]
        found.append(np.array(solver.sample(points)))
        size = float(np.abs(found[0]).max())
        sums = solver.extras()
        sums = world.gather_texts(str(zlib.crc32(b"".join(sums[n].tobytes() for n in sorted(sums)))))
        found.append(np.array(int(sums[0])))
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

    folder = Path(sys.argv[1])
    print(bits(opened(box=box, boundaries=walls, **sources,
                      initial={"Ex": "sin(5*y)", "Hz": "cos(4*x)"})), flush=True)
    if importlib.util.find_spec("meshio"):
        mesh = {"file": sys.argv[2], "periodic": [{"first": "z-", "second": "z+"}]}
        print(bits(opened(mesh=mesh, boundaries=dict.fromkeys(sides[:4], "pec"), initial={
            "Ex": "sin(5*y)", "Hz": "cos(4*x)"})), flush=True)
    print(bits(opened(boundaries=walls, **ball), out=folder / f"of-{world.size}"), flush=True)
    if world.is_root:
        fields = folder / f"of-{world.size}" / "fields.vtkhdf"
        fields.rename(folder / f"fields-{world.size}")
    # Of the far field's surface two of three ranks have nothing.
    column = {"box": {"elements": [3, 3, 12], "upper": [3, 3, 12]}, "partition": "coordinates",
              "waves": [sources["waves"][0] | {"box": [[1, 1, 1], [2, 2, 2]]}],
              "far_field": {"frequencies": [0.3], "theta": 3, "phi": [20.0], "interval": 1}}
    simulation = opened(boundaries=walls, **column)
    print(bits(simulation), flush=True)
    power = float(simulation.solver.results.radiation.powers().radiated[0])
    powers = world.gather_texts(f"power {power!r}")
    assert len(set(powers)) == 1
    if world.is_root:
        print(powers[0], flush=True)
    again = {} if world.size == 1 else {"out": folder / "of-1", "restart": True}
    print(bits(opened(8, boundaries=walls, **ball), **again), flush=True)
    wrong = {
        "the point (9, 2, 3) lies in no element; allowed: points of the mesh, within (0, 0, 0) to (6, 5, 6)":
            {"sources": [sources["sources"][0] | {"position": [9.0, 2.0, 3.0]}]},
        "runs through an absorbing layer": sources | {"layer": {"thickness": {"x+": 3.0}}},
        "the plane wave enters has no faces":
            {"waves": [sources["waves"][0] | {"box": [[7, 7, 7], [8, 8, 8]]}]},
        "has no kind": {"boundaries": {}},
    }
    if world.size > 2:
        few = {"box": box | {"elements": [1, 1, 2]}}
        wrong["3 parts for a mesh of 2 elements; allowed: 1 to 2"] = few
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


def test_cylinders_spheres_and_files_in_parts_are_those_of_one_rank(run_ranks, tmp_path):
    pytest.importorskip("meshio")
    result = run_ranks(3, ["-c", _MADE, str(_HERE.parent), str(tmp_path)])
    assert result.stdout.count("all the same") == 3


def test_parts_of_a_mesh_are_those_of_the_whole(run_ranks):
    output = run_ranks(3, ["-c", _PARTS, str(_HERE.parent)]).stdout
    assert output.count("all the same") == 3


@pytest.mark.slow
def test_no_rank_keeps_the_whole_and_sources_on_parts_give_the_same_bits(run_ranks, tmp_path):
    write_gmsh(tmp_path / "box.msh", box((3, 3, 4), (0, 0, 0), (3, 3, 4)))
    arguments = [tmp_path, tmp_path / "box.msh"]
    outputs = [run_ranks(count, ["-c", _CASES, *arguments]).stdout for count in (1, 3)]
    one, several = (re.findall(r"bits (\d+) ([0-9.e+-]+)", output) for output in outputs)
    powers = [float(re.search(r"power (\S+)", output)[1]) for output in outputs]
    assert powers[0] == pytest.approx(powers[1], rel=1e-12, abs=0)
    assert powers[0] > 0
    assert len(one) == 4 + (importlib.util.find_spec("meshio") is not None)
    assert len(several) == 3 * len(one)
    assert set(several) == set(one)
    assert all(float(size) > 1e-3 for _, size in one)
    files = [h5py.File(path)["VTKHDF"] for path in (tmp_path / "fields-1", tmp_path / "fields-3")]
    for name in ("Points", "CellData/region", "PointData/E", "PointData/H"):
        assert np.array_equal(*(file[name][...] for file in files)), name
