"""Claims about blood on a GPU: whole cases, restarts and ranks agree with the cores."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import run_ranks

from haloscope.case.tables import check
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase

_STIFF = {
    "vertices": 42,
    "elements": "linear",
    "shape": "sphere",
    "radius_um": 2.0,
    "shear_modulus_un_m": 300.0,
    "area_ratio": 1.0,
    "bending_modulus_j": 1e-17,
}
_CASES: dict[str, dict[str, Any]] = {
    "fluid": {
        "relaxation_time": 0.9,
        "tube": {"radius_um": 7.3, "length_um": 20.0, "periodic": False},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": 0.05, "signal": "1 + 0.3*sin(1e5*t)"},
            {"name": "outlet", "kind": "pressure"},
        ],
    },
    "suspension": {
        "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
        "channel": {"size_um": [22.0, 16.0, 18.0], "periodic": ["x", "z"]},
        "walls": {"velocity_m_s": {"y_high": [0.2, 0.0, 0.1]}},
        "cells": [
            {
                "vertices": 162,
                "hematocrit": 0.1,
                "viscosity_ratio": 5.0,
                "membrane_viscosity_un_s_m": 0.2,
            },
            {
                "name": "platelet",
                "shape": "oblate",
                "radius_um": 1.5,
                "vertices": 42,
                "hematocrit": 0.01,
                "elements": "linear",
                "viscosity_ratio": 5.0,
            },
        ],
        "cell_interval": 20,
    },
    "open tube": {
        "relaxation_time": 0.6,
        "tube": {"radius_um": 5.0, "length_um": 24.0, "periodic": False},
        "openings": [
            {"name": "inlet", "kind": "velocity", "value": 1.5, "feeds": True},
            {"name": "outlet", "kind": "pressure"},
        ],
        "cells": [
            {**_STIFF, "hematocrit": 0.12, "shear_modulus_un_m": 3e3, "bending_modulus_j": 1e-16}
        ],
        "seed": 3,
    },
    # A bend whose ends are askew to the axes: fed, with cells that leave and an outlet that reacts.
    "bend": {
        "surface": {
            "file": str(Path(__file__).parents[1] / "unit" / "bend-face-ids-um.vtp"),
            "scale_um": 1.0,
        },
        "openings": [
            {"name": "2", "kind": "velocity", "value": 0.1, "feeds": True},
            {
                "name": "3",
                "kind": "pressure",
                "resistance": {"proximal": 1e12, "distal": 2e12, "compliance": 1e-18},
            },
        ],
        "cells": [
            {**_STIFF, "hematocrit": 0.15, "shear_modulus_un_m": 3e3, "bending_modulus_j": 1e-16}
        ],
        "seed": 4,
    },
    "oscillating": {
        "relaxation_time": 0.9,
        "tube": {"radius_um": 6.0, "length_um": 20.0, "periodic": False},
        "walls": {"kind": "interpolated"},
        "openings": [
            {
                "name": "inlet",
                "kind": "velocity",
                "value": 5e-12,
                "value_unit": "m3/s",
                "profile": "womersley",
                "signal": "1 + 0.5*sin(2*pi*t/2e-5)",
                "period_s": 2e-5,
            },
            {"name": "outlet", "kind": "pressure", "split": 1.0},
        ],
    },
    "pulled": {
        "channel": {"size_um": [16.0, 14.0, 12.0], "periodic": ["x", "y", "z"]},
        "cells": [
            {
                "vertices": 162,
                "stretch": {"force_pn": 80.0, "signal": "min(1, t/1e-5)"},
                "placed": [{"position_um": [8.0, 7.0, 6.0]}],
            }
        ],
    },
    # Membranes of both take more shared memory than a kernel has unasked.
    "large cells": {
        "pressure_gradient_pa_m": [2.0e7, 0.0, 1.0e7],
        "channel": {"size_um": [22.0, 16.0, 18.0], "periodic": ["x", "z"]},
        "cells": [
            {"vertices": 642, "placed": [{"position_um": [5.5, 8.0, 9.0]}]},
            {
                "name": "round",
                "shape": "sphere",
                "radius_um": 2.5,
                "vertices": 492,
                "placed": [{"position_um": [15.0, 8.0, 9.0]}],
            },
        ],
    },
}
_STEPS = {"fluid": 101, "suspension": 90, "open tube": 175, "large cells": 30}
_STEPS |= {"bend": 150, "oscillating": 101, "pulled": 60}


def _simulation(device: Any, name: str, **more: Any) -> Any:
    table = {"spacing_um": 1.0, "relaxation_time": 1.5, **_CASES[name], **more}
    data = {
        "solver": "blood",
        "blood": table,
        "output": {"fields": False, "picture": False},
        "checkpoint": {"at_end": True},
    }
    return Simulation(check(data, BloodCase, "test"), device=device, world=World())


def _state(solver: Any) -> dict[str, np.ndarray]:
    arrays = {name: solver.owned(name) for name in ("f00", "f05", "f14")}
    speeds = [solver.owned(name) for name in "uvw"]
    arrays["velocity"] = np.stack(speeds)
    if solver.suspension is not None:
        for kind in range(len(solver.suspension.kinds)):
            ids, state = solver.suspension.table(kind)
            arrays[f"ids {kind}"], arrays[f"places {kind}"] = ids, state[:, 0]
    return arrays


@pytest.mark.parametrize(
    ("name", "real", "within"),
    [(name, "double", 1e-12) for name in _CASES]
    + [("fluid", "single", 1e-5), ("suspension", "single", 1e-5)],
)
def test_whole_cases_agree(gpu, cores, assert_close, name, real, within):
    results = []
    for device, streaming in (
        *((gpu, "two buffers"), (gpu, "in place"), (gpu, "push")),
        (cores, "auto"),
    ):
        solver = _simulation(device, name, precision=real, streaming=streaming).solver
        solver.advance(_STEPS[name])
        results.append(_state(solver))
        results[-1]["finite"] = np.array(list(solver.diagnostics().values()))
    for result in results[:3]:
        assert_close(result, results[3], within)


def test_a_gpu_with_room_has_two_buffers_and_says_so(gpu):
    solver = _simulation(gpu, "fluid").solver
    assert len(solver.fluid.state.fields) == 2
    assert any("between two buffers" in notice for notice in solver.notices)
    halved = _simulation(gpu, "fluid", precision="single", storage="half").solver
    stored = sum(field.array.nbytes for field in halved.fluid.state.fields)
    assert 4 * stored < 1.1 * solver.fluid.nbytes


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["from GPU to cores", "from cores to GPU"])
def test_a_restart_goes_on_on_another_device(gpu, cores, assert_close, tmp_path, order):
    devices = (gpu, cores)
    whole = _simulation(cores, "suspension")
    whole.run(60, ceilings=False)
    first = _simulation(devices[order[0]], "suspension")
    first.run(25, out=tmp_path, ceilings=False)
    second = _simulation(devices[order[1]], "suspension")
    second.run(60, out=tmp_path, restart=True, ceilings=False)
    assert_close(_state(second.solver), _state(whole.solver), 1e-12)


_ON_RANKS = textwrap.dedent(
    """
    import json, sys, zlib
    import numpy as np
    from haloscope.case.tables import check
    from haloscope.device import open_device
    from haloscope.exchange.ranks.world import open_world
    from haloscope.run import Simulation
    from haloscope.solvers.blood.case import BloodCase

    data, device, steps = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    world = open_world()
    case = check(data, BloodCase, "test")
    local_rank = world.local_rank if sys.argv[4] == "apart" else 0
    opened = open_device(device, local_rank=local_rank)
    solver = Simulation(case, device=opened, world=world).solver
    for _ in range(steps // 5):
        solver.advance(5)
    found = [solver.layout.collect(solver.owned(name), 0, solver.layout.shape[0])
             for name in ("f03", "f16", "u")]
    for kind in range(len(solver.suspension.kinds)):
        found += solver.suspension.table(kind)
    if world.is_root:
        bits = zlib.crc32(b"".join(np.ascontiguousarray(a).tobytes() for a in found))
        print(f"bits {bits:08x} with {solver.flow.transport.partition(',')[0]}.", flush=True)
    """
)


_GPU_AWARE = """
from haloscope.exchange.transports import gpu_aware
from haloscope.exchange.ranks.world import open_world

print(f"fault: {gpu_aware(open_world())}")
"""


def _bits_on_ranks(
    ranks: int,
    device: str,
    transport: str,
    overlap: bool,
    streaming: str = "auto",
    *,
    apart: bool = False,
    name: str = "suspension",
    steps: int = 60,
) -> tuple[str, str]:
    """Bits of a case's state after some steps, and the transport that was used.

    Ranks share a GPU, or have one each where they are to be apart.
    """
    data = {
        "solver": "blood",
        "blood": {"spacing_um": 1.0, "relaxation_time": 1.5, **_CASES[name]},
        "machine": {"transport": transport, "overlap": overlap},
    }
    data["blood"] |= {"cell_interval": 10, "streaming": streaming}
    arguments = ["-c", _ON_RANKS, json.dumps(data), device, str(steps)]
    arguments.append("apart" if apart else "together")
    printed = run_ranks(ranks, arguments, timeout=200).stdout
    ((bits, used),) = re.findall(r"bits ([0-9a-f]{8}) with (\S*)\.", printed)
    return bits, used


def test_two_ranks_share_a_gpu_and_agree(gpu):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    try:
        alone, _ = _bits_on_ranks(1, "cuda", "auto", overlap=True)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    assert alone == _bits_on_ranks(1, "cpu", "auto", overlap=True)[0]
    for transport, overlap, streaming in (
        ("staged", True, "two buffers"),
        ("staged", False, "in place"),
        ("peer", True, "two buffers"),
        ("repacked", False, "push"),
        ("repacked", True, "auto"),
    ):
        assert _bits_on_ranks(2, "cuda", transport, overlap, streaming) == (alone, transport)


def test_a_vessel_that_is_fed_has_the_same_bits_on_ranks_that_share_a_gpu(gpu):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    fed: dict[str, Any] = {"name": "open tube", "steps": 175}
    try:
        alone, _ = _bits_on_ranks(1, "cuda", "auto", overlap=True, **fed)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    for transport in ("staged", "peer"):
        bits_and_transport = _bits_on_ranks(2, "cuda", transport, overlap=True, **fed)
        assert bits_and_transport == (alone, transport)


@pytest.mark.parametrize("transport", ["peer", "nccl", "staged", "repacked", "mpi"])
def test_ranks_with_a_gpu_each_agree_with_one(gpu, transport):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    count = gpu.xp.cuda.runtime.getDeviceCount()
    if count < 2:
        pytest.skip("there is one GPU alone")
    try:
        alone, _ = _bits_on_ranks(1, "cuda", "auto", overlap=True)
    except MachineError as error:
        pytest.skip(f"ranks cannot be started here: {error}")
    if transport == "mpi":
        fault = run_ranks(1, ["-c", _GPU_AWARE]).stdout.partition("fault: ")[2].strip()
        if fault:
            pytest.skip(fault)
    for ranks in {2, min(count, 4)}:
        for overlap, streaming in ((True, "two buffers"), (False, "in place")):
            bits_and_transport = _bits_on_ranks(
                ranks, "cuda", transport, overlap, streaming, apart=True
            )
            assert bits_and_transport == (alone, transport)
