"""Claims about what is worked out of Maxwell runs: resonances at probes, radiation, scattering."""

from __future__ import annotations

import copy
import csv
import json
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.errors import InputError
from haloscope.solvers.maxwell.case import IMPEDANCE, LIGHT, MaxwellCase
from haloscope.solvers.maxwell.outputs.results import ProbeSpectra
from haloscope.solvers.maxwell.verification import sphere_case
from tests.short_antennas import SIDES, antenna, opened

_CASES = Path(__file__).parents[2] / "cases"


def resonator(**spectrum: Any) -> dict[str, Any]:
    """A dipole's pulse in a conducting cube of edge 1, in natural units."""
    source = {
        "kind": "dipole",
        "position": [0.23, 0.31, 0.17],
        "moment": [0.1, 0.0, 1.0],
        "waveform": {"kind": "ricker", "centre": 3.5, "frequency": 0.5},
    }
    return {
        "solver": "maxwell",
        "maxwell": {
            "units": "natural",
            "order": 5,
            "end_time": 36.0,
            "box": {"elements": [2, 2, 2]},
            "boundaries": dict.fromkeys(SIDES, "pec"),
            "sources": [source],
            "spectrum": {"band": [0.6, 0.95], **spectrum},
        },
        "run": {"diagnostics_interval": 100},
        "output": {
            "fields": False,
            "picture": False,
            "probe_interval": 8,
            "probes": [{"name": "p", "position": [0.71, 0.64, 0.77]}],
        },
    }


def _table(path: Path) -> Any:
    lines = path.read_text().splitlines()
    return np.genfromtxt([line for line in lines if line[0] != "#"], delimiter=",", names=True)


def test_resonances_of_a_box_are_found_at_a_probe_within_1e_4(tmp_path):
    summary = opened(resonator()).run(out=tmp_path, ceilings=False)
    # (1, 1, 0) and its like at sqrt(2) / 2, (1, 1, 1) at sqrt(3) / 2.
    exact = np.array([math.sqrt(2) / 2, math.sqrt(3) / 2])
    resonances = summary["spectrum"]["p"]
    assert set(resonances) == {"Ex", "Ey", "Ez", "Hx", "Hy", "Hz"}
    for name in ("Ex", "Ez"):
        strongest = sorted(resonances[name], key=lambda peak: -peak["amplitude"])[:2]
        frequencies = np.sort([peak["frequency"] for peak in strongest])
        np.testing.assert_allclose(frequencies, exact, rtol=1e-4)
    rows = [
        line
        for line in (tmp_path / "resonances-p.csv").read_text().splitlines()
        if not line.startswith("#")
    ]
    table = list(csv.DictReader(rows))
    assert float(table[0]["frequency"]) == resonances[table[0]["component"]][0]["frequency"]
    assert (tmp_path / "spectrum-p.png").stat().st_size > 1000
    spectrum = _table(tmp_path / "spectrum-p.csv")
    peak = spectrum["frequency"][np.abs(spectrum["Ezreal"] + 1j * spectrum["Ezimag"]).argmax()]
    assert np.abs(exact - peak).min() < 0.02
    assert any(line.startswith("probe p rings at 0.") for line in summary["headline"])
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["spectrum"] == summary["spectrum"]
    assert written["files"]["resonances p"] == str(tmp_path / "resonances-p.csv")


def test_a_short_dipole_radiates_its_exact_pattern_and_power(tmp_path):
    data = antenna()
    data["maxwell"]["order"] = 4
    summary = opened(data).run(out=tmp_path, ceilings=False)
    (pattern,) = summary["far_field"]
    k = 2 * math.pi * 5e8 / LIGHT
    exact = IMPEDANCE * k**2 * 1e-4 / (12 * math.pi)
    assert pattern["power_of_dipole_alone"] == pytest.approx(exact, rel=1e-9)
    assert pattern["radiated_power"] == pytest.approx(exact, rel=0.02)
    assert pattern["power_of_pattern"] == pytest.approx(exact, rel=0.02)
    assert pattern["largest_directivity"] == pytest.approx(1.5, rel=0.02)
    table = _table(tmp_path / "far-field.csv")
    wanted = 1.5 * np.sin(np.radians(table["theta_degrees"])) ** 2
    np.testing.assert_allclose(table["directivity"], wanted, atol=0.03)
    # i omega times the vector potential of a current I l along z, J. D. Jackson, eq. 9.16.
    sine = np.sin(np.radians(table["theta_degrees"]))
    size = k * IMPEDANCE * 1e-2 / (4 * math.pi)
    np.testing.assert_allclose(table["E_theta_Vreal"], 0.0, atol=0.02 * size)
    np.testing.assert_allclose(table["E_theta_Vimag"], -size * sine, atol=0.02 * size)
    amplitude = np.hypot(table["E_theta_Vreal"], table["E_theta_Vimag"])
    intensity = (amplitude**2 + np.hypot(table["E_phi_Vreal"], table["E_phi_Vimag"]) ** 2) / 2
    np.testing.assert_allclose(table["intensity_W_per_sr"], intensity / IMPEDANCE, rtol=1e-9)
    assert (tmp_path / "far-field.png").stat().st_size > 1000
    assert (
        "directivity 1.5" in summary["headline"][-1] or "directivity 1.4" in summary["headline"][-1]
    )


