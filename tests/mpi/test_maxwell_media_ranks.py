"""Claims about media, layers and sources on several ranks: fields and states are those of one."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

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
    from haloscope.solvers.maxwell.terms.additions import PointwiseAdditions, place
    from haloscope.solvers.maxwell.terms.sources import PointDipole, SheetCurrent, VolumeCurrent
    from haloscope.solvers.maxwell.terms.sources import PlaneWave
    from haloscope.solvers.maxwell.terms.layers import Layer
    from haloscope.solvers.maxwell.terms.media import Drude, Lorentz, Medium
    from haloscope.solvers.maxwell.stepping import Stepping
    from haloscope.solvers.maxwell.terms.waveforms import Gaussian

    world, device, order = open_world(), CpuDevice(threads=1), 3
    mesh = turned(box((4, 4, 3), upper=(4.0, 4.0, 3.0)), 3)
    x, y, _ = mesh.centres.T
    object.__setattr__(mesh, "regions", ((x > 2) & (y > 3)).astype(np.int32))
    first = (np.arange(mesh.count) == 0)[:, None]
    sheet = np.argwhere((mesh.neighbours >= 0) & (first != (mesh.neighbours == 0)))
    object.__setattr__(mesh, "surfaces", {"sheet": sheet})
    media = (Medium(), Medium(2.0, poles=(Drude(2.0, 0.3), Lorentz(1.0, 3.0, 0.2))))
    pulse = Gaussian(0.05, 0.05)
    placed = place(
        mesh, order, media=media, layer=Layer({"x+": 1.0, "y+": 1.0}),
        currents=(
            PointDipole((2.0, 2.0, 2.0), (1.0, 2.0, 3.0), pulse),
            VolumeCurrent(np.sin, pulse),
            SheetCurrent("sheet", np.cos, pulse),
        ),
        waves=(PlaneWave((1, 2, 2), (2, -2, 1), pulse, box=((1, 0, 1), (2, 2, 2))),),
    )
    every = np.arange(mesh.count)
    parts = bisect(World(), mesh.centres, every, np.ones(mesh.count), world.size)
    part = take(mesh, np.flatnonzero(parts == world.rank), placed.concerned.astype(int))
    places = nodes(mesh, order, part.elements)
    stepping = Stepping(
        part, places, order, device, world=world, materials=media,
        boundaries=dict.fromkeys(mesh.boundary_names, "absorbing"),
        regions_elsewhere=mesh.regions[part.partners // 6],
    )
    additions = PointwiseAdditions(placed, part, places, (1,), device)
    stepping.additions = additions
    random = np.random.default_rng(1).standard_normal((mesh.count, 6, (order + 1) ** 3))
    stepping.set_fields(0.1 * random[part.elements])
    stepping.set_step(2e-2)
    stepping.advance(5)
    whole = np.zeros((mesh.count, 18, random.shape[2]))
    whole[part.elements, :6] = stepping.values()
    for name, width in additions.widths.items():
        whole[part.elements, 18 - width :] += additions.state(name)
    whole = world.sum(whole)
    assert np.abs(whole[:, :6] - random).max() > 0.1
    print(f"bits {zlib.crc32(whole.tobytes()):08x} {np.abs(whole).sum():.10e}", flush=True)
    """
)


def test_ranks_give_the_bits_of_one(run_ranks):
    """Faces of a wave's surface, of a sheet and of a dipole's element lie between ranks too."""
    one, several = (
        re.findall(
            r"bits [0-9a-f]{8} [0-9.e+]+",
            run_ranks(count, ["-c", _STEPS, str(_HERE.parent)]).stdout,
        )
        for count in (1, 3)
    )
    assert len(several) == 3
    assert len({*one, *several}) == 1, (one, several)
