"""Verification of the cavity: published Nusselt numbers, velocities, profiles, observed order."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from haloscope.solvers.cavity import diagnostics
from haloscope.solvers.verification import Check, Comparison, Solve, lid_driven_cube, relative

_WITHIN = 0.01
_DE_VAHL_DAVIS = "G. de Vahl Davis, Int. J. Numer. Meth. Fluids 3 (1983) 249-264"
_TRIC = "E. Tric, G. Labrosse, M. Betrouni, Int. J. Heat Mass Transfer 43 (2000) 4043-4056"
_ALBENSOEDER = "S. Albensoeder, H. C. Kuhlmann, J. Comput. Phys. 206 (2005) 536-558"
_OUERTATANI = "N. Ouertatani et al., C. R. Mecanique 336 (2008) 464-470"
_ONSET = "linear stability of a 2-D box of width 8 with rigid, adiabatic ends: critical Ra 1739"

# Mean Nusselt number, largest u on the vertical and v on the horizontal mid-line, in alpha / L.
SQUARE = {
    1e3: (1.118, 3.649, 3.697),
    1e4: (2.243, 16.178, 19.617),
    1e5: (4.519, 34.73, 68.59),
    1e6: (8.800, 64.63, 219.36),
}
_OF_SQUARE = ("Nusselt number", "largest u at mid-width", "largest v at mid-height")
# Nusselt number of the hot wall and of its middle line, largest velocities along the heated
# direction, the span and the vertical (here u, w and v), in alpha / L.
CUBE = {
    1e3: (1.0700, 1.0873, 3.5436, 0.1733, 3.5447),
    1e4: (2.0542, 2.2505, 16.720, 2.1566, 18.984),
    1e5: (4.3370, 4.6127, 43.904, 9.6973, 71.068),
}
_OF_CUBE = (
    *("Nusselt number of the hot wall", "Nusselt number of its middle line"),
    *("largest u", "largest w (span)", "largest v (vertical)"),
)


def _case(dimensions: int, rayleigh: float, nodes: int, tolerance: float) -> dict[str, Any]:
    table = {"dimensions": dimensions, "nodes": nodes, "rayleigh": rayleigh}
    return {"solver": "cavity", "cavity": table, "run": {"tolerance": tolerance}}


def _extrapolate(coarse: np.ndarray, fine: np.ndarray, ratio: float) -> np.ndarray:
    """Richardson's extrapolation for a second-order method; `ratio` of the node distances."""
    return np.asarray(fine + (fine - coarse) / (ratio**2 - 1))


def _square(simulation: Any) -> np.ndarray:
    solver = simulation.solver
    flow = solver.flow
    planes = solver.midplane_fields()
    assert planes is not None
    unit = flow.alpha / flow.size[0]
    u, _ = diagnostics.line_peak(diagnostics.middle(planes["u"], 1), flow.spacing[1])
    v, _ = diagnostics.line_peak(diagnostics.middle(planes["v"], 0), flow.spacing[0])
    return np.array([simulation.diagnostics()["nusselt_wall"], u / unit, v / unit])


def _cube(simulation: Any) -> np.ndarray:
    numbers = simulation.diagnostics()
    names = ("nusselt_wall", "nusselt_midline", "u_max", "w_max", "v_max")
    return np.array([numbers[name] for name in names])


def _published_check(
    dimensions: int, rayleigh: float, grids: tuple[int, ...], tolerance: float, solve: Solve
) -> dict[str, Comparison]:
    """Results on the grid, or extrapolated from two, beside published ones."""
    is_plane = dimensions == 2
    measure, published = (_square, SQUARE) if is_plane else (_cube, CUBE)
    results = [measure(solve(_case(dimensions, rayleigh, n, tolerance))) for n in grids]
    values = results[0]
    if len(results) > 1:
        values = _extrapolate(results[0], results[1], (grids[1] - 1) / (grids[0] - 1))
    names = _OF_SQUARE if is_plane else _OF_CUBE
    pairs = zip(names, values, published[rayleigh], strict=True)
    return {name: relative(float(value), number, _WITHIN) for name, value, number in pairs}


