"""Claims about absorbing layers: what goes in does not come back, in every direction."""

from __future__ import annotations

import numpy as np
import pytest
from driven_fields import advance, opened
from refusals import refused

from haloscope.device.cpu import CpuDevice
from haloscope.mesh.hexes.hex_generators import SIDE_NAMES, box
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Drude, Medium
from haloscope.solvers.maxwell.terms.sources import VolumeCurrent
from haloscope.solvers.maxwell.terms.waveforms import Ricker

CORE = CpuDevice(threads=1)
REFLECTED = 1e-3
"""-60 dB."""


def row(axis: int, half: float = 1.5, width: float = 0.5):
    """Elements in a row along an axis, periodic to its sides."""
    low, high, periodic = [0.0] * 3, [width] * 3, [True] * 3
    low[axis], high[axis], periodic[axis] = -half, half, False
    counts = [1, 1, 1]
    counts[axis] = round(2 * half / width)
    return box(tuple(counts), tuple(low), tuple(high), periodic=tuple(periodic))


def comes_back(axis: int, layer: Layer | None, medium=None, forward: int = 1) -> float:
    """Largest field in the middle after a pulse has met the end, over the pulse's height."""
    medium = medium or Medium()
    mesh = row(axis)
    ends = {f"{'xyz'[axis]}{side}": "pec" for side in "-+"}
    stepping, _, points = opened(mesh, 8, CORE, media=(medium,), layer=layer, boundaries=ends)
    x = points[axis]
    start = np.zeros(stepping.values().shape)
    pulse = np.exp(-((x / 0.22) ** 2))
    e, h = (axis + 1) % 3, (axis + 2) % 3
    start[:, e], start[:, 3 + h] = pulse, forward * pulse / medium.impedance
    stepping.set_fields(start)
    speed = 1 / np.sqrt(medium.permittivity * medium.permeability)
    advance(stepping, 3.0 / speed, 0.5 * np.sqrt(medium.permittivity), 0.8)
    middle = np.abs(x) < 1.0
    return float(np.abs(stepping.values()[:, e][middle]).max())


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("forward", [1, -1])
def test_a_pulse_that_meets_a_layer_is_gone(axis, forward):
    name = "xyz"[axis]
    layer = Layer({f"{name}-": 0.5, f"{name}+": 0.5})
    assert comes_back(axis, layer, forward=forward) < REFLECTED


def test_without_the_layer_the_pulse_comes_back():
    assert comes_back(0, None) > 0.9


# A current in the corner of an octant, mirrored by what lies on its inner sides.
SYMMETRY = {"x-": "pmc", "y-": "pmc", "z-": "pec", "x+": "pec", "y+": "pec", "z+": "pec"}
PULSE = Ricker(centre=1.0, frequency=1.0)


def blob(points: np.ndarray) -> np.ndarray:
    """A current along z that the elements resolve."""
    fields = np.zeros_like(points)
    fields[:, 2] = np.exp(-(points**2).sum(axis=1) / 0.25**2)
    return fields


def octant(elements: int, layer: Layer | None, until: float) -> dict[tuple[float, ...], np.ndarray]:
    """Fields by the centres of elements of width 0.5 in the first unit cube."""
    mesh = box((elements,) * 3, upper=(0.5 * elements,) * 3)
    stepping, _, points = opened(
        mesh,
        5,
        CORE,
        layer=layer,
        currents=(VolumeCurrent(blob, PULSE),),
        boundaries=SYMMETRY,
    )
    advance(stepping, until, 0.5, 0.9)
    centres = points.mean(axis=2).T.round(6)
    fields_by_centre = zip(map(tuple, centres.tolist()), stepping.values(), strict=True)
    return {centre: values for centre, values in fields_by_centre if max(centre) < 1}


def difference(one: dict, other: dict) -> float:
    return max(float(np.abs(values - other[centre]).max()) for centre, values in one.items())


def test_a_box_with_layers_does_what_a_larger_box_does():
    """Until the walls of the larger one can be felt; edges and corners of the layers take part."""
    layer = Layer({"x+": 0.5, "y+": 0.5, "z+": 0.5})
    late, early = octant(5, None, 3.0), octant(5, None, 1.5)
    height = max(np.abs(values).max() for values in early.values())
    assert difference(octant(3, layer, 3.0), late) < REFLECTED * height
    assert difference(octant(3, None, 3.0), late) > 50 * REFLECTED * height


