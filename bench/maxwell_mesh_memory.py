"""Measures the memory that the mesh of a Maxwell case takes on each rank, fields aside.

    mpiexec -n 4 python bench/maxwell_mesh_memory.py --set maxwell.partition='"coordinates"'

Peak while elements are shared out, and what is kept after it, by tracemalloc: most of any rank, in
bytes an element of the whole mesh and an element of that rank.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc

from haloscope.case import check, override
from haloscope.exchange.world import open_world
from haloscope.numerics import element_geometry
from haloscope.numerics.part_fields import PartFields
from haloscope.solvers.maxwell.case import MaxwellCase
from haloscope.solvers.maxwell.shares import place_in, share_out


def main() -> None:
    """Print a line on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, nargs="+", default=[64], help="one number or three")
    parser.add_argument("--set", action="append", default=[], help="table.key=value, repeatable")
    options = parser.parse_args()
    world = open_world()
    elements = options.elements * 3 if len(options.elements) == 1 else options.elements
    table = {
        "order": 1,
        "units": "natural",
        "time_step": 1e-6,
        "box": {"elements": elements, "periodic": ["x", "y", "z"]},
    }
    data = {"solver": "maxwell", "maxwell": table}
    override(data, options.set)
    case = check(data, MaxwellCase, "options")
    assert isinstance(case, MaxwellCase)
    # Nodes are computed in pieces of one size, which would hide what grows with the mesh.
    element_geometry._NODES_AT_ONCE = 1 << 14
    gc.collect()
    tracemalloc.start()
    begun = time.perf_counter()
    share = share_out(case.maxwell, world)
    part = share.rows.part()
    around = share.surroundings(world, part)
    place_in(case.maxwell, world, around, share.materials, share.layer)
    notices = share.notices
    del share, around
    fields = PartFields(world, part, case.maxwell.order)
    seconds = world.largest(time.perf_counter() - begun)
    gc.collect()
    kept, peak = (world.largest(float(value)) for value in tracemalloc.get_traced_memory())
    own = world.largest(float(part.mesh.count))
    if world.is_root:
        print(
            f"{world.size} ranks: peak {peak / part.whole:.0f}, kept {kept / part.whole:.0f} bytes "
            f"an element of the mesh; of a rank's own {peak / own:.0f} and {kept / own:.0f}; "
            f"{seconds:.1f} s; {fields.describe()}",
            flush=True,
        )
        for notice in notices:
            print(notice)


if __name__ == "__main__":
    main()