square_check, cube_check = (partial(_published_check, dimensions) for dimensions in (2, 3))


def lid_case(nodes: int, reynolds: float, tolerance: float) -> dict[str, Any]:
    """Lid-driven cube: the wall y = L moves along x, all is of one temperature."""
    speed, size = 1.0, 1.0
    return {
        "solver": "cavity",
        "cavity": {
            "nodes": nodes,
            "size": size,
            "temperature_difference": 0.0,
            "kinematic_viscosity": speed * size / reynolds,
            "density": 1.0,
            "kappa": 0.5,
            "walls": {
                "x_low": {"temperature": "adiabatic"},
                "x_high": {"temperature": "adiabatic"},
                "y_high": {"velocity": [speed, 0.0, 0.0]},
            },
        },
        "run": {"tolerance": tolerance},
    }


def _lid_profiles(solver: Any, points: list[tuple[str, float]]) -> np.ndarray:
    """Velocities at points of the centre lines: u over y, v over x."""
    planes = solver.midplane_fields()
    assert planes is not None
    y = np.arange(solver.flow.nodes[1]) * solver.flow.spacing[1]
    x = np.arange(solver.flow.nodes[0]) * solver.flow.spacing[0]
    lines = {
        "u": (y, diagnostics.middle(planes["u"], 1)),
        "v": (x, diagnostics.middle(planes["v"], 0)),
    }
    return np.array([np.interp(position, *lines[name]) for name, position in points])


def lid_check(grids: tuple[int, int], tolerance: float, solve: Solve) -> dict[str, Comparison]:
    """Centre lines of the lid-driven cube at Re = 1000, within 2 % of the lid's speed.

    Extrapolated from two grids: on 97 nodes alone the boundary layers miss by 4.5 %.
    """
    rows = lid_driven_cube()
    points = [(name, position) for name, position, _ in rows]
    coarse, fine = (
        _lid_profiles(solve(lid_case(n, 1000.0, tolerance)).solver, points) for n in grids
    )
    values = _extrapolate(coarse, fine, (grids[1] - 1) / (grids[0] - 1))
    return {
        f"{name} at {'y' if name == 'u' else 'x'} = {position:g}": Comparison(
            float(value), published, 0.02
        )
        for value, (name, position, published) in zip(values, rows, strict=True)
    }


def order_check(
    grids: tuple[int, int, int], tolerance: float, solve: Solve
) -> dict[str, Comparison]:
    """Observed order of accuracy from three grids, each of half the node distance."""
    values = [_square(solve(_case(2, 1e3, n, tolerance))) for n in grids]
    names = ("order of the Nusselt number", "order of the largest u", "order of the largest v")
    return {
        name: Comparison(math.log2(abs((a - b) / (b - c))) if b != c else math.nan, 2.0, 0.2)
        for name, a, b, c in zip(names, *values, strict=True)
    }


_FROM_BELOW: dict[str, Any] = {
    "x_low": {"temperature": "adiabatic"},
    "x_high": {"temperature": "adiabatic"},
    "y_low": {"temperature": "hot"},
    "y_high": {"temperature": "cold"},
}


def below_case(nodes: int) -> dict[str, Any]:
    """Square heated from below at Ra = 1e4; a weak roll at the start chooses its sense."""
    case = _case(2, 1e4, nodes, 1e-6)
    case["cavity"] |= {
        "walls": _FROM_BELOW,
        "initial": {"T": "300 + 0.02*cos(pi*x/0.05)*sin(pi*y/0.05)"},
    }
    case["run"]["diagnostics_interval"] = 500
    return case