def test_layers_that_meet_in_edges_and_corners_are_stable():
    mesh = box((2, 2, 2))
    layer = Layer({"x+": 0.5, "y+": 0.5, "z-": 0.5}, grading=4, reflection=1e-8)
    stepping, additions, _ = opened(
        mesh, 3, CORE, layer=layer, boundaries=dict.fromkeys(SIDE_NAMES, "pec")
    )
    stepping.set_fields(np.random.default_rng(2).standard_normal(stepping.values().shape))
    dt = 0.9 * 4.657 / (0.179 / 0.15 * 2 * 12 / 0.5 + additions.fastest)
    stepping.set_step(dt)
    energies = []
    for _ in range(4):
        stepping.advance(500)
        energies.append(stepping.energy())
    assert energies[-1] <= energies[0] < 10


@pytest.mark.parametrize(
    "medium",
    [Medium(2.0, 1.5), Medium(1.0, conductivity=0.2), Medium(1.0, poles=(Drude(2.0, 0.5),))],
    ids=["plain", "conducting", "Drude"],
)
def test_the_layer_matches_the_medium_in_it(medium):
    """A longer row shows what goes on without the layer's end; short and long do the same."""
    layer, plane = Layer({"x+": 0.5}), {"x-": "pmc", "x+": "pec"}
    fields = {}
    for length in (1.5, 4.0):
        mesh = box(
            (round(2 * length), 1, 1), upper=(length, 0.5, 0.5), periodic=(False, True, True)
        )
        added = layer if length < 2 else None
        stepping, _, points = opened(mesh, 8, CORE, media=(medium,), layer=added, boundaries=plane)
        start = np.zeros(stepping.values().shape)
        start[:, 1] = np.exp(-((points[0] / 0.25) ** 2))
        stepping.set_fields(start)
        advance(stepping, 3.0, 0.5, 0.8)
        order = np.argsort(points[0].mean(axis=1))
        fields[length] = stepping.values()[order[:2]]
    assert np.abs(fields[1.5] - fields[4.0]).max() < 5e-5


def pairs(elements: int, length: float) -> np.ndarray:
    """Both ends of elements along an axis."""
    planes = np.linspace(0, length, elements + 1)
    return np.column_stack([planes[:-1], planes[1:]])


HALVES = [pairs(2, 1.0)] * 3


def test_layers_begin_where_elements_begin():
    mesh = box((6, 2, 2), upper=(3.0, 1.0, 1.0))
    placed = Layer({"x-": 0.9, "x+": 0.6}, grading=2).placed([pairs(6, 3.0), HALVES[1], HALVES[2]])
    assert placed.begins[:2] == pytest.approx([1.0, 2.5])
    assert placed.depths[:2] == pytest.approx([1.0, 0.5])
    rates = placed.rates(np.array([[1.5, 0, 0], [0.5, 0, 0], [0, 0, 0], [3.0, 0, 0]]))
    most = -3 * np.log(1e-6) / 2
    assert rates[:, 0] == pytest.approx([0, most / 4, most, 2 * most])
    assert placed.reached(mesh).sum(axis=0).tolist() == [12, 0, 0]


@pytest.mark.parametrize(
    ("make", "fields"),
    [
        (lambda: Layer({}), {"problem": "has no side", "allowed": "x-, "}),
        (
            lambda: Layer({"x-": 0.1}).placed(HALVES),
            {
                "location": "at x-$",
                "problem": " 0.1$",
                "allowed": "one element, that is 0.5$",
            },
        ),
        (
            lambda: Layer({"y+": 1.2}).placed(HALVES),
            {
                "location": r"at y\+$",
                "problem": "thickness of 1.2 is more than the extent of the mesh",
                "allowed": "at most 1$",
            },
        ),
        (
            lambda: Layer({"x-": 0.8, "x+": 0.8}).placed(HALVES),
            {"location": r"x- and x\+$", "problem": "overlap"},
        ),
    ],
)
def test_layers_that_cannot_be_are_told(make, fields):
    with refused(**fields):
        make()


def test_a_layer_goes_on_from_a_checkpoint():
    layer = Layer({"x+": 0.5, "y+": 0.5, "z+": 0.5})

    def started():
        return opened(box((2, 2, 2)), 2, CORE, layer=layer, boundaries=SYMMETRY)

    stepping, additions, _ = started()
    stepping.set_fields(np.random.default_rng(4).standard_normal(stepping.values().shape))
    stepping.set_step(1e-3)
    stepping.advance(4)
    state, fields = {name: additions.state(name) for name in additions.widths}, stepping.values()
    assert set(state) == {"layer_x", "layer_y", "layer_z", "layer_corner"}
    stepping.advance(4)
    again, other, _ = started()
    other.restore(state)
    again.set_fields(fields)
    again.set_step(1e-3)
    again.advance(4)
    assert np.array_equal(again.values(), stepping.values())
