"""A dielectric sphere in a plane wave, run as a case and compared with the series of Mie."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from haloscope.errors import InputError
from haloscope.solvers.maxwell.case import LIGHT
from haloscope.solvers.maxwell.far_field import FarField
from haloscope.solvers.maxwell.mie import Sphere, dielectric_sphere
from haloscope.solvers.maxwell.radiation import Floats
from haloscope.solvers.maxwell.solver import MaxwellSolver

_SIDES = ("x-", "x+", "y-", "y+", "z-", "z+")
_RADIUS = 0.1  # m
_HALF_WIDTH = 0.16  # m, of the box that holds the total field
_MARGIN = 0.14  # m: an element without absorption, and one that absorbs
_END = 24e-9  # s: the sphere rings for long
_PULSE = {"kind": "modulated-gaussian", "centre": 2.2e-9, "width": 0.5e-9, "frequency": 0.9e9}
_POLAR = 181


def sphere_case(
    order: int = 5,
    *,
    permittivity: float = 4.0,
    frequencies: Sequence[float] = (0.6e9, 0.8e9),
    core: int = 2,
    rings: int = 1,
) -> dict[str, Any]:
    """Data of a case: the sphere of radius 0.1 m in vacuum, with a pulse along z from below.

    The sphere and a box around it hold the total field; then follow a shell of elements for the
    scattered field, in which the far field's surface lies, and an absorbing layer.
    """
    # `frequencies`: in Hz, from 0.4 to 1.4 GHz: there the pulse has content.
    return {
        "solver": "maxwell",
        "title": "A dielectric sphere in a plane wave",
        "maxwell": {
            "order": order,
            "end_time": _END,
            "sphere": {
                "radius": _RADIUS,
                "core": core,
                "rings": rings,
                "box_half_width": _HALF_WIDTH,
                "outer_rings": 1,
                "margin": _MARGIN,
                "margin_layers": 2,
            },
            "boundaries": dict.fromkeys(_SIDES, "absorbing"),
            "materials": [{"region": "inner", "permittivity": permittivity}],
            "layer": {"thickness": dict.fromkeys(_SIDES, _MARGIN / 2)},
            "waves": [
                {
                    "direction": [0.0, 0.0, 1.0],
                    "polarisation": [1.0, 0.0, 0.0],
                    "waveform": _PULSE,
                    "inside": ["inner", "outer"],
                }
            ],
            "far_field": {"frequencies": list(frequencies), "theta": _POLAR},
        },
        "run": {"diagnostics_interval": 100},
        "output": {"fields": False},
    }


@dataclass(frozen=True, eq=False)
class Deviations:
    """What a run differs from the series by, over all frequencies."""

    # Largest difference of the bistatic cross section in the planes of E and H over the series'
    # value in the same direction.
    bistatic: float
    # Largest relative difference of the total cross sections.
    scattering: float
    extinction: float


def mie_deviations(
    solve: Callable[[dict[str, Any]], Any], data: Mapping[str, Any] | None = None
) -> Deviations:
    """Run the sphere and compare it with the series."""
    case_data = dict(data or sphere_case())
    solver = solve(case_data).solver
    if not isinstance(solver, MaxwellSolver) or solver.results.radiation is None:
        raise InputError("the case of a sphere has no far field; give one from sphere_case")
    radiation, table = solver.results.radiation, case_data["maxwell"]
    incident = radiation.incident
    assert incident is not None
    theta, phi = np.linspace(0, np.pi, _POLAR)[:, None], np.array([0.0, np.pi / 2])
    far_field: FarField = radiation.pattern(theta, phi)
    values = far_field.cross_section(incident[1])
    powers = radiation.powers()
    assert powers.scattering is not None
    assert powers.extinction is not None
    permittivity = table["materials"][0]["permittivity"]
    radius = table["sphere"]["radius"]
    worst = np.zeros(3)
    for number, frequency in enumerate(table["far_field"]["frequencies"]):
        k = 2 * math.pi * frequency / LIGHT
        exact: Sphere = dielectric_sphere(k * radius, permittivity)
        wanted = exact.cross_section(k, theta, phi)
        apart = np.abs(values[number] - wanted)
        disc = math.pi * radius**2
        deviations: Floats = np.array(
            [
                (apart / wanted).max(),
                abs(powers.scattering[number] / (exact.scattering * disc) - 1),
                abs(powers.extinction[number] / (exact.extinction * disc) - 1),
            ]
        )
        worst = np.maximum(worst, deviations)
    return Deviations(*worst.tolist())


def mie_scattering(
    solve: Callable[[dict[str, Any]], Any], order: int = 5, permittivity: float = 4.0
) -> float:
    """Largest relative deviation of the bistatic cross section from the series of Mie.

    Parameters as for `mie_deviations` and `sphere_case`.
    """
    return mie_deviations(solve, sphere_case(order, permittivity=permittivity)).bistatic
