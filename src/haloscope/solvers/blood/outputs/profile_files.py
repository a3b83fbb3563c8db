"""Numbers, table and picture of a run's mean profiles."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.io.spectrum_tables import write_columns
from haloscope.solvers.blood.case import BloodTable
from haloscope.solvers.blood.case_vessels import MICRO
from haloscope.solvers.blood.outputs.profiles import MeanProfiles
from haloscope.solvers.blood.outputs.steadiness import Steadiness
from haloscope.solvers.blood.vessels.rheology import pries_viscosity
from haloscope.solvers.blood.vessels.straight_vessels import StraightVessel
from haloscope.solvers.interface import Results

TABLE, PICTURE = "profile.csv", "profile.png"
_LINE_POINTS = 101


def profile_numbers(
    found: MeanProfiles, straight: StraightVessel, table: BloodTable
) -> dict[str, Any]:
    """What the summary says of mean profiles."""
    # ``apparent_viscosity`` is over that of plasma (``blood.viscosity_mpa_s``): the mean speed that
    # plasma would have in the same vessel at the same pressure gradient, over the mean speed. With
    # cells in a tube, ``pries_viscosity`` is what experiments gave at the measured discharge
    # hematocrit. Both mean something in a steady flow alone, which ``steady`` tells. Numbers that
    # cannot be had are None.
    size = {"radius_um" if straight.across is None else "height_um": straight.height / MICRO}
    if math.isfinite(straight.width):
        size["width_um"] = straight.width / MICRO
    if straight.across is None:
        # The radius of the round tube through which plasma flows as fast.
        size["hydraulic_radius_um"] = math.sqrt(8 * straight.permeability) / MICRO
    apparent = math.nan
    driven = straight.has_gradient(found.gradient, found.speed, table.viscosity)
    if driven and not table.walls.velocity_m_s:
        apparent = straight.plasma_speed(found.gradient, table.viscosity) / found.speed
    numbers: dict[str, Any] = {
        "samples": found.samples,
        "first_step": found.first_step,
        "last_step": found.last_step,
        **size,
        "mean_speed_m_s": found.speed,
        "flow_nl_s": found.speed * straight.area * 1e12,
        "pressure_gradient_pa_m": found.gradient,
        "pseudo_shear_rate_1_s": abs(found.speed) / straight.diameter,
        "apparent_viscosity": apparent,
        **_steadiness_numbers(found),
        "wall_stress_by_balance_pa": straight.wall_stress(found.gradient),
    }
    if found.hematocrit is not None:
        numbers |= {
            "tube_hematocrit": found.tube_hematocrit,
            "discharge_hematocrit": found.discharge_hematocrit,
            "discharge_hematocrit_by_points": found.discharge_by_points,
            "cell_free_layer_um": found.free_layer / MICRO,
        }
        if straight.across is None and 0 <= found.discharge_hematocrit < 1:
            diameter = 2 * straight.height / MICRO
            expected = pries_viscosity(diameter, found.discharge_hematocrit)
            numbers["pries_viscosity"] = expected
            numbers["over_pries"] = apparent / expected - 1
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in numbers.items()
    }


def _steadiness_numbers(found: MeanProfiles) -> dict[str, Any]:
    judged = found.steadiness
    numbers = {
        "steady": judged.steady,
        "flow_change": judged.flow_change,
        "gradient_change": judged.gradient_change,
        "change_time_s": judged.change_time,
        "drive_change": judged.drive_change,
        "startup_time_s": judged.startup_time,
    }
    if judged.diameters is not None:
        numbers["diameters_passed"] = judged.diameters
    return numbers


def profile_results(
    found: MeanProfiles | None,
    straight: StraightVessel,
    table: BloodTable,
    out: Path | None,
    *,
    title: str,
    picture: bool,
) -> Results:
    """Numbers of mean profiles, and their files where there is a folder; for rank 0 alone."""
    if found is None:
        return Results({"profile": None}, {}, [], [f"warning: {_no_samples(table)}"])
    numbers = profile_numbers(found, straight, table)
    files = {}
    if out is not None:
        files["profile"] = out / TABLE
        _write_table(files["profile"], found, straight, table)
        if picture:
            files["profile picture"] = out / PICTURE
            _draw(files["profile picture"], found, straight, numbers, title)
    return Results(
        {"profile": numbers},
        files,
        _lines(numbers, straight, found.steadiness),
        _not_final(numbers, found),
    )


def _not_final(numbers: dict[str, Any], found: MeanProfiles) -> list[str]:
    """A warning for the viscosity and the hematocrits of means that are too short or not steady."""
    judged = found.steadiness
    if judged.steady:
        return []
    names = ["apparent viscosity"] if numbers["apparent_viscosity"] is not None else []
    names += ["hematocrits"] if "tube_hematocrit" in numbers else []
    return [f"warning: {' and '.join(['mean profile', *names])} not final: {judged.describe()}"]


def _samples(found: MeanProfiles) -> str:
    if found.samples == 1:
        return f"the sample of step {found.first_step}"
    return f"{found.samples} samples of steps {found.first_step} to {found.last_step}"


def _no_samples(table: BloodTable) -> str:
    assert table.profile is not None
    return (
        f"no profiles: no step from {table.profile.start} on was a sample; run longer or give a "
        "smaller blood.profile.start"
    )


def _lines(numbers: dict[str, Any], straight: StraightVessel, judged: Steadiness) -> list[str]:
    lines = []
    viscosity = numbers["apparent_viscosity"]
    if viscosity is not None:
        line = f"apparent viscosity {viscosity:.4g} times plasma's in a {straight.describe()}"
        if straight.across is not None:
            line = line.replace(" in a ", " between ", 1) if "apart" in line else line
        if not judged.steady:
            known = "that is not steady" if judged.steady is False else "not known to be steady"
            line += f", of a flow {known}"
        expected = numbers.get("pries_viscosity")
        if expected is not None:
            line += f"; experiments {expected:.4g} at the discharge hematocrit (Pries et al. 1992)"
            if judged.steady:
                line += f", {100 * numbers['over_pries']:+.2g} %"
        lines += [line, judged.describe()]
    if "tube_hematocrit" in numbers:
        parts = [f"hematocrit {numbers['tube_hematocrit']:.4g} in the vessel"]
        if numbers["discharge_hematocrit"] is not None:
            parts.append(f"{numbers['discharge_hematocrit']:.4g} discharged")
        if numbers["cell_free_layer_um"] is not None:
            parts.append(f"layer free of cells {numbers['cell_free_layer_um']:.3g} um")
        lines.append(", ".join(parts))
    return lines


def _write_table(
    path: Path, found: MeanProfiles, straight: StraightVessel, table: BloodTable
) -> None:
    columns: dict[str, Any] = {
        "from_um": found.edges[:-1] / MICRO,
        "to_um": found.edges[1:] / MICRO,
        "points": found.points,
        "distance_um": found.distances / MICRO,
        "velocity_mm_s": found.velocity * 1e3,
    }
    if found.hematocrit is not None:
        columns["hematocrit"] = found.hematocrit
    where = "the axis" if straight.across is None else f"the wall at {'xyz'[straight.across]}_low"
    note = (
        f"{_samples(found)}; distances from {where}, distance_um the mean of the points in a bin\n"
        f"velocity along {'xyz'[straight.axis]}; hematocrit: share of the points inside cells"
    )
    if table.walls.kind == "halfway" and straight.across is None:
        note += f"\nthe cross-section is as large as that of a radius of {straight.height / MICRO:.6g} um"
    # A bin without points has no numbers.
    some = found.points > 0
    write_columns(path, {name: values[some] for name, values in columns.items()}, note)


def _draw(
    path: Path,
    found: MeanProfiles,
    straight: StraightVessel,
    numbers: dict[str, Any],
    title: str,
) -> None:
    from haloscope.io.profile_pictures import ProfilePanel, save_profiles

    some = found.points > 0
    places = np.linspace(0.0, straight.wall, _LINE_POINTS)
    parabola = straight.parabola(places, found.speed)
    lines = {}
    if parabola is not None and numbers["apparent_viscosity"] is not None:
        lines["parabola of the same flow"] = (places / MICRO, parabola * 1e3)
    panels = [
        ProfilePanel(
            f"mean velocity along {'xyz'[straight.axis]} (mm/s)",
            {"mean velocity": found.velocity[some] * 1e3},
            lines,
        )
    ]
    told = straight.describe()
    if found.hematocrit is not None:
        edges = {}
        if math.isfinite(found.free_layer):
            sides = [straight.wall - found.free_layer]
            if straight.across is not None:
                sides.append(found.free_layer)
            top = float(np.nanmax(found.hematocrit))
            for number, side in enumerate(sides):
                name = "edge of the cells" if number == 0 else "_"
                edges[name] = ([side / MICRO] * 2, [0.0, top])
        panels.append(ProfilePanel("hematocrit", {"share of cells": found.hematocrit[some]}, edges))
        told += f", hematocrit {found.tube_hematocrit:.3g} in it"
        if numbers["discharge_hematocrit"] is not None:
            told += f", {found.discharge_hematocrit:.3g} discharged"
    label = "distance from the axis (um)"
    if straight.across is not None:
        label = f"distance from the wall at {'xyz'[straight.across]}_low (um)"
    save_profiles(
        path,
        distances=found.distances[some] / MICRO,
        label=label,
        span=(0.0, straight.wall / MICRO),
        panels=panels,
        title=title or "Mean profiles",
        subtitle=f"{told}; {_samples(found)}",
    )
