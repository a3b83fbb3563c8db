"""Claims about pictures of fields: signs, scales and gaps are shown as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import InputError, SolutionError
from haloscope.io.figures.field_pictures import MOST_PANELS, save_slices

image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")

X, Y = np.linspace(0.05, 1.95, 20), np.linspace(0.05, 0.95, 10)


def _draw(folder: Path, *panels: dict[str, Any], **change: Any) -> Any:
    path = folder / "slice.png"
    arguments: dict[str, Any] = {
        "x": X,
        "y": Y,
        "x_label": "x (m)",
        "y_label": "z (m)",
        "title": "Fields",
        "panels": [{"label": f"E{number} (V/m)", **panel} for number, panel in enumerate(panels)],
        **change,
    }
    save_slices(path, **arguments)
    return np.asarray(image.imread(path))[..., :3]


def _shows(pixels: Any, colour: Any) -> int:
    return int((np.abs(pixels - np.array(colour)).max(axis=2) < 0.02).sum())


def _ends(pixels: Any) -> tuple[Any, Any]:
    """Pixels that are clearly red, and clearly blue."""
    red, _, blue = np.moveaxis(pixels, -1, 0)
    return red - blue > 0.3, blue - red > 0.3


def test_positive_is_red_negative_is_blue_and_the_picture_is_the_right_way_up(
    tmp_path: Path,
) -> None:
    rising = np.broadcast_to(Y[:, None] - 0.7, (10, 20))
    pixels = _draw(tmp_path, {"values": rising})
    red, blue = _ends(pixels)
    rows = np.arange(len(pixels))[:, None]
    panel = np.arange(pixels.shape[1]) < 0.7 * pixels.shape[1]
    assert blue[:, panel].sum() > 1000
    assert (rows * red)[:, panel].sum() / max(1, red[:, panel].sum()) < len(pixels) / 2
    assert (rows * blue)[:, panel].sum() / blue[:, panel].sum() > len(pixels) / 2
    # The scale is centred on zero: 0.25 upwards is fainter than 0.65 downwards.
    assert red[:, panel].sum() < blue[:, panel].sum()


def test_panels_of_one_quantity_share_their_scale(tmp_path: Path) -> None:
    strong, weak = np.full((10, 20), -1.0), np.full((10, 20), -0.01)
    shared = _ends(_draw(*(tmp_path,), *({"values": v, "quantity": "E"} for v in (strong, weak))))
    single = _ends(_draw(tmp_path, {"values": strong}, {"values": weak}))
    assert single[1].sum() > 1.8 * shared[1].sum()


def test_outside_is_grey_and_a_vanishing_field_is_white(tmp_path: Path) -> None:
    grey = np.array([0xE3, 0xE6, 0xE9]) / 255
    gap = np.zeros((10, 20))
    whole = _draw(tmp_path, {"values": gap})
    gap[:, :10] = np.nan
    half = _draw(tmp_path, {"values": gap})
    assert _shows(whole, grey) < 0.01 * whole[..., 0].size
    assert _shows(half, grey) > 0.15 * half[..., 0].size


def test_a_magnitude_has_no_blue_for_below_zero(tmp_path: Path) -> None:
    values = np.full((10, 20), 2.0)
    pixels = _draw(tmp_path, {"values": values, "magnitude": True})
    assert _shows(pixels, (0.993, 0.906, 0.144)) > 10000  # the upper end of viridis


@pytest.mark.parametrize("count", [3, MOST_PANELS])
def test_up_to_six_panels_are_drawn(tmp_path: Path, count: int) -> None:
    pixels = _draw(tmp_path, *[{"values": np.ones((10, 20))}] * count)
    red, _ = _ends(pixels)
    assert red.sum() > 30000 * count


@pytest.mark.parametrize(
    ("panels", "change", "error", "location", "problem"),
    [
        ([], {}, InputError, "slices", "0 panels"),
        ([np.zeros((10, 20))] * 7, {}, InputError, "slices", "7 panels"),
        ([np.zeros((20, 10))], {}, InputError, r"'E0 \(V/m\)'", r"the shape is \(20, 10\)"),
        ([np.full((10, 20), np.nan)], {}, InputError, "'E0", "no value on the plane"),
        ([np.full((10, 20), np.inf)], {}, SolutionError, "'E0", "200 values are inf"),
        ([np.zeros((10, 20))], {"x": X**2}, InputError, "coordinate x", "the steps are"),
        ([np.zeros((10, 20))], {"y": Y[::-1]}, InputError, "coordinate y", "the steps are"),
        ([np.zeros((10, 20))], {"y": [0.0]}, InputError, "coordinate y", r"shape is \(1,\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, panels: Any, change: Any, error: Any, location: str, problem: str
) -> None:
    with refused(error, location=location, problem=problem):
        _draw(tmp_path, *({"values": values} for values in panels), **change)
    assert list(tmp_path.iterdir()) == []


def test_another_format_is_refused(tmp_path: Path) -> None:
    panels: Any = [{"values": np.zeros((10, 20)), "label": "E"}]
    with refused(problem="pictures are PNG files", remedy="png"):
        save_slices(
            tmp_path / "a.pdf", x=X, y=Y, x_label="x", y_label="y", panels=panels, title="t"
        )