def below_check(grids: tuple[int, int], solve: Solve) -> dict[str, Comparison]:
    """Nusselt numbers of the square heated from below, extrapolated from two grids."""
    coarse, fine = (solve(below_case(nodes)).diagnostics() for nodes in grids)
    ratio = (grids[1] - 1) / (grids[0] - 1)
    return {
        f"Nusselt number of the {name} wall": relative(
            float(_extrapolate(np.array(coarse[key]), np.array(fine[key]), ratio)),
            diagnostics.PUBLISHED_BELOW[1e4],
            _WITHIN,
        )
        for name, key in (("hot", "nusselt_y_low"), ("cold", "nusselt_y_high"))
    }


def onset_case(rayleigh: float, rows: int) -> dict[str, Any]:
    """Box 8 times as wide as high: the conduction profile, and 1 % of eight rolls."""
    height = 0.05
    case = _case(2, rayleigh, rows, 0.0)
    case["cavity"] |= {
        "nodes": [8 * (rows - 1) + 1, rows],
        "size": [8 * height, height],
        "walls": _FROM_BELOW,
    }
    nu, alpha, gravity, expansion = 1.589e-5, 1.589e-5 / 0.71, 9.81, 1.0 / 300.0
    difference = rayleigh * nu * alpha / (gravity * expansion * height**3)
    roll = f"0.01*sin(pi*y/{height})*cos(8*pi*x/{8 * height})"
    case["cavity"]["initial"] = {"T": f"300 + {difference!r}*(0.5 - y/{height} + {roll})"}
    case["run"]["steps"] = 2000
    return case


def onset_check(rows: int, solve: Solve) -> dict[str, Comparison]:
    """Rolls decay below the critical Rayleigh number and grow above it.

    The critical number is where the growth rate, linear in Ra nearby, passes through zero.
    """
    growth = {}
    for rayleigh in (1.6e3, 1.8e3):
        simulation = solve(onset_case(rayleigh, rows))
        before = simulation.diagnostics()["v_max"]
        simulation.run(4000, ceilings=False)
        growth[rayleigh] = math.log(simulation.diagnostics()["v_max"] / before)
    (low, decay), (high, rise) = growth.items()
    critical = low - decay * (high - low) / (rise - decay)
    return {
        "rolls decay at Ra = 1600": Comparison(float(decay < 0), 1.0, 0.0),
        "rolls grow at Ra = 1800": Comparison(float(rise > 0), 1.0, 0.0),
        "critical Rayleigh number": relative(critical, 1739.0, 0.02),
    }


CHECKS = (
    *(
        Check(
            f"cavity-2d-ra1e{decade}",
            f"square cavity, Ra = 1e{decade}",
            _DE_VAHL_DAVIS,
            partial(square_check, 10.0**decade, grids, tolerance),
            slow=decade == 6,
        )
        for decade, grids, tolerance in (
            (3, (33, 49), 1e-6),
            (4, (49, 65), 1e-6),
            (5, (97, 129), 1e-6),
            (6, (193, 257), 1e-5),
        )
    ),
    *(
        Check(
            f"cavity-3d-ra1e{decade}",
            f"cube with adiabatic side walls, Ra = 1e{decade}",
            _TRIC,
            partial(cube_check, 10.0**decade, grids, 1e-5),
            slow=decade == 5,
        )
        for decade, grids in ((3, (25, 33)), (4, (33, 49)), (5, (65, 97)))
    ),
    Check(
        "cavity-lid-re1000",
        "lid-driven cube, Re = 1000: velocities on the centre lines",
        _ALBENSOEDER,
        partial(lid_check, (65, 97), 1e-4),
        slow=True,
    ),
    Check(
        "cavity-below",
        "square heated from below, Ra = 1e4",
        _OUERTATANI,
        partial(below_check, (33, 49)),
    ),
    Check(
        "cavity-onset",
        "onset of convection in a box 8 times as wide as high",
        _ONSET,
        partial(onset_check, 25),
    ),
    Check(
        "cavity-order",
        "second order in space: three grids, square cavity, Ra = 1e3",
        "observed order of this program",
        partial(order_check, (33, 65, 129), 1e-8),
    ),
)
