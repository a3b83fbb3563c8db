"""Claims about pictures: they show the fields given, at the promised size, without global state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import InputError, SolutionError
from haloscope.io.figures.pictures import (
    overview_figure,
    save_midplane,
    save_overview,
)

image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")


def _plane(width: float = 1.0, height: float = 1.0, points: int = 40) -> Any:
    """A vortex that fills the plane, on points drawn together at the walls."""
    even = np.linspace(0.0, 1.0, points)
    clustered = 0.5 * (1.0 - np.cos(np.pi * even))
    x, y = np.meshgrid(clustered, clustered)
    return {
        "x": width * clustered,
        "y": height * clustered,
        "scalar": 300.0 + 10.0 * x + y,
        "scalar_label": "temperature (K)",
        "u": np.sin(np.pi * x) * np.cos(np.pi * y),
        "v": -np.cos(np.pi * x) * np.sin(np.pi * y),
        "title": "Cavity",
        "subtitle": "mid-plane",
    }


def _history() -> Any:
    steps = np.arange(100)
    return {
        "steps": steps,
        "series": {"temperature": 0.8**steps, "velocity": 0.9**steps},
        "ylabel": "residual",
        "title": "Convergence",
        "tolerance": 1e-4,
    }


def _pixels(path: Path) -> np.ndarray[Any, Any]:
    return np.round(255.0 * np.asarray(image.imread(path))[..., :3]).astype(int)


def _ink(pixels: np.ndarray[Any, Any]) -> int:
    """Count the pixels as dark as a streamline inside the plane of a square picture."""
    height, width = pixels.shape[:2]
    inside = pixels[height // 5 : 4 * height // 5, width // 4 : 3 * width // 4]
    return int((inside.max(axis=-1) < 60).sum())


def test_a_plane_shows_the_scalar_the_right_way_up(tmp_path: Path) -> None:
    plane = _plane()
    y = np.broadcast_to(plane["y"][:, None], plane["scalar"].shape)
    path = tmp_path / "plane.png"
    save_midplane(path, **{**plane, "scalar": y, "u": 0 * y, "v": 0 * y})
    pixels = _pixels(path)
    middle = pixels[:, pixels.shape[1] // 3]
    top, bottom = middle[len(middle) // 6], middle[3 * len(middle) // 4]
    assert top[0] > 150  # the yellow end of the map, for large values
    assert top[2] < 100
    assert bottom[0] < 80
    assert bottom[2] > 100


def test_streamlines_are_drawn_where_there_is_flow_and_only_there(tmp_path: Path) -> None:
    plane = _plane()
    moving, resting = tmp_path / "moving.png", tmp_path / "resting.png"
    save_midplane(moving, **plane)
    save_midplane(resting, **{**plane, "u": 0 * plane["u"], "v": 0 * plane["v"]})
    assert _ink(_pixels(moving)) > 1000
    assert _ink(_pixels(resting)) == 0


def test_the_size_of_the_velocity_does_not_change_the_streamlines(tmp_path: Path) -> None:
    plane = _plane()
    for name, factor in (("one", 1.0), ("tiny", 2.0**-900)):
        scaled = {"u": factor * plane["u"], "v": factor * plane["v"]}
        save_midplane(tmp_path / f"{name}.png", **{**plane, **scaled})
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "tiny.png").read_bytes()


def test_no_line_winds_up_in_the_eye_of_a_vortex(tmp_path: Path) -> None:
    path = tmp_path / "plane.png"
    plane = _plane()
    x, y = np.meshgrid(plane["x"], plane["y"])
    save_midplane(path, **{**plane, "u": 0.5 - y, "v": x - 0.5})
    pixels = _pixels(path)
    height, width = pixels.shape[:2]
    # The plane's middle is left of the picture's, which has the colour bar on the right.
    eye = pixels[
        height // 2 - 12 : height // 2 + 12, width * 46 // 100 - 12 : width * 46 // 100 + 12
    ]
    assert (eye.max(axis=-1) < 60).mean() < 0.1


def test_a_scalar_of_both_signs_gets_a_diverging_map(tmp_path: Path) -> None:
    plane = _plane()
    x = np.broadcast_to(plane["x"], plane["scalar"].shape)
    rest = {"u": 0 * x, "v": 0 * x}
    for name, scalar, colours in (
        ("both", x - 0.4, "blue to red"),
        ("one", x - 0.01, "violet to yellow"),
    ):
        path = tmp_path / f"{name}.png"
        save_midplane(path, **{**plane, **rest, "scalar": scalar})
        row = _pixels(path)[350]
        right = row[: row.shape[0] * 3 // 4][-1]
        assert (colours == "blue to red") == bool(right[0] > right[1] + 40)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_uniform_scalar_with_rounding_is_one_colour(tmp_path: Path, dtype: Any) -> None:
    plane = _plane()
    noise = np.random.default_rng(0).choice([0.0, np.spacing(dtype(300.0))], (40, 40))
    uniform = (300.0 + noise).astype(dtype)
    path = tmp_path / "plane.png"
    save_midplane(path, **{**plane, "scalar": uniform, "u": 0 * uniform, "v": 0 * uniform})
    pixels = _pixels(path)
    inside = pixels[200:500, 200:500].reshape(-1, 3)
    assert len(np.unique(inside, axis=0)) == 1


@pytest.mark.parametrize(("width", "height"), [(6.0, 1.0), (1.0, 6.0), (1e-6, 1e-6), (500.0, 1.0)])
def test_elongated_tiny_and_stretched_planes_are_drawn(
    tmp_path: Path, width: float, height: float
) -> None:
    path = tmp_path / "plane.png"
    save_midplane(path, **_plane(width, height))
    rows, columns = _pixels(path).shape[:2]
    ratio = width / height
    if ratio > 1.0:
        assert columns > 2 * rows
    elif ratio < 1.0:
        assert rows > columns
    else:
        assert 0.5 < rows / columns < 1.0


@pytest.mark.parametrize("ratio", [1 / 30, 1.0, 30.0])
def test_both_axes_of_a_plane_have_one_scale_whatever_the_shape(ratio: float) -> None:
    plane = _plane(ratio, 1.0)
    still = {**plane, "u": 0 * plane["u"], "v": 0 * plane["v"]}
    figure = overview_figure(still, _history(), ["a line"])
    figure.draw_without_rendering()
    axes = figure.axes[0]
    box = axes.get_window_extent()
    assert box.width / box.height == pytest.approx(ratio, rel=0.02)
    (bar,) = axes.child_axes
    label = bar.get_xlabel() if ratio > 1.0 else bar.get_ylabel()
    assert label == "temperature (K)"


def test_a_picture_larger_than_the_screen_is_thinned_out_not_cut(tmp_path: Path) -> None:
    coarse, fine = tmp_path / "coarse.png", tmp_path / "fine.png"
    for path, points in ((coarse, 500), (fine, 3000)):
        even = np.linspace(0.0, 1.0, points)
        x, y = np.meshgrid(even, even)
        save_midplane(
            path,
            **{**_plane(), "x": even, "y": even, "scalar": x * y, "u": 0 * x, "v": 0 * x},
        )
    difference = np.abs(_pixels(coarse) - _pixels(fine)).max(axis=-1)
    assert (difference > 20).mean() < 0.01


def test_equal_runs_give_equal_files(tmp_path: Path) -> None:
    for name in ("first", "second"):
        save_overview(
            tmp_path / f"{name}.png", plane=_plane(), history=_history(), text_lines=["Nu = 8.8"]
        )
    assert (tmp_path / "first.png").read_bytes() == (tmp_path / "second.png").read_bytes()


@pytest.mark.parametrize("lines", [[], ["Nu = 8.825"], ["Nu = 8.825", "1.9e9 points/s", "4 GPUs"]])
def test_an_overview_has_1600_by_800_pixels(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "overview.png"
    history = {key: value for key, value in _history().items() if key != "tolerance"}
    save_overview(path, plane=_plane(), history=history, text_lines=lines)
    pixels = _pixels(path)
    assert pixels.shape[:2] == (800, 1600)
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()  # nothing is cut off


def save_history(path: Path, **history: Any) -> None:
    """A history beside a plane."""
    save_overview(path, plane=_plane(), history=history, text_lines=[])


def test_a_history_has_a_line_for_each_series_and_the_tolerance(tmp_path: Path) -> None:
    history = _history()
    sizes = []
    for count, tolerance in ((1, None), (2, None), (2, 1e-4)):
        path = tmp_path / "history.png"
        series = dict(list(history["series"].items())[:count])
        save_history(path, **{**history, "series": series, "tolerance": tolerance})
        pixels = _pixels(path)
        sizes.append(int((pixels < 250).any(axis=-1).sum()))
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize(
    "values", [[0.0, 0.0, 0.0], [1.0, np.nan, 0.1], [np.inf, -1.0, 1e-300], [1.0, 1.0, 1.0]]
)
def test_values_without_a_place_on_the_axis_leave_gaps(tmp_path: Path, values: Any) -> None:
    save_history(tmp_path / "a.png", steps=[1, 2, 3], series={"r": values}, ylabel="r", title="t")
    save_history(tmp_path / "b.png", steps=[1], series={"r": values[:1]}, ylabel="r", title="t")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_dollar_sign_starts_no_formula(tmp_path: Path) -> None:
    words = r"costs $\nonsense{ and $5"
    labels = {"scalar_label": words, "title": words, "subtitle": words}
    history = {**_history(), "series": {words: 0.5 ** np.arange(100)}, "title": words}
    save_overview(
        tmp_path / "a.png",
        plane={**_plane(), **labels},
        history={**history, "ylabel": words},
        text_lines=[words],
    )


@pytest.mark.parametrize(
    ("change", "error", "location", "problem"),
    [
        ({"u": np.zeros((40, 39))}, InputError, "field u", r"the shape is \(40, 39\)"),
        ({"x": np.zeros(40)}, InputError, "coordinate x", r"the shape is \(40,\)"),
        ({"y": np.full(40, np.inf)}, InputError, "coordinate y", r"the shape is \(40,\)"),
        ({"scalar": np.full((40, 40), np.nan)}, SolutionError, "scalar", "1600 values"),
        ({"v": np.full((40, 40), np.inf)}, SolutionError, "field v", "1600 values"),
    ],
)
def test_a_bad_plane_is_refused(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], location: str, problem: str
) -> None:
    with refused(error, location=location, problem=problem, allowed="."):
        save_midplane(tmp_path / "plane.png", **{**_plane(), **change})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "location", "problem"),
    [
        ({"series": {}}, "history", "0 series"),
        ({"steps": []}, "history", r"shape \(0,\)"),
        ({"series": {"r": np.ones(3)}}, "series 'r'", r"the shape is \(3,\)"),
        ({"tolerance": 0.0}, "tolerance = 0.0", "out of range"),
    ],
)
def test_a_bad_history_is_refused(
    tmp_path: Path, change: dict[str, Any], location: str, problem: str
) -> None:
    with refused(location=location, problem=problem):
        save_history(tmp_path / "history.png", **{**_history(), **change})


def test_a_name_that_is_not_png_and_too_much_text_are_refused(tmp_path: Path) -> None:
    with refused(problem="PNG", remedy=r"ends in \.png"):
        save_history(tmp_path / "history.pdf", **_history())
    with refused(problem="4 lines of text", allowed="at most 3"):
        save_overview(
            tmp_path / "a.png", plane=_plane(), history=_history(), text_lines=["line"] * 4
        )


def test_matplotlib_is_imported_late_and_pyplot_never(tmp_path: Path) -> None:
    program = (
        "import sys; from haloscope.io.figures.pictures import save_midplane;"
        "assert 'matplotlib' not in sys.modules;"
        "one = [[1.0, 2.0]] * 2;"
        "save_midplane(sys.argv[1], x=[0, 1], y=[0, 1], scalar=one, scalar_label='s', u=one, v=one,"
        " title='t', subtitle='');"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "history.png")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
