"""Claims about blood on several ranks: fluid and cells are those of one, after a restart too."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest
from periodic_surfaces import wavy_tube

from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.solvers.blood.cells import ownership as cell_ownership

_CHANNEL = {
    "spacing_um": 1.0,
    "relaxation_time": 1.5,
    "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
    "channel": {"size_um": [22.0, 16.0, 18.0], "periodic": ["x", "z"]},
    "walls": {"velocity_m_s": {"y_high": [0.2, 0.0, 0.1]}},
    "cells": [
        {"vertices": 92, "hematocrit": 0.1, "membrane_viscosity_un_s_m": 0.2},
        {
            "name": "platelet",
            "shape": "oblate",
            "radius_um": 1.5,
            "vertices": 42,
            "hematocrit": 0.01,
            "elements": "linear",
            "membrane_viscosity_un_s_m": 0.05,
        },
    ],
    "cell_interval": 20,
    "profile": {"start": 10, "interval": 7},
}
# Small cells, which go far: each passes from rank to rank, comes in and leaves.
_TUBE = {
    "spacing_um": 1.0,
    "relaxation_time": 0.6,
    "tube": {"radius_um": 5.0, "length_um": 60.0, "periodic": False},
    "openings": [
        {"name": "inlet", "kind": "velocity", "value": 0.8, "feeds": True},
        {"name": "outlet", "kind": "pressure"},
    ],
    "cells": [
        {
            "vertices": 42,
            "elements": "linear",
            "shape": "sphere",
            "radius_um": 2.0,
            "shear_modulus_un_m": 3e3,
            "area_ratio": 1.0,
            "bending_modulus_j": 1e-15,
            "membrane_viscosity_un_s_m": 0.02,
            "hematocrit": 0.08,
        }
    ],
    "cell_interval": 20,
    "profile": {"start": 10, "interval": 7},
    "seed": 3,
}
# Eight cells, which shear and a flow across carry through the box and over all of its cuts.
_BOX = {
    "spacing_um": 1.0,
    "relaxation_time": 1.5,
    "pressure_gradient_pa_m": [3.0e6, 0.0, 2.0e6],
    "channel": {"size_um": [28.0, 16.0, 24.0], "periodic": ["x", "z"]},
    "walls": {"velocity_m_s": {"y_high": [0.05, 0.0, 0.05]}},
    "cells": [{"vertices": 162, "hematocrit": 0.07, "shear_modulus_un_m": 100.0}],
    "cell_interval": 20,
    "profile": {"start": 10, "interval": 7},
}

_RUN = textwrap.dedent(
    """
    import json
    import sys
    import zlib
    from pathlib import Path
    import numpy as np
    from haloscope.case.tables import check
    from haloscope.device import open_device
    from haloscope.exchange.ranks.world import World, open_world
    from haloscope.run import Simulation
    from haloscope.solvers.blood import cell_in_outflow as feeder
    from haloscope.solvers.blood.cells import ownership as cell_ownership
    from haloscope.solvers.blood.case import BloodCase

    def copies_that_differ(suspension, tables):
        # Values of all ranks' copies that are not the owners', and how many copies there are. Vertices
        # far from a rank's box stay behind until all are asked for.
        suspension.complete()
        different = np.zeros(2, np.int64)
        for given, (ids, states) in zip(suspension.kinds, tables):
            ids, states = (np.asarray(world.broadcast(np.resize(each, shape))) for each, shape in
                           ((ids, (given.total,)),
                            (states, (given.total, len(given.membranes.state),
                                      given.membranes.vertices, 3))))
            m, rows = given.membranes, np.searchsorted(ids, given.ids)
            here = np.stack([m.on_host(a, given.count) for a in m.state], 1)
            bits = (np.ascontiguousarray(a).view(np.int64) for a in (here, states[rows]))
            different += np.not_equal(*bits).sum(), (~given.own).sum()
        return world.sum(different)

    cell_ownership.SPARE = float(sys.argv[5])
    if sys.argv[6] == "whole":
        # As on GPUs.
        feeder.sharing_of = lambda device, world: World()
    out, steps, restart = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "restart"
    data = {
        "solver": "blood",
        "blood": json.loads(sys.argv[4]),
        "output": {"fields": False, "picture": False, "interval": 200},
        "checkpoint": {"at_end": True},
    }
    world = open_world()
    case = check(data, BloodCase, "test")
    simulation = Simulation(case, device=open_device("cpu", threads=1), world=world)
    started, before = simulation.solver.suspension.table(0)
    simulation.run(steps, out=out, restart=restart, ceilings=False)
    solver = simulation.solver
    # Others' velocities travel behind the interior, but for corners of a part that is no box.
    assert solver.flow._early or world.size == 1 or "surface" in data["blood"]
    parts = [solver.layout.collect(solver.owned(name), 0, solver.layout.shape[0])
             for name in ("f03", "u")]
    cells = [solver.suspension.table(kind) for kind in range(len(data["blood"]["cells"]))]
    moved, crossed = 0.0, 0
    if world.is_root:
        _, old, new = np.intersect1d(started, cells[0][0], return_indices=True)
        places = before[old, 0], cells[0][1][new, 0]
        moved = np.abs(places[1] - places[0]).max(initial=0.0)
        crossed = np.not_equal(*(solver.suspension.ownership.owners(each) for each in places)).sum()
    different = copies_that_differ(solver.suspension, cells)
    told = json.dumps(solver.finish(None, {}).summary.get("profile")).encode()
    passed = 0 if solver.traffic is None else min(solver.traffic.left + solver.traffic.entered)
    if world.is_root:
        assert b"discharge_hematocrit" in told or "profile" not in data["blood"]
        bits = zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for a in
                                   [*parts, *(a for pair in cells for a in pair)]) + told)
        print(f"bits {bits:08x} moved {moved:.3f} cells {len(cells[0][0])} "
              f"different {different[0]} copies {different[1]} passed {passed} "
              f"crossed {crossed}", flush=True)
    """
)


def _bits(run_ranks, ranks, out, steps, how="new", table=_CHANNEL, segment="shared"):
    """Bits, how far a vertex moved, cells, how many passed openings and how many have another owner."""
    # As many rows without cells as with them, where there is one of two ranks.
    spare = 1 if ranks == 2 else cell_ownership.SPARE
    arguments = ["-c", _RUN, out, str(steps), how, json.dumps(table), str(spare), segment]
    printed = run_ranks(ranks, arguments).stdout
    counted = " ".join(
        rf"{name} (\d+)" for name in ("cells", "different", "copies", "passed", "crossed")
    )
    ((bits, moved, *counts),) = re.findall(
        rf"bits ([0-9a-f]{{8}}) moved ([0-9.]+) {counted}", printed
    )
    cells, different, copies, passed, crossed = (int(count) for count in counts)
    # Whoever owns a cell next goes on with its copy.
    assert different == 0
    assert (copies > 0) == (ranks > 1)
    return bits, float(moved), cells, passed, crossed


def test_fluid_and_cells_on_ranks_and_after_a_restart_on_others_are_those_of_one(
    run_ranks, tmp_path
):
    one = _bits(run_ranks, 1, tmp_path / "one", 60)
    # Cells cross the borders of ranks and the ends of the channel.
    assert one[1] > 3
    assert one[2] == 7
    assert _bits(run_ranks, 3, tmp_path / "three", 30)[0] != one[0]
    assert _bits(run_ranks, 4, tmp_path / "three", 60, "restart")[0] == one[0]
    assert _bits(run_ranks, 2, tmp_path / "two", 60)[0] == one[0]


def test_cells_that_pass_openings_and_ranks_are_those_of_one_rank(run_ranks, tmp_path):
    one = _bits(run_ranks, 1, tmp_path / "one", 700, table=_TUBE)
    # Cells leave and come in, and go over the border of ranks.
    assert one[1] > 10
    assert one[3] > 1
    two = _bits(run_ranks, 2, tmp_path / "two", 700, table=_TUBE)
    assert two[4] > 0
    assert two[0] == one[0]


def test_cells_that_leave_through_an_end_askew_to_the_axes_are_those_of_one_rank(
    run_ranks, tmp_path
):
    file = str(Path(__file__).parents[1] / "unit" / "bend.obj")
    table = {
        "spacing_um": 1.0,
        "relaxation_time": 0.6,
        "surface": {"file": file, "scale_um": 1.0, "extend_radii": 1.0},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": 0.8},
            {"name": "outlet", "kind": "pressure"},
        ],
        "cells": _TUBE["cells"],
        "seed": 3,
    }
    start = _bits(run_ranks, 1, tmp_path / "start", 1, table=table)
    one = _bits(run_ranks, 1, tmp_path / "one", 700, table=table)
    assert one[2] < start[2] - 1
    assert _bits(run_ranks, 3, tmp_path / "three", 400, table=table)[0] != one[0]
    assert _bits(run_ranks, 2, tmp_path / "three", 700, "restart", table=table)[0] == one[0]


def test_cells_that_are_fed_through_an_end_askew_to_the_axes_are_those_of_one_rank(
    run_ranks, tmp_path
):
    file = str(Path(__file__).parents[1] / "unit" / "bend.obj")
    (cell,) = _TUBE["cells"]
    table = {
        "spacing_um": 1.0,
        "relaxation_time": 0.6,
        "surface": {"file": file, "scale_um": 1.0, "extend_radii": 1.0},
        "openings": _TUBE["openings"],
        "cells": [{**cell, "hematocrit": 0.2, "shear_modulus_un_m": 600.0}],
        "seed": 3,
    }
    one = _bits(run_ranks, 1, tmp_path / "one", 400, table=table)
    assert one[3] > 1
    # Some are on their way in when it is restarted.
    assert _bits(run_ranks, 3, tmp_path / "other", 250, table=table)[0] != one[0]
    assert _bits(run_ranks, 2, tmp_path / "other", 400, "restart", table=table)[0] == one[0]


def test_cells_that_pass_the_joined_ends_of_a_surface_are_those_of_one_rank(run_ranks, tmp_path):
    file = tmp_path / "tube.stl"
    write_stl(str(file), wavy_tube(6e-6, 24e-6, 2, swell=0.15, wind=1.5e-6))
    (cell,) = _TUBE["cells"]
    table = {
        "spacing_um": 1.0,
        "relaxation_time": 1.5,
        "pressure_gradient_pa_m": [0.0, 0.0, 2.0e7],
        "surface": {"file": str(file), "scale_um": 1e6, "periodic": ["low", "high"]},
        "walls": {"kind": "interpolated"},
        "repulsion": {"strength_pn": 20.0, "range_um": 1.0},
        "cells": [{**cell, "hematocrit": 0.2, "shear_modulus_un_m": 600.0}],
    }
    one = _bits(run_ranks, 1, tmp_path / "one", 400, table=table)
    assert one[1] > 3
    assert _bits(run_ranks, 4, tmp_path / "other", 200, table=table)[0] != one[0]
    three = _bits(run_ranks, 3, tmp_path / "other", 400, "restart", table=table)
    assert three[0] == one[0]
    assert three[4] > 0


def test_a_crowd_that_is_fed_is_that_of_one_rank_after_a_restart_too(run_ranks, tmp_path):
    (cell,) = _TUBE["cells"]
    crowd = {**cell, "hematocrit": 0.3, "shear_modulus_un_m": 600.0, "bending_modulus_j": 2e-17}
    tube = {**_TUBE["tube"], "length_um": 24.0}
    table = {**_TUBE, "tube": tube, "cells": [crowd]}
    one = _bits(run_ranks, 1, tmp_path / "one", 500, table=table)
    assert one[3] > 2
    assert _bits(run_ranks, 2, tmp_path / "two", 500, table=table)[0] == one[0]
    # Some are on their way in when it is restarted.
    assert _bits(run_ranks, 2, tmp_path / "other", 300, table=table)[0] != one[0]
    assert _bits(run_ranks, 3, tmp_path / "other", 500, "restart", table=table)[0] == one[0]
    # Each rank may have all of what feeds.
    whole = {"table": table, "segment": "whole"}
    _bits(run_ranks, 3, tmp_path / "whole", 300, **whole)
    assert _bits(run_ranks, 2, tmp_path / "whole", 500, "restart", **whole)[0] == one[0]


def test_cells_that_come_into_an_empty_vessel_are_those_of_one_rank(run_ranks, tmp_path):
    (cell,) = _TUBE["cells"]
    table = {
        **_TUBE,
        "tube": {**_TUBE["tube"], "length_um": 30.0},
        "cells": [{**cell, "hematocrit": 0.006}],
        "cell_interval": 50,
    }
    one = _bits(run_ranks, 1, tmp_path / "one", 900, table=table)
    assert one[2] > 0
    assert _bits(run_ranks, 2, tmp_path / "two", 900, table=table)[0] == one[0]


@pytest.mark.slow
def test_trajectories_of_1000_steps_in_which_cells_change_owners_are_those_of_one_rank(
    run_ranks, tmp_path
):
    one = _bits(run_ranks, 1, tmp_path / "1", 1000, table=_BOX)
    trajectories = (tmp_path / "1" / "cells.csv").read_bytes()
    assert one[2] == 8
    for ranks in (2, 3, 4):
        several = _bits(run_ranks, ranks, tmp_path / str(ranks), 1000, table=_BOX)
        # Cells that began in the box of one rank end in that of another.
        assert several[4] > 0
        assert several[0] == one[0]
        assert (tmp_path / str(ranks) / "cells.csv").read_bytes() == trajectories


def test_a_cell_that_is_pulled_apart_across_ranks_is_that_of_one_rank(run_ranks, tmp_path):
    # The third has no room.
    (tmp_path / "cells.pos").write_text("3\n5 6 5 80 10 0\n14 6 5 95 0 20\n14.5 6 5 0 0 0\n")
    table = {
        "spacing_um": 1.0,
        "relaxation_time": 1.5,
        "viscosity_mpa_s": 0.4,
        "pressure_gradient_pa_m": [1.5e6, 0.0, 8.0e5],
        "channel": {"size_um": [22.0, 12.0, 12.0], "periodic": ["x", "y", "z"]},
        "cells": [
            {
                "vertices": 162,
                "positions": str(tmp_path / "cells.pos"),
                "stretch": {"force_pn": 300.0, "signal": "sin(t/1e-5)**2"},
            }
        ],
        "cell_interval": 20,
    }
    one = _bits(run_ranks, 1, tmp_path / "one", 80, table=table)
    assert one[1] > 1
    assert one[2] == 2
    assert _bits(run_ranks, 3, tmp_path / "three", 40, table=table)[0] != one[0]
    assert _bits(run_ranks, 4, tmp_path / "three", 80, "restart", table=table)[0] == one[0]
