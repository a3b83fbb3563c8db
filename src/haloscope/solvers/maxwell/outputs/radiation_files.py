"""Output of the far field: a table, a picture, numbers for the summary, printed lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.io.figures.spectrum_pictures import prefixed, save_pattern, write_columns
from haloscope.solvers.interface import Results
from haloscope.solvers.maxwell.case import MaxwellTable
from haloscope.solvers.maxwell.outputs.far_field import FarField
from haloscope.solvers.maxwell.outputs.radiation import Powers, Radiation, frequency_text

Floats = NDArray[np.float64]

# Curves of the picture, and frequencies that are told of.
_MOST_CURVES = 6
_MOST_LISTED = 3
# Difference of the power through the surface and that of the pattern above which both are doubted.
_POWERS_APART = 0.05


def far_field_results(
    radiation: Radiation, table: MaxwellTable, out: Path | None, write: bool, title: str
) -> Results:
    """Work out the far field and write its files; all ranks call this."""
    wanted = table.far_field
    assert wanted is not None
    theta = np.linspace(0, np.pi, wanted.theta)
    phi = np.radians(wanted.phi)
    # The second half goes round behind, for the picture.
    around = np.concatenate([phi, phi + np.pi])
    field = radiation.pattern(theta[:, None], around)
    powers = radiation.powers()
    if radiation.incident is not None:
        values = field.cross_section(radiation.incident[1])
        quantity, label = "cross_section", "cross section (dB m²)"
    else:
        values = field.directivity(powers.radiated)
        quantity, label = "directivity", "directivity (dBi)"
    wave = radiation.incident is not None
    summary = _summary(table, powers, wave, values[:, :, : len(phi)], theta, phi, quantity)
    files: dict[str, Path] = {}
    if out is not None:
        files = {"far field": out / "far-field.csv", "far field picture": out / "far-field.png"}
        if write:
            _write_table(files["far field"], table, field, values, quantity)
            _draw(files["far field picture"], table, theta, values, label, title)
    lines = _lines(table, summary)
    notices = [] if radiation.counts_the_wave else _differing_powers(table, powers)
    if radiation.leaves_charges:
        notices.insert(
            0,
            "warning: far field: the integral of the current over time is not 0, so charges remain and their "
            "field disturbs the far field; use a waveform without a mean, for example ricker",
        )
    return Results({"far_field": summary}, files, lines, notices)


def _differing_powers(table: MaxwellTable, powers: Powers) -> list[str]:
    """A warning where the surface and the pattern disagree about the power."""
    if powers.of_pattern is None:
        return [
            "far field: the power of the pattern is not computed, since the surface is too many "
            "wavelengths wide; the radiated power is not checked"
        ]
    assert table.far_field is not None
    largest = np.maximum(np.abs(powers.radiated), powers.of_pattern)
    apart = np.abs(powers.radiated - powers.of_pattern) / np.where(largest > 0, largest, 1.0)
    at = int(apart.argmax())
    if not apart[at] > _POWERS_APART:
        return []
    return [
        f"warning: far field at {frequency_text(table, table.far_field.frequencies[at])}: the power "
        f"through the surface, {powers.radiated[at] / table.impedance:.4g}, and the power of the pattern, "
        f"{powers.of_pattern[at] / table.impedance:.4g}, differ by {100 * apart[at]:.3g} % (allowed: "
        f"{100 * _POWERS_APART:g} %); run until the fields have died away, refine the mesh, or look "
        "for sources and reflecting bodies outside the surface"
    ]


def _summary(
    table: MaxwellTable,
    powers: Powers,
    wave: bool,
    values: Floats,
    theta: Floats,
    phi: Floats,
    quantity: str,
) -> list[dict[str, Any]]:
    """A row for each frequency, in the units of the case."""
    assert table.far_field is not None
    rows = []
    for number, frequency in enumerate(table.far_field.frequencies):
        row: dict[str, Any] = {"frequency": frequency}
        if wave:
            if powers.extinction is not None:
                row["extinction_cross_section"] = float(powers.extinction[number])
            if powers.scattering is not None:
                row["scattering_cross_section"] = float(powers.scattering[number])
        else:
            for name, value in (
                ("radiated_power", powers.radiated),
                ("power_of_pattern", powers.of_pattern),
                ("power_of_dipole_alone", powers.dipole_alone),
            ):
                if value is not None:
                    row[name] = float(value[number]) / table.impedance
        here = values[number]
        at = np.unravel_index(int(here.argmax()), here.shape)
        row[f"largest_{quantity}"] = float(here[at])
        row["at_theta"] = math.degrees(theta[at[0]])
        row["at_phi"] = math.degrees(phi[at[1]])
        rows.append(row)
    return rows


def _lines(table: MaxwellTable, rows: list[dict[str, Any]]) -> list[str]:
    si = table.units == "si"
    watt, area = (" W" if si else ""), " m²"
    lines = []
    for row in rows[:_MOST_LISTED]:
        at = frequency_text(table, row["frequency"])
        said = [f"far field at {at}:"]
        if "radiated_power" in row:
            said.append(f"radiated power {row['radiated_power']:.6g}{watt}")
            if "power_of_dipole_alone" in row:
                said.append(f"(a dipole alone: {row['power_of_dipole_alone']:.6g}{watt}),")
            largest = row["largest_directivity"]
            said.append(f"directivity {largest:.5g} ({10 * math.log10(largest):.2f} dBi)")
        else:
            if "scattering_cross_section" in row:
                said.append(f"cross sections: scattering {row['scattering_cross_section']:.5g},")
            if "extinction_cross_section" in row:
                said.append(f"extinction {row['extinction_cross_section']:.5g}{area},")
            said.append(f"largest bistatic {row['largest_cross_section']:.5g}{area}")
        said.append(f"at theta {row['at_theta']:g}°, phi {row['at_phi']:g}°")
        lines.append(" ".join(said))
    if len(rows) > _MOST_LISTED:
        lines.append(f"far field at {len(rows) - _MOST_LISTED} more frequencies: see summary.json")
    return lines


def _write_table(
    path: Path, table: MaxwellTable, field: FarField, values: Floats, quantity: str
) -> None:
    wanted = table.far_field
    assert wanted is not None
    cuts = len(wanted.phi)
    shape = (len(wanted.frequencies), wanted.theta, cuts)
    frequency = np.array(wanted.frequencies)[:, None, None]
    theta = np.linspace(0, 180, wanted.theta)[:, None]
    si = table.units == "si"
    hz, volt, watt, area = ("_Hz", "_V", "_W_per_sr", "_m2") if si else ("", "", "", "")
    columns = {
        f"frequency{hz}": np.broadcast_to(frequency, shape),
        "theta_degrees": np.broadcast_to(theta, shape),
        "phi_degrees": np.broadcast_to(np.array(wanted.phi), shape),
        f"E_theta{volt}": field.electric_theta[:, :, :cuts],
        f"E_phi{volt}": field.electric_phi[:, :, :cuts],
        f"intensity{watt}": field.intensity[:, :, :cuts] / table.impedance,
        f"{quantity}{area if quantity == 'cross_section' else ''}": values[:, :, :cuts],
    }
    write_columns(
        path,
        columns,
        "E = (E_theta, E_phi) exp(i k r) / r for fields as exp(-i w t), r from the origin of the "
        "mesh,\nwhere the waveform has the amplitude 1",
    )


def _draw(
    path: Path, table: MaxwellTable, theta: Floats, values: Floats, label: str, title: str
) -> None:
    wanted = table.far_field
    assert wanted is not None
    cuts = len(wanted.phi)
    curves: dict[str, Floats] = {}
    for number, frequency in enumerate(wanted.frequencies):
        for cut, angle in enumerate(wanted.phi):
            behind = values[number, :0:-1, cuts + cut]
            name = f"phi = {angle:g}°"
            if len(wanted.frequencies) > 1:
                hertz = prefixed(frequency, "Hz") if table.units == "si" else f"{frequency:.4g}"
                name = f"{hertz}, {name}"
            curves[name] = np.concatenate([behind, values[number, :, cut]])
    shown = dict(list(curves.items())[:_MOST_CURVES])
    left = len(curves) - len(shown)
    save_pattern(
        path,
        angles=np.concatenate([-theta[:0:-1], theta]),
        series=shown,
        label=label,
        title=title,
        subtitle="angle theta" + (f"; {left} more curves in the table" if left else ""),
    )
