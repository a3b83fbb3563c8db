"""Claims about Maxwell's equations on several ranks: the fields are those of one, to the last bit."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

_HERE = Path(__file__).parent

_STEPS = textwrap.dedent(
    """
    import sys
    import zlib
    import numpy as np
    sys.path.insert(0, sys.argv[1])
    from turned_meshes import turned
    from haloscope.device.cpu import CpuDevice
    from haloscope.mesh.hexes.hex_generators import box
    from haloscope.mesh.hexes.mesh_parts import take
    from haloscope.mesh.partition import bisect
    from haloscope.exchange.ranks.world import World, open_world
    from haloscope.numerics.elements.element_maps import nodes
    from haloscope.solvers.maxwell.elements import Material
    from haloscope.solvers.maxwell.stepping import Stepping

    world, device, order = open_world(), CpuDevice(threads=1), 4
    mesh = turned(box((3, 3, 2), warp=0.03), 3)
    object.__setattr__(mesh, "regions", (np.arange(mesh.count) % 3 == 0).astype(np.int32))
    every = np.arange(mesh.count)
    parts = bisect(World(), mesh.centres, every, np.ones(mesh.count), world.size)
    part = take(mesh, np.flatnonzero(parts == world.rank), np.arange(mesh.count) % 2)
    walls = dict.fromkeys(("x-", "x+", "y-"), "pec")
    walls |= {"y+": "pmc", "z-": "absorbing", "z+": 0.3}
    behind = mesh.regions[part.partners // 6]
    start = np.random.default_rng(1).standard_normal((mesh.count, 6, (order + 1) ** 3))
    for overlap in (True, False):
        stepping = Stepping(
            part, nodes(mesh, order, part.elements), order, device, world=world, boundaries=walls,
            materials=(Material(), Material(3.0, 1.5)), regions_elsewhere=behind, overlap=overlap,
        )
        stepping.set_fields(start[part.elements])
        stepping.set_step(1e-3)
        stepping.advance(7)
        whole = np.zeros(start.shape)
        whole[part.elements] = stepping.values()
        whole = world.sum(whole)
        assert np.abs(whole - start).max() > 0.01
        print(f"bits {zlib.crc32(whole.tobytes()):08x}", flush=True)
    """
)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_ranks_give_the_bits_of_one(run_ranks, ranks):
    one, several = (
        re.findall("bits ([0-9a-f]{8})", run_ranks(count, ["-c", _STEPS, str(_HERE.parent)]).stdout)
        for count in (1, ranks)
    )
    assert len(several) == 2 * ranks
    assert len({*one, *several}) == 1