def test_a_restart_gives_the_same_far_field(tmp_path):
    data = antenna()
    data["maxwell"]["end_time"] = 4e-9
    whole = opened(data).run(ceilings=False)
    assert whole["far_field"]
    kept = {**data, "checkpoint": {"at_end": True}}
    half = whole["steps"] // 2 + 1
    opened(kept).run(half, out=tmp_path, ceilings=False)
    second = opened(kept).run(out=tmp_path, restart=True, ceilings=False)
    assert second["far_field"] == whole["far_field"]
    changed = copy.deepcopy(data)
    changed["maxwell"]["far_field"]["frequencies"] = [6e8]
    with refused(
        location="^checkpoint$", problem="another surface, other frequencies", remedy="far_field"
    ):
        opened(changed).run(out=tmp_path, restart=True, ceilings=False)


def test_damaged_sums_of_a_far_field_are_refused_in_one_line():
    solver = opened(antenna()).solver
    extras = dict(solver.extras())
    solver.restore_extras(extras)
    for key in ("sums", "faces", "reference", "taken", "settings"):
        name = f"far_field_{key}"
        for damaged in (
            np.full(extras[name].shape, np.nan),
            extras[name][:-1],
            extras[name][..., None],
            np.full(extras[name].shape, b"text"),
        ):
            with refused(problem="another|damaged") as error:
                solver.restore_extras({**extras, name: damaged})
            assert "\n" not in error.text
    for key in ("reference", "taken"):
        with pytest.raises(InputError):
            solver.restore_extras({k: v for k, v in extras.items() if not k.endswith(key)})


def test_a_checkpoint_without_a_far_field_is_refused(tmp_path):
    data = antenna()
    del data["maxwell"]["far_field"]
    opened({**data, "checkpoint": {"at_end": True}}).run(40, out=tmp_path, ceilings=False)
    with refused(
        location="^checkpoint$",
        problem="no far field, which",
        remedy="raise maxwell.far_field.start",
    ):
        opened(antenna()).run(out=tmp_path, restart=True, ceilings=False)


def test_a_sine_gives_the_power_that_a_pulse_gives():
    data = antenna(start=2e-9)
    data["maxwell"]["sources"][0]["waveform"] = {"kind": "sine", "frequency": 5e8, "rise": 2e-9}
    data["maxwell"]["end_time"] = 12e-9
    (pattern,) = opened(data).run(ceilings=False)["far_field"]
    assert pattern["radiated_power"] == pytest.approx(pattern["power_of_dipole_alone"], rel=0.02)


def test_the_case_of_the_sphere_is_the_one_that_is_verified():
    with (_CASES / "maxwell-sphere-scattering.toml").open("rb") as file:
        assert tomllib.load(file) == sphere_case()


@pytest.mark.parametrize(
    ("make", "changes", "fields"),
    [
        (
            resonator,
            {"band": [0.9, 0.6]},
            {
                "location": r"maxwell.spectrum.band = \[0.9, 0.6\]$",
                "problem": "the lowest frequency is not below the highest",
            },
        ),
        (
            resonator,
            {"probes": ["q"]},
            {
                "location": "^maxwell.spectrum.probes$",
                "problem": "no probe 'q'",
                "allowed": "^p$",
            },
        ),
        (
            resonator,
            {"band": [1.0, 90.0]},
            {
                "location": "maxwell.spectrum.band = ",
                "problem": "output.probe_interval = 8 steps of",
                "allowed": "up to 1.792",
                "remedy": "^lower the band$",
            },
        ),
        (
            resonator,
            {"start": 35.0},
            {
                "location": "^maxwell.spectrum$",
                "problem": "from its start at 35 to the end of the run",
                "remedy": "run longer",
            },
        ),
        (
            antenna,
            {"box": [[0.5] * 3, [0.6] * 3]},
            {"location": "^maxwell.far_field$", "problem": "encloses no element"},
        ),
        (
            antenna,
            {"box": [[-1.0] * 3, [1.0] * 3]},
            {
                "location": "^maxwell.far_field$",
                "problem": "runs through the absorbing layer at element ",
            },
        ),
        (
            antenna,
            {"regions": ["inner"]},
            {"location": "^maxwell.far_field.regions$", "problem": "no region 'inner'"},
        ),
        (
            antenna,
            {"frequencies": [5e9]},
            {
                "location": "^maxwell.far_field.frequencies$",
                "problem": r"at 5e\+09 the waveform has no content",
            },
        ),
        (
            antenna,
            {"start": 1e-6},
            {
                "location": "maxwell.far_field.start = 1e-06$",
                "problem": "after the run's end",
                "allowed": "before 6e-09$",
            },
        ),
        (antenna, {"frequencies": []}, {"location": "maxwell.far_field.frequencies"}),
    ],
)
def test_what_cannot_be_worked_out_is_told_before_the_run(make, changes, fields):
    with refused(**fields) as refusal:
        opened(make(**changes))
    assert "\n" not in refusal.text


