"""Claims that the kernels of media, layers and sources compile for an H100 or H200 without a GPU."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from absent_device import AbsentDevice
from driven_fields import opened

from haloscope.mesh.hexes.hex_generators import box
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Drude, Lorentz, Medium
from haloscope.solvers.maxwell.terms.sources import PlaneWave, PointDipole
from haloscope.solvers.maxwell.terms.waveforms import Gaussian


def _nvrtc_is_there() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("sm_90", marks=pytest.mark.skipif(not _nvrtc_is_there(), reason="no NVRTC")),
        "cpu",
    ],
)
@pytest.mark.parametrize("order", [2, 7])
def test_every_addition_compiles(target, dtype, order):
    device = AbsentDevice(target)
    pulse = Gaussian(1.0, 0.3)
    media = (Medium(poles=(Drude(1.0, 0.1), Lorentz(1.0, 2.0, 0.1), Lorentz(1.0, 3.0, 0.1))),)
    stepping, additions, _ = opened(
        box((3, 3, 3), periodic=(False, True, True)),
        order,
        device,
        media=media,
        layer=Layer({"x+": 0.34}),
        currents=(PointDipole((0.5, 0.5, 0.5), (0, 0, 1), pulse),),
        boundaries={"x-": "pec", "x+": "pec"},
        dtype=dtype,
    )
    stepping.set_step(1e-3)
    stepping.advance(2)
    assert additions.time == 0
    wave = PlaneWave((1, 1, 0), (0, 0, 1), pulse, box=((0.3,) * 3, (0.7,) * 3))
    opened(
        box((3, 3, 3), periodic=(False, True, True)),
        order,
        device,
        waves=(wave,),
        boundaries={"x-": "pec", "x+": "pec"},
        dtype=dtype,
    )
    opened(
        box((3, 3, 1), periodic=(False, True, True)),
        order,
        device,
        layer=Layer({"x+": 0.34}),
        boundaries={"x-": "pec", "x+": "pec"},
        dtype=dtype,
    )
    assert {
        ("media.cpp", "media"),
        ("layers.cpp", "corner_layer"),
        ("layers.cpp", "side_layer"),
        ("driven.cpp", "drive"),
        ("driven.cpp", "drive_delayed"),
        ("driven.cpp", "scale"),
        ("driven.cpp", "tick"),
    } <= device.kernels
