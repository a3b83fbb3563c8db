"""Runs of the Maxwell solver compared with exact solutions: errors by order, resonances and scattering of a sphere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from haloscope.device.interface import Device
from haloscope.mesh.hexes.hex_generators import SIDE_NAMES, box, cylinder, sphere
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements.element_maps import nodes, thickness, volume_weights
from haloscope.numerics.spectrum import resonances
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell import exact
from haloscope.solvers.maxwell.case import LIGHT
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.exact import TAU, Floats, Response, Solution, TimeHarmonic, slab_wave
from haloscope.solvers.maxwell.resolution import geometric_bounds
from haloscope.solvers.maxwell.stepping import Stepping
from haloscope.solvers.maxwell.terms.additions import PointwiseAdditions, place
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Drude, Lorentz, Medium
from haloscope.solvers.maxwell.terms.sources import PlaneWave
from haloscope.solvers.maxwell.terms.waveforms import RampedSine
from haloscope.solvers.verification import Solve

# Each run states its mesh, order and time step. The step is a share of the bound
# ``4.657 h / (2 N (N + 1))``: h the least thickness of an element in any direction, 4.657 the reach
# of the time stepping on the real axis, and -2 N (N + 1) / h the largest eigenvalue on a cube.

SHARE = 0.2
"""Of the bound, where nothing else is said."""

_WALLS = dict.fromkeys(SIDE_NAMES, "pec")
# As many elements as the reference code's meshes: 128, 27 and 50.
PERIODIC_ELEMENTS = (4, 4, 8)
CONDUCTING_ELEMENTS = (3, 3, 3)
GUIDE_RADIUS, GUIDE_LAYERS = 8.0, 10
_ENDS = dict.fromkeys(("x-", "x+"), "absorbing")


@dataclass(frozen=True)
class Errors:
    """Errors of a run against an exact solution."""

    # Of the mesh, and N.
    elements: int
    order: int
    # How many time steps, and their length.
    steps: int
    step: float
    largest: float  # Largest error of any component at any node
    mean: float  # Root of the mean square over the volume, of the component where it is largest


class Run:
    """Fields on a mesh that can be set to a solution, advanced and compared."""

    def __init__(
        self,
        mesh: HexMesh,
        order: int,
        device: Device,
        *,
        boundaries: Mapping[str, str | float] | None = None,
        materials: Sequence[Material] = (Material(),),
        waves: Sequence[PlaneWave] = (),
        layer: Layer | None = None,
    ) -> None:
        placed = place(mesh, order, media=materials, layer=layer, waves=waves)
        part = take(mesh, np.arange(mesh.count), placed.concerned.astype(int))
        coordinates = nodes(part.mesh, order)
        self.stepping = Stepping(
            part, coordinates, order, device, boundaries=boundaries, materials=materials
        )
        self.points = np.moveaxis(coordinates.reshape(mesh.count, -1, 3), 2, 0)
        h = float(thickness(coordinates).min())
        rate = 2 * order * (order + 1) / h
        if placed.concerned.any():
            self.additions = PointwiseAdditions(placed, part, coordinates, (1,), device)
            self.stepping.additions = self.additions
            rate += self.additions.fastest
        self.bound = LSERK4.real_limit / rate
        weights = volume_weights(order).ravel() * self.stepping.jacobian
        self.weights = weights / weights.sum()

    def at(self, solution: Solution, time: float) -> Floats:
        """A solution at the nodes, (elements, 6, nodes)."""
        return np.moveaxis(solution(self.points, time), 0, 1)

    def rest_in(self, medium: Medium, wave: TimeHarmonic, time: float) -> None:
        """Give the medium the currents and polarisations of a steady wave, and sources a time."""
        electric, w = np.moveaxis(wave.phasor(self.points), 0, 1)[:, :3], wave.frequency
        states = []
        for pole in (*medium.singles, *medium.pairs):
            polarisation = pole.susceptibility(np.array(w)) * electric
            if isinstance(pole, Drude | Lorentz):
                states.append(-1j * w * polarisation)
            if not isinstance(pole, Drude):
                states.append(polarisation)
        name = f"medium_{3 * medium.states}"
        self.additions.restore({name: np.concatenate(states, axis=1).real})
        self.additions.set_time(time)

    def start(self, fields: Floats, until: float, share: float) -> int:
        """Set the fields and the step; how many steps there are."""
        steps = math.ceil(until / (share * self.bound))
        self.stepping.set_fields(fields)
        self.stepping.set_step(until / steps)
        return steps

    def errors(self, solution: Solution, until: float, share: float = SHARE) -> Errors:
        """Run from time 0 to another and compare."""
        steps = self.start(self.at(solution, 0.0), until, share)
        self.stepping.advance(steps)
        missed = self.stepping.values() - self.at(solution, until)
        squares = (missed**2 * self.weights[:, None]).sum(axis=(0, 2))
        return Errors(
            self.stepping.elements,
            self.stepping.order,
            steps,
            until / steps,
            float(np.abs(missed).max()),
            float(np.sqrt(squares.max())),
        )


def periodic_box(order: int, device: Device) -> Errors:
    """Standing wave in the periodic box [0, 2 pi]^3."""
    mesh = box(PERIODIC_ELEMENTS, upper=(TAU, TAU, TAU), periodic=(True, True, True))
    return Run(mesh, order, device).errors(exact.periodic_box(), 1.0)


def conducting_box(
    order: int, device: Device, *, share: float = SHARE, until: float = 1.0
) -> Errors:
    """Standing wave in the unit cube with perfectly conducting walls."""
    run = Run(box(CONDUCTING_ELEMENTS), order, device, boundaries=_WALLS)
    return run.errors(exact.conducting_box(), until, share)


def reflected_pulse(order: int, device: Device, *, layers: bool = True) -> float:
    """Reflection of a pulse at the ends of a column, over its height.

    Six elements of width 0.5, periodic to the sides; the outermost are absorbing layers before
    perfectly conducting walls.
    """
    mesh = box((6, 1, 1), (-1.5, 0.0, 0.0), (1.5, 0.5, 0.5), periodic=(False, True, True))
    layer = Layer({"x-": 0.5, "x+": 0.5}) if layers else None
    walls = {"x-": "pec", "x+": "pec"}
    run = Run(mesh, order, device, boundaries=walls, layer=layer)
    x = run.points[0]
    start = np.zeros((mesh.count, 6, x.shape[1]))
    start[:, 1] = start[:, 5] = np.exp(-((x / 0.22) ** 2))
    run.stepping.advance(run.start(start, 3.0, 0.8))
    return float(np.abs(run.stepping.values()[:, 1][np.abs(x) < 1.0]).max())


def guide_mesh(*, layers: int, length: float, radius: float) -> HexMesh:
    """Round guide, periodic along z: a core of one element and four around it in each layer."""
    return cylinder(radius, 0.0, length, core=1, rings=1, layers=layers, periodic=True)


def waveguide(order: int, device: Device) -> Errors:
    """TM01 in a round guide: radius 8, period 16 pi, a core of one element and one ring of four.

    The reference code's test has this size, ten layers along the axis and so 50 elements.
    """
    radius, length = GUIDE_RADIUS, TAU * GUIDE_RADIUS
    mesh = guide_mesh(layers=GUIDE_LAYERS, length=length, radius=radius)
    run = Run(mesh, order, device, boundaries={"wall": "pec"})
    return run.errors(exact.waveguide("tm", 0, 1, radius=radius, length=length), 1.0)


def _column(elements: int, start: float, end: float, thickness: float) -> HexMesh:
    """Elements along x, periodic to the sides, of two regions: the second in 0 < x < thickness."""
    width = (end - start) / elements
    mesh = box(
        (elements, 1, 1), (start, 0.0, 0.0), (end, width, width), periodic=(False, True, True)
    )
    x = mesh.centres[:, 0]
    regions = ((x > 0) & (x < thickness)).astype(np.int32)
    return replace(mesh, regions=regions, region_names=("first", "second"))


def _pulse(x: Floats) -> Floats:
    return np.asarray(np.exp(-(((x + 1.5) / 0.3) ** 2)))


def dielectric(order: int, device: Device) -> tuple[Errors, float, float]:
    """Pulse that meets a denser half space at x = 0: errors, and the measured r and t."""
    # 20 elements over -3 < x < 2, run until t = 3, when both parts have left the interface: the
    # mean of E on each side over that of the incident pulse then is r, and t times the ratio of the
    # speeds.
    first, second = media = Material(), Material(permittivity=4.0)
    mesh = _column(20, -3.0, 2.0, math.inf)
    run = Run(mesh, order, device, boundaries=_ENDS, materials=media)
    solution = exact.pulse_at_interface(_pulse, *media)
    errors = run.errors(solution, 3.0, 0.5)
    electric = (run.stepping.values()[:, 1] * run.weights).sum(axis=1)
    incident = (run.at(solution, 0.0)[:, 1] * run.weights).sum()
    behind = run.points[0].mean(axis=1) > 0
    slower = np.sqrt(first.permittivity / second.permittivity)
    r, t = electric[~behind].sum() / incident, electric[behind].sum() / incident / slower
    return errors, float(r), float(t)


def decades_an_order(errors: Mapping[int, float]) -> float:
    """Slope of the logarithm of errors over the order: decades by which one order lowers them."""
    orders = np.array(sorted(errors), np.float64)
    logarithms = np.log10([errors[order] for order in sorted(errors)])
    return float(-np.polyfit(orders, logarithms, 1)[0])


def dispersive_slab(medium: Medium, order: int, device: Device) -> Errors:
    """Slab of a medium with memory in vacuum, 0 < x < 1, lit by a steady wave of frequency 5.

    Fields and currents start as Fresnel's coefficients say and have to stay so: the wave comes in
    at x = -1 and both ends absorb. 12 elements over -1 < x < 2.
    """
    mesh = _column(12, -1.0, 2.0, 1.0)
    # The waveform has risen long before; its time is shifted by whole periods.
    frequency = 5.0
    period = TAU / frequency
    incoming = PlaneWave(
        direction=(1.0, 0.0, 0.0),
        polarisation=(0.0, 1.0, 0.0),
        waveform=RampedSine(1 / period, period, TAU / 4),
        boundaries=("x-",),
        start=(0.0, 0.0, 0.0),
    )
    run = Run(
        mesh, order, device, boundaries=_ENDS, materials=(Material(), medium), waves=(incoming,)
    )
    seen = Response(complex(medium.permittivity_at(frequency)), medium.permeability)
    wave = slab_wave(frequency, 1.0, seen)
    run.rest_in(medium, wave, 2 * period)
    return run.errors(wave, period, 0.5)


MODES = (("tm", 1, 1), ("tm", 2, 1), ("te", 1, 1))
"""Kind, degree and radial number; all have Ex, save on planes."""
_SAMPLES_A_PERIOD = 16
_PROBE = (0.31, 0.23, 0.42)
_STEPS_A_SAMPLE = 8
# Share by which the band of the probe reaches beyond the modes.
_BEYOND = 0.3


def _ringing(order: int, device: Device, until: float) -> tuple[Run, dict[str, TimeHarmonic], int]:
    """All modes at once in the unit sphere, and the number of steps to a time."""
    run = Run(sphere(1.0, core=1, rings=1), order, device, boundaries={"wall": "pec"})
    waves = {f"{kind}{m}{n}": exact.sphere(kind, m, n) for kind, m, n in MODES}
    start = np.asarray(sum(run.at(wave, 0.0) for wave in waves.values()))
    return run, waves, run.start(start, until, 0.8)


def frequencies_by_projection(
    order: int, device: Device, *, until: float = 6.0
) -> dict[str, tuple[float, float]]:
    """Frequencies of resonances of the unit sphere with a conducting wall, beside the exact ones."""
    # All modes start at once. At equal times the fields are projected on each mode's own E and H:
    # these are cos w t and sin w t, and the slope of their phase is the frequency. Modes are
    # orthogonal, and damping changes no phase.
    run, waves, steps = _ringing(order, device, until)
    shapes = {name: _shapes(run, wave) for name, wave in waves.items()}
    fastest = max(wave.frequency for wave in waves.values())
    samples = min(steps, math.ceil(until * fastest / TAU * _SAMPLES_A_PERIOD))
    taken = np.linspace(0, steps, samples + 1).round().astype(int)
    phases: dict[str, list[float]] = {name: [0.0] for name in waves}
    for before, after in itertools.pairwise(taken.tolist()):
        run.stepping.advance(after - before)
        fields = run.stepping.values()
        for name, shape in shapes.items():
            electric, magnetic = (fields * shape).sum(axis=(0, 2)).reshape(2, 3).sum(axis=1)
            phases[name].append(math.atan2(magnetic, electric))
    times = taken * (until / steps)
    return {
        name: (float(np.polyfit(times, np.unwrap(phases[name]), 1)[0]), wave.frequency)
        for name, wave in waves.items()
    }


def _shapes(run: Run, wave: TimeHarmonic) -> Floats:
    """Weights of the fields in the sum: 1 where E or H is that of the mode."""
    phasor = np.moveaxis(wave.phasor(run.points), 0, 1)
    shape = np.concatenate([phasor[:, :3].real, phasor[:, 3:].imag], axis=1)
    weighted = shape * run.weights[:, None]
    size = (weighted * shape).sum(axis=(0, 2)).reshape(2, 3).sum(axis=1)
    return np.asarray(weighted / np.repeat(size, 3)[:, None])


def frequencies_by_probe(
    order: int, device: Device, *, until: float = 24.0
) -> dict[str, tuple[float, float]]:
    """The same from Ex at one node over time, by harmonic inversion and without the modes' shapes."""
    run, waves, steps = _ringing(order, device, until)
    away = np.linalg.norm(run.points - np.reshape(_PROBE, (3, 1, 1)), axis=0)
    element, node = np.unravel_index(away.argmin(), away.shape)
    series = [run.stepping.values()[element, 0, node]]
    for _ in range(steps // _STEPS_A_SAMPLE):
        run.stepping.advance(_STEPS_A_SAMPLE)
        series.append(run.stepping.values()[element, 0, node])
    exactly = {name: wave.frequency for name, wave in waves.items()}
    band = (
        min(exactly.values()) * (1 - _BEYOND) / TAU,
        max(exactly.values()) * (1 + _BEYOND) / TAU,
    )
    peaks = resonances(np.array(series), _STEPS_A_SAMPLE * until / steps, band)
    measured = np.array([TAU * peak.frequency for peak in peaks] or [math.nan])
    return {
        name: (float(measured[np.abs(measured - true).argmin()]), true)
        for name, true in exactly.items()
    }


_RADIUS = 0.1  # m
_HALF_WIDTH = 0.16  # m, of the box that holds the total field
_MARGIN = 0.14  # m: an element without absorption, and one that absorbs
_END = 24e-9  # s: the sphere rings for long
_PULSE = {"kind": "modulated-gaussian", "centre": 2.2e-9, "width": 0.5e-9, "frequency": 0.9e9}
_POLAR = 181
_PERMITTIVITY = 4.0
_FREQUENCIES = (0.6e9, 0.8e9)  # Hz, where the pulse has content


def sphere_case(order: int = 5) -> dict[str, Any]:
    """Data of a case: the sphere of radius 0.1 m in vacuum, with a pulse along z from below.

    The sphere and a box around it hold the total field; then follow a shell of elements for the
    scattered field, in which the far field's surface lies, and an absorbing layer.
    """
    return {
        "solver": "maxwell",
        "title": "A dielectric sphere in a plane wave",
        "maxwell": {
            "order": order,
            "end_time": _END,
            "sphere": {
                "radius": _RADIUS,
                "core": 2,
                "rings": 1,
                "box_half_width": _HALF_WIDTH,
                "outer_rings": 1,
                "margin": _MARGIN,
                "margin_layers": 2,
            },
            "boundaries": dict.fromkeys(SIDE_NAMES, "absorbing"),
            "materials": [{"region": "inner", "permittivity": _PERMITTIVITY}],
            "layer": {"thickness": dict.fromkeys(SIDE_NAMES, _MARGIN / 2)},
            "waves": [
                {
                    "direction": [0.0, 0.0, 1.0],
                    "polarisation": [1.0, 0.0, 0.0],
                    "waveform": _PULSE,
                    "inside": ["inner", "outer"],
                }
            ],
            "far_field": {"frequencies": list(_FREQUENCIES), "theta": _POLAR},
        },
        "run": {"diagnostics_interval": 100},
        "output": {"fields": False},
    }


def mie_scattering(solve: Solve) -> float:
    """Largest relative deviation of the bistatic cross section from Mie's series.

    In the planes of E and H, at all frequencies, over the series' value in the same direction.
    """
    radiation = solve(sphere_case()).solver.results.radiation
    theta, phi = np.linspace(0, np.pi, _POLAR)[:, None], np.array([0.0, np.pi / 2])
    values = radiation.pattern(theta, phi).cross_section(radiation.incident[1])
    worst = 0.0
    for number, frequency in enumerate(_FREQUENCIES):
        k = 2 * math.pi * frequency / LIGHT
        wanted = exact.dielectric_sphere(k * _RADIUS, _PERMITTIVITY).cross_section(k, theta, phi)
        worst = max(worst, float((np.abs(values[number] - wanted) / wanted).max()))
    return worst


_RECORDS = 30
_SEED = 3


def warped_energy(
    order: int, warp: float, until: float, chain_rule: bool, device: Device
) -> Floats:
    """Energy of random fields in a periodic box of 2^3 warped elements over that at the begin.

    `warp`: share of the length that nodes are shifted by at most; 0.06 is a lot; `until`: time to
    run to, in units of length over c.
    """
    # The box is [0, 2 pi]^3, each coordinate shifted by `warp` times its length times a product of
    # sines. With the covariant curl the semi-discrete energy cannot grow, by summation by parts;
    # with the chain rule it does on curved elements, as products of polynomials are not integrated
    # exactly.
    length = 2 * math.pi
    mesh = box((2, 2, 2), upper=(length,) * 3, periodic=(True,) * 3, warp=warp)
    coordinates = nodes(mesh, order)
    stepping = Stepping(mesh, coordinates, order, device, chain_rule=chain_rule)
    shape = (mesh.count, 6, (order + 1) ** 3)
    stepping.set_fields(np.random.default_rng(_SEED).standard_normal(shape))
    bound = float(geometric_bounds(coordinates, 1.0).min())
    steps = math.ceil(until / bound / _RECORDS)
    stepping.set_step(until / (steps * _RECORDS))
    energies = [stepping.energy()]
    for _ in range(_RECORDS):
        stepping.advance(steps)
        energies.append(stepping.energy())
    return np.array(energies) / energies[0]
