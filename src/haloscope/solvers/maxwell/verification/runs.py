"""Runs of the Maxwell solver compared with exact solutions: errors by order, resonances of a sphere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from haloscope.device.interface import Device
from haloscope.mesh.hexes.hex_generators import box, cylinder, sphere
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements.element_maps import nodes, thickness, volume_weights
from haloscope.numerics.runge_kutta import LSERK4
from haloscope.numerics.spectrum import resonances
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.stepping import Stepping
from haloscope.solvers.maxwell.terms.additions import PointwiseAdditions, place
from haloscope.solvers.maxwell.terms.layers import Layer
from haloscope.solvers.maxwell.terms.media import Drude, Lorentz, Medium
from haloscope.solvers.maxwell.terms.sources import PlaneWave
from haloscope.solvers.maxwell.terms.waveforms import RampedSine
from haloscope.solvers.maxwell.verification import exact
from haloscope.solvers.maxwell.verification.exact import (
    TAU,
    Floats,
    Response,
    Solution,
    TimeHarmonic,
    slab_wave,
)

# Each run states its mesh, order and time step. The step is a share of the bound
# ``4.657 h / (2 N (N + 1))``: h the least thickness of an element in any direction, 4.657 the reach
# of the time stepping on the real axis, and -2 N (N + 1) / h the largest eigenvalue on a cube.

SHARE = 0.2
"""Of the bound, where nothing else is said."""

_WALLS = dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec")
# As many elements as the reference code's meshes: 128, 27 and 50.
PERIODIC_ELEMENTS = (4, 4, 8)
CONDUCTING_ELEMENTS = (3, 3, 3)
GUIDE_RADIUS, GUIDE_LAYERS = 8.0, 10
_INTERFACE_ELEMENTS, _BEFORE, _BEHIND = 20, -3.0, 2.0
_SLAB_ELEMENTS, _SLAB_START, _SLAB_END = 12, -1.0, 2.0


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


def periodic_box(
    order: int,
    device: Device,
    *,
    elements: exact.Triple = PERIODIC_ELEMENTS,
    share: float = SHARE,
    until: float = 1.0,
) -> Errors:
    """Standing wave in the periodic box [0, 2 pi]^3."""
    mesh = box(elements, upper=(TAU, TAU, TAU), periodic=(True, True, True))
    return Run(mesh, order, device).errors(exact.periodic_box(), until, share)


def conducting_box(
    order: int,
    device: Device,
    *,
    elements: exact.Triple = CONDUCTING_ELEMENTS,
    share: float = SHARE,
    until: float = 1.0,
) -> Errors:
    """Standing wave in the unit cube with perfectly conducting walls."""
    run = Run(box(elements), order, device, boundaries=_WALLS)
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


def waveguide(
    order: int,
    device: Device,
    *,
    layers: int = GUIDE_LAYERS,
    share: float = SHARE,
    until: float = 1.0,
) -> Errors:
    """TM01 in a round guide: radius 8, period 16 pi, a core of one element and one ring of four.

    The reference code's test has this size, ten layers along the axis and so 50 elements.
    """
    radius, length = GUIDE_RADIUS, TAU * GUIDE_RADIUS
    mesh = guide_mesh(layers=layers, length=length, radius=radius)
    run = Run(mesh, order, device, boundaries={"wall": "pec"})
    return run.errors(exact.waveguide("tm", 0, 1, radius=radius, length=length), until, share)


def _interface_run(
    order: int, device: Device, permittivity: float
) -> tuple[Run, Solution, tuple[Material, Material]]:
    width = (_BEHIND - _BEFORE) / _INTERFACE_ELEMENTS
    mesh = box(
        (_INTERFACE_ELEMENTS, 1, 1),
        (_BEFORE, 0.0, 0.0),
        (_BEHIND, width, width),
        periodic=(False, True, True),
    )
    regions = (mesh.centres[:, 0] > 0).astype(np.int32)
    mesh = replace(mesh, regions=regions, region_names=("before", "behind"))
    media = Material(), Material(permittivity=permittivity)
    ends = dict.fromkeys(("x-", "x+"), "absorbing")
    run = Run(mesh, order, device, boundaries=ends, materials=media)
    return run, exact.pulse_at_interface(_pulse, *media), media


def _pulse(x: Floats) -> Floats:
    return np.asarray(np.exp(-(((x + 1.5) / 0.3) ** 2)))


def dielectric(
    order: int, device: Device, *, permittivity: float = 4.0, share: float = 0.5
) -> tuple[Errors, float, float]:
    """Pulse that meets a denser half space at x = 0: errors, and the measured r and t."""
    # 20 elements over -3 < x < 2, run until t = 3, when both parts have left the interface: the
    # mean of E on each side over that of the incident pulse then is r, and t times the ratio of the
    # speeds.
    run, solution, (first, second) = _interface_run(order, device, permittivity)
    errors = run.errors(solution, 3.0, share)
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


def dispersive_slab(
    medium: Medium,
    order: int,
    device: Device,
    *,
    frequency: float = 5.0,
    periods: int = 1,
    share: float = 0.5,
) -> Errors:
    """Slab of a medium with memory in vacuum, 0 < x < 1, lit by a steady wave of one frequency.

    Fields and currents start as Fresnel's coefficients say and have to stay so: the wave comes in
    at x = -1 and both ends absorb. 12 elements over -1 < x < 2.
    """
    width = (_SLAB_END - _SLAB_START) / _SLAB_ELEMENTS
    mesh = box(
        (_SLAB_ELEMENTS, 1, 1),
        (_SLAB_START, 0.0, 0.0),
        (_SLAB_END, width, width),
        periodic=(False, True, True),
    )
    inside = (mesh.centres[:, 0] > 0) & (mesh.centres[:, 0] < 1)
    mesh = replace(mesh, regions=inside.astype(np.int32), region_names=("vacuum", "slab"))
    # The waveform has risen long before; its time is shifted by whole periods.
    period = TAU / frequency
    incoming = PlaneWave(
        direction=(1.0, 0.0, 0.0),
        polarisation=(0.0, 1.0, 0.0),
        waveform=RampedSine(1 / period, period, TAU / 4),
        boundaries=("x-",),
        start=(0.0, 0.0, 0.0),
    )
    ends = dict.fromkeys(("x-", "x+"), "absorbing")
    run = Run(
        mesh, order, device, boundaries=ends, materials=(Material(), medium), waves=(incoming,)
    )
    seen = Response(complex(medium.permittivity_at(frequency)), medium.permeability)
    wave = slab_wave(frequency, 1.0, seen)
    run.rest_in(medium, wave, 2 * period)
    return run.errors(wave, periods * period, share)


MODES = (("tm", 1, 1), ("tm", 2, 1), ("te", 1, 1))
"""Kind, degree and radial number; all have Ex, save on planes."""
_SAMPLES_A_PERIOD = 16
_PROBE = (0.31, 0.23, 0.42)
_STEPS_A_SAMPLE = 8
# Share by which the band of the probe reaches beyond the modes.
_BEYOND = 0.3


def _opened(
    order: int, device: Device, modes: Sequence[tuple[str, int, int]], core: int, rings: int
) -> tuple[Run, dict[str, TimeHarmonic]]:
    run = Run(sphere(1.0, core=core, rings=rings), order, device, boundaries={"wall": "pec"})
    return run, {f"{kind}{m}{n}": exact.sphere(kind, m, n) for kind, m, n in modes}


def _together(run: Run, waves: Mapping[str, TimeHarmonic]) -> Floats:
    return np.asarray(sum(run.at(wave, 0.0) for wave in waves.values()))


def frequencies_by_projection(
    order: int,
    device: Device,
    *,
    modes: Sequence[tuple[str, int, int]] = MODES,
    core: int = 1,
    rings: int = 1,
    share: float = 0.8,
    until: float = 6.0,
) -> dict[str, tuple[float, float]]:
    """Frequencies of resonances of the unit sphere with a conducting wall, beside the exact ones."""
    # All modes start at once. At equal times the fields are projected on each mode's own E and H:
    # these are cos w t and sin w t, and the slope of their phase is the frequency. Modes are
    # orthogonal, and damping changes no phase.
    run, waves = _opened(order, device, modes, core, rings)
    shapes = {name: _shapes(run, wave) for name, wave in waves.items()}
    steps = run.start(_together(run, waves), until, share)
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
    order: int,
    device: Device,
    *,
    modes: Sequence[tuple[str, int, int]] = MODES,
    core: int = 1,
    rings: int = 1,
    share: float = 0.8,
    until: float = 24.0,
) -> dict[str, tuple[float, float]]:
    """The same from Ex at one node over time, by harmonic inversion and without the modes' shapes."""
    run, waves = _opened(order, device, modes, core, rings)
    steps = run.start(_together(run, waves), until, share)
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
