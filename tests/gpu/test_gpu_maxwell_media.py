"""Claims about media, absorbing layers and sources on a GPU: they do what they do on cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from driven_fields import opened

from haloscope.mesh.hexes.hex_generators import box
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Debye, Drude, Lorentz, Medium
from haloscope.solvers.maxwell.terms.sources import (
    PlaneWave,
    PointDipole,
    SheetCurrent,
    VolumeCurrent,
)
from haloscope.solvers.maxwell.terms.waveforms import (
    Gaussian,
    ModulatedGaussian,
    RampedSine,
    Ricker,
    Table,
)

MEDIA = (
    Medium(),
    Medium(2.0, 1.5, conductivity=0.7, magnetic_conductivity=0.2),
    Medium(1.5, poles=(Drude(4.0, 0.5), Lorentz(1.0, 6.0, 0.5), Debye(0.5, 0.2))),
)
PULSES = (
    Gaussian(0.02, 0.01),
    ModulatedGaussian(0.02, 0.01, 30.0, 0.3),
    Ricker(0.02, 30.0),
    RampedSine(40.0, 0.02, 0.1),
    Table.sampled(lambda t: np.sin(100 * t), 0.1, 1e-3),
)
WALLS = {"x-": "absorbing", "x+": "pec", "y-": "pmc", "y+": "pec", "z-": "pec", "z+": "pec"}


def stepped(
    device: Any,
    regions: Any,
    order: int,
    dtype: type,
    steps: int = 5,
    random: float = 1.0,
    **added: Any,
) -> dict[str, np.ndarray]:
    """Fields and states after some steps from random fields."""
    mesh = box((4, 3, 3), upper=(4.0, 3.0, 3.0))
    if regions is not None:
        numbers = regions(mesh.centres).astype(np.int32)
        mesh = replace(mesh, regions=numbers, region_names=("air", "one", "other"))
        added["media"] = MEDIA
    mesh = replace(mesh, surfaces={"sheet": np.array([[13, 1], [14, 0]])})
    stepping, additions, _ = opened(mesh, order, device, boundaries=WALLS, dtype=dtype, **added)
    shape = (mesh.count, 6, (order + 1) ** 3)
    stepping.set_fields(random * np.random.default_rng(7).standard_normal(shape))
    stepping.set_step(5e-3)
    stepping.advance(steps)
    assert additions.time == pytest.approx(steps * 5e-3)
    states = {name: additions.state(name) for name in additions.widths}
    return {"fields": stepping.values(), **states}


def by_place(centres: np.ndarray) -> np.ndarray:
    return np.digitize(centres[:, 1], [1.0, 2.0])


@pytest.mark.parametrize("order", [1, 4, 7, 14])
@pytest.mark.parametrize(("dtype", "within"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_media_and_layers(gpu, cores, assert_close, order, dtype, within):
    """Sides, edges and corners, with media that have memory and without."""
    layer = Layer({"x+": 1.0, "y+": 1.0, "z-": 1.0})
    results = [stepped(device, by_place, order, dtype, layer=layer) for device in (gpu, cores)]
    assert_close(*results, within=within)


@pytest.mark.parametrize("number", range(len(PULSES)))
def test_currents(gpu, cores, assert_close, number):
    """From rest, so that the sources alone are compared; a captured graph is among the steps."""
    pulse = PULSES[number]
    currents = (
        PointDipole((0.4, 1.5, 1.3), (1.0, 2.0, 3.0), pulse),
        PointDipole((2.1, 1.5, 1.3), (1.0, 2.0, 3.0), pulse, magnetic=True),
        VolumeCurrent(lambda x: np.sin(x), pulse),
        SheetCurrent("sheet", lambda x: np.cos(x), pulse),
    )
    results = [
        stepped(device, None, 5, np.float64, steps=27, random=0.0, currents=currents)
        for device in (gpu, cores)
    ]
    assert np.abs(results[1]["fields"]).max() > 0
    assert_close(*results, within=1e-12)


@pytest.mark.parametrize("number", range(len(PULSES)))
def test_incident_waves(gpu, cores, assert_close, number):
    waves = (
        PlaneWave((1, 2, 2), (2, -2, 1), PULSES[number], box=((1, 1, 1), (3, 2, 2))),
        PlaneWave((1, 0, 0), (0, 1, 0), PULSES[number], boundaries=("x-",)),
    )
    results = [
        stepped(device, None, 5, np.float64, steps=27, random=0.0, waves=waves)
        for device in (gpu, cores)
    ]
    assert np.abs(results[1]["fields"]).max() > 0
    assert_close(*results, within=1e-12)
