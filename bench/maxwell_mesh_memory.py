"""Measures the memory that the mesh of a Maxwell case takes on each rank, fields aside.

    mpiexec -n 4 python bench/maxwell_mesh_memory.py --set maxwell.partition='"coordinates"'
    mpiexec -n 4 python bench/maxwell_mesh_memory.py --mesh file --elements 40

Peak while elements are shared out, and what is kept after it, by tracemalloc: most of any rank, in
bytes an element of the whole mesh and an element of that rank; and the peak of all ranks but the
first, which reads files.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.case.tables import check
from haloscope.case.toml_files import override
from haloscope.exchange.ranks.world import World, open_world
from haloscope.mesh.hexes.hex_generators import box
from haloscope.numerics.elements import element_maps
from haloscope.numerics.elements.element_fields import ElementFields
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.meshes import place_in, share_out


def _mesh(kind: str, elements: list[int], world: World, folder: Path) -> dict[str, Any]:
    """A mesh and the kinds of its surfaces, as tables of a case."""
    first, *_ = elements
    if kind == "cylinder":
        shape = {"core": first, "rings": max(1, first // 2), "layers": first, "top": 1.0}
        walls = dict.fromkeys(("wall", "bottom", "top"), "pec")
        return {"cylinder": {"radius": 1.0, **shape}, "boundaries": walls}
    if kind == "sphere":
        shape = {"core": first, "rings": max(1, first // 4)}
        return {"sphere": {"radius": 1.0, **shape}, "boundaries": {"wall": "pec"}}
    if kind == "file":
        path = folder / "box.msh"
        if world.is_root:
            _write(path, elements)
        world.barrier()
        return {"mesh": {"file": str(path)}, "boundaries": {"wall": "pec"}}
    return {"box": {"elements": elements, "periodic": ["x", "y", "z"]}}


def _write(path: Path, elements: list[int]) -> None:
    """Write a box as a binary Gmsh file with one physical group around it."""
    import meshio

    from haloscope.mesh.hexes.hexes import FACE_CORNERS

    nx, ny, nz = elements
    mesh = box((nx, ny, nz))
    points = np.zeros((mesh.vertices.max() + 1, 3))
    points[mesh.vertices] = mesh.corners
    element, face = np.nonzero(mesh.neighbours < 0)
    quads = mesh.vertices[element[:, None], FACE_CORNERS[face]][:, [0, 1, 3, 2]]
    cells = [("quad", quads), ("hexahedron", mesh.vertices[:, [0, 1, 3, 2, 4, 5, 7, 6]])]
    tags = [np.full(len(part), number) for number, (_, part) in enumerate(cells, 1)]
    data = {"gmsh:physical": tags, "gmsh:geometrical": tags}
    names = {"wall": np.array([1, 2]), "inside": np.array([2, 3])}
    meshio.Mesh(points, cells, cell_data=data, field_data=names).write(path, file_format="gmsh22")


def main() -> None:
    """Print a line on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, nargs="+", default=[64], help="one number or three")
    parser.add_argument("--mesh", choices=["box", "cylinder", "sphere", "file"], default="box")
    parser.add_argument("--set", action="append", default=[], help="table.key=value, repeatable")
    options = parser.parse_args()
    world = open_world()
    elements = options.elements * 3 if len(options.elements) == 1 else options.elements
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(world.gather_texts(folder)[0])
        mesh = _mesh(options.mesh, elements, world, shared)
        _measure(world, mesh, options.set)
        world.barrier()


def _measure(world: World, mesh: dict[str, Any], settings: list[str]) -> None:
    table = {"order": 1, "units": "natural", "time_step": 1e-6, **mesh}
    data = {"solver": "maxwell", "maxwell": table}
    override(data, settings)
    case = check(data, MaxwellCase, "options")
    assert isinstance(case, MaxwellCase)
    # Nodes are computed in pieces of one size, which would hide what grows with the mesh.
    element_maps._NODES_AT_ONCE = 1 << 14
    gc.collect()
    tracemalloc.start()
    begun = time.perf_counter()
    share = share_out(case.maxwell, world)
    part = share.rows.part()
    around = share.surroundings(world, part)
    place_in(case.maxwell, world, around, share.materials, share.layer)
    notices = share.notices
    del share, around
    fields = ElementFields(world, part, case.maxwell.order)
    seconds = world.largest(time.perf_counter() - begun)
    gc.collect()
    traced = tracemalloc.get_traced_memory()
    kept, peak = (world.largest(float(value)) for value in traced)
    others = world.largest(0.0 if world.is_root else float(traced[1]))
    own = world.largest(float(part.mesh.count))
    if world.is_root:
        print(
            f"{world.size} ranks: peak {peak / part.whole:.0f}, kept {kept / part.whole:.0f} bytes "
            f"an element of the mesh; of a rank's own {peak / own:.0f} and {kept / own:.0f}; peak "
            f"of all but rank 0 {others / part.whole:.0f}; {seconds:.1f} s; {fields.describe()}",
            flush=True,
        )
        for notice in notices:
            print(notice)


if __name__ == "__main__":
    main()