def test_a_surface_within_the_total_field_is_refused():
    data = sphere_case(2)
    data["maxwell"]["far_field"]["regions"] = ["inner"]
    with refused(
        location="^maxwell.far_field$", problem="leaves out elements that hold the total field"
    ):
        opened(data)


def test_only_lines_with_a_small_error_are_told_and_the_others_counted():
    case = check(resonator(), MaxwellCase, "test")
    dt, every, count = 0.02, 8, 110
    steps = every * np.arange(count)
    t = steps * dt
    # Fits to a pulse, and to noise that dies away, have Q of 0.7 to 3 or large errors.
    pulse = np.exp(-((t - 3) ** 2))
    fading = np.random.default_rng(3).normal(size=count) * np.exp(-t / 9)

    def line_and_counts(ez, ex):
        silent = np.zeros((count, 4))
        rows = np.column_stack([steps, t, ex, silent[:, 0], ez, silent[:, :3]])
        spectra = ProbeSpectra(case, dt, every * count, 0.0)
        results = spectra.finish(None, {"p": rows.tolist()}, "", every * count)
        peaks_of = results.summary["spectrum"]["p"]
        return results.lines[0], {name: len(peaks) for name, peaks in peaks_of.items()}

    line, counts = line_and_counts(np.sin(2 * np.pi * 0.7071 * t), 100 * pulse)
    assert counts["Ex"] > 0
    assert line.startswith("probe p rings at 0.7071 (Ez, no decay seen); ")
    assert f"{counts['Ex']} lines left out, uncertain by more than 1 %" in line
    line, counts = line_and_counts(fading, pulse)
    assert line.startswith(f"probe p: no resonance in the band; {sum(counts.values())} lines")


def _warnings(summary, words):
    return [line for line in summary["notices"] if line.startswith("warning: ") and words in line]


def test_a_far_field_of_a_run_cut_short_is_withheld_or_told_to_be_not_final():
    data = antenna()
    assert not _warnings(opened(data).run(ceilings=False), "")
    data["maxwell"]["order"] = 2
    data["maxwell"]["end_time"] = 3e-9
    early = opened(data).run(ceilings=False)
    assert early["far_field"] == []
    (warning,) = _warnings(early, "no far field: sources are still on at the end of the run, ")
    # Both times have the unit of the case.
    assert re.search(r"the run, 3e-09 s; run beyond \S+ s, until", warning)
    data["maxwell"] |= {"order": 3, "end_time": 4e-9}
    later = opened(data).run(ceilings=False)
    assert later["far_field"]
    assert _warnings(
        later, "far field at 500 MHz: not final: the fields on the surface have not died"
    )
    data["maxwell"]["sources"][0]["waveform"] = {
        "kind": "gaussian",
        "centre": 2.2e-9,
        "width": 6e-10,
    }
    charged = opened(data).run(ceilings=False)
    assert _warnings(charged, "far field: the integral of the current over time is not 0")
    assert _warnings(charged, "the power of the pattern")


def test_a_sine_without_periods_enough_or_cut_short_is_not_final():
    data = antenna(start=2e-9)
    data["maxwell"]["order"] = 2
    data["maxwell"]["sources"][0]["waveform"] = {"kind": "sine", "frequency": 5e8, "rise": 2e-9}
    data["maxwell"]["end_time"] = 5e-9
    assert _warnings(opened(data).run(ceilings=False), "not final: 1.5 periods of the lowest")
    short = opened(data).run(80, ceilings=False)
    assert _warnings(short, "not final: the run ended at step 80 of ")


def test_spectra_of_a_short_or_driven_series_are_not_final():
    data = resonator(start=2.0, window="none")
    data["maxwell"]["order"] = 3
    data["maxwell"]["end_time"] = 9.0
    data["output"]["probe_interval"] = 2
    (steps,) = {opened(data).solver.last_step}
    summary = opened(data).run(steps - 10, ceilings=False)
    assert _warnings(summary, f"the run ended at step {steps - 10} of {steps}, so the series")
    assert _warnings(summary, "count from 2, before the sources end at 6.9")
    assert _warnings(summary, "spectrum at probe p: not final: at the end the fields are still at")
    silent = opened({**data, "maxwell": {**data["maxwell"], "sources": []}}).run(60, ceilings=False)
    assert _warnings(silent, "no source, no wave and no initial field: all fields stay 0")
