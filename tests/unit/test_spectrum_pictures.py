"""Claims about pictures and tables of spectra and patterns: marks, decibels, exact numbers."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import InputError, SolutionError
from haloscope.io.figures import spectrum_pictures
from haloscope.io.figures.figure import DOTS_PER_INCH, HISTORY_SIZE, draw
from haloscope.io.figures.spectrum_pictures import (
    POLAR_SIZE,
    save_pattern,
    save_spectrum,
    write_columns,
)

image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")

ANGLES = np.linspace(0, 2 * np.pi, 181)


def _spectrum(**changes):
    f = np.linspace(0, 12e9, 1200)
    lines = sum(1e-9 / np.abs(1 + 40j * (f / peak - 1)) for peak in (3.1e9, 3.4e9, 7.7e9))
    peaks = [(3.1e9, "3.1 GHz, Q = 20"), (3.4e9, "3.4 GHz, Q = 20"), (7.7e9, "7.7 GHz, $Q = 20")]
    arguments = {
        "frequencies": f,
        "series": {"Ez": lines},
        "ylabel": "|Ez| (V/m/Hz)",
        "title": "Cavity",
        "subtitle": "probe middle",
        "peaks": peaks,
    }
    return arguments | changes


def _pattern(**changes):
    arguments = {
        "angles": ANGLES,
        "series": {"phi = 0": 1.5 * np.sin(ANGLES) ** 2, "phi = 90 degrees": np.full(181, 1.5)},
        "label": "directivity (dBi)",
        "title": "Dipole",
        "subtitle": "at 1 GHz",
    }
    return arguments | changes


def _size(path):
    height, width = image.imread(path).shape[:2]
    return width / DOTS_PER_INCH, height / DOTS_PER_INCH


def test_pictures_have_their_size_and_equal_input_gives_equal_files(tmp_path):
    for number in range(2):
        save_spectrum(tmp_path / f"spectrum{number}.png", **_spectrum())
    assert _size(tmp_path / "spectrum0.png") == HISTORY_SIZE
    first, second = (tmp_path / f"spectrum{number}.png" for number in range(2))
    assert first.read_bytes() == second.read_bytes()
    save_pattern(tmp_path / "polar.png", **_pattern())
    assert _size(tmp_path / "polar.png") == POLAR_SIZE


def test_peaks_are_marked(tmp_path):
    save_spectrum(tmp_path / "marked.png", **_spectrum())
    save_spectrum(tmp_path / "bare.png", **_spectrum(peaks=[(40e9, "beyond the axis")]))
    marked, bare = (
        (image.imread(tmp_path / name)[..., :3].max(axis=-1) < 0.3).sum()
        for name in ("marked.png", "bare.png")
    )
    assert marked > bare + 200


def test_what_cannot_be_drawn_is_refused(tmp_path):
    path = tmp_path / "picture.png"
    bad = _spectrum()["series"]["Ez"].copy()
    bad[3] = np.nan
    for save, arguments, error, words in (
        (save_spectrum, _spectrum(series={}), InputError, {"allowed": "at least one series"}),
        (save_spectrum, _spectrum(series={"Ez": [1.0]}), InputError, {"problem": "shape"}),
        (
            save_spectrum,
            _spectrum(series={"Ez": bad}),
            SolutionError,
            {"problem": "1 value is nan"},
        ),
        (
            save_spectrum,
            _spectrum(series={"Ez": np.zeros(1200)}),
            SolutionError,
            {"problem": "magnitudes are 0"},
        ),
        (save_pattern, _pattern(angles=np.degrees(ANGLES)), InputError, {"remedy": "rad"}),
        (
            save_pattern,
            _pattern(series={"a": np.zeros(181)}),
            SolutionError,
            {"problem": "none above"},
        ),
    ):
        with refused(error, **words) as refusal:
            save(path, **arguments)
        assert "\n" not in refusal.text
    with refused(problem="PNG"):
        save_pattern(tmp_path / "picture.pdf", **_pattern())
    assert not list(tmp_path.iterdir())


def test_columns_read_back_exactly(tmp_path):
    path = tmp_path / "pattern.csv"
    theta = np.array([[0.1, 0.2], [1 / 3, 3.0]])
    field = np.array([[1 + 2j, 1e-300], [-0.0, 7j / 3]])
    write_columns(path, {"theta_rad": theta, "E": field}, note="a pattern\nexp(-i w t)")
    lines = path.read_text().splitlines()
    assert lines[:3] == ["# a pattern", "# exp(-i w t)", "theta_rad,E.real,E.imag"]
    rows = list(csv.DictReader(lines[2:]))
    assert [float(row["theta_rad"]) for row in rows] == theta.ravel().tolist()
    field_values = [complex(float(row["E.real"]), float(row["E.imag"])) for row in rows]
    assert field_values == field.ravel().tolist()
    with refused(problem="shapes"):
        write_columns(path, {"a": [1.0], "b": [1.0, 2.0]})


def test_curves_of_a_pattern_that_coincide_are_told_apart(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(spectrum_pictures, "save", lambda path, one: figures.append(draw(one)))
    angles = np.linspace(0, np.pi, 40)
    power = 1.5 * np.sin(angles) ** 2
    series = {f"phi = {phi}": power for phi in (0, 30, 60, 90)}
    save_pattern(tmp_path / "a.png", angles=angles, series=series, label="dBi", title="t")
    lines = figures[0].axes[0].get_lines()
    assert len({line.get_linestyle() for line in lines}) == len(lines) == 4
    widths = [line.get_linewidth() for line in lines]
    assert widths == sorted(widths, reverse=True)
