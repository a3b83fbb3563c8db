"""Claims about pictures of fields: signs, scales and gaps are shown as they are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import InputError, SolutionError
from haloscope.io.figures.field_pictures import MOST_PANELS, slices
from haloscope.io.figures.figure import draw, length_unit, save

image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")

X, Y = np.linspace(0.05, 1.95, 20), np.linspace(0.05, 0.95, 10)


def _picture(*panels: dict[str, Any], **change: Any) -> Any:
    return {
        "x": X,
        "y": Y,
        "x_label": "x (m)",
        "y_label": "z (m)",
        "title": "Fields",
        "panels": [{"label": f"E{number} (V/m)", **panel} for number, panel in enumerate(panels)],
        **change,
    }


def _draw(folder: Path, *panels: dict[str, Any], **change: Any) -> Any:
    path = folder / "slice.png"
    save(path, slices(_picture(*panels, **change)))
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
    pixels = _draw(tmp_path, {"values": values, "scale": "magnitude"})
    assert _shows(pixels, (0.993, 0.906, 0.144)) > 10000  # the upper end of viridis


@pytest.mark.parametrize("count", [3, MOST_PANELS])
def test_up_to_eight_panels_are_drawn(tmp_path: Path, count: int) -> None:
    pixels = _draw(tmp_path, *[{"values": np.ones((10, 20))}] * count)
    red, _ = _ends(pixels)
    assert red.sum() > 30000 * count


@pytest.mark.parametrize(
    ("panels", "change", "error", "location", "problem"),
    [
        ([], {}, InputError, "slices", "0 panels"),
        ([np.zeros((10, 20))] * 9, {}, InputError, "slices", "9 panels"),
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
    with refused(problem="pictures are PNG files", remedy="png"):
        save(tmp_path / "a.pdf", slices(_picture({"values": np.zeros((10, 20))})))


# The figure itself


def _drawn(figure: Any) -> list[Any]:
    """Axes with an image: the panels."""
    return [axes for axes in figure.axes if axes.images]


def _texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.texts]


def _stretch(axes: Any) -> float:
    """Inches a unit of y over inches a unit of x, as drawn."""
    box, figure = axes.get_position(), axes.figure
    across = box.width * figure.get_figwidth() / np.ptp(axes.get_xlim())
    up = box.height * figure.get_figheight() / np.ptp(axes.get_ylim())
    return float(up / across)


@pytest.mark.parametrize("height", [0.02, 0.164, 1.0, 6.0, 50.0])
def test_both_axes_have_one_scale_whatever_the_shape(height: float) -> None:
    x, y = np.linspace(0.0, 1.0, 40), np.linspace(0.0, height, 30)
    figure = draw(slices(_picture({"values": np.ones((30, 40))}, x=x, y=y)))
    figure.draw_without_rendering()
    (axes,) = _drawn(figure)
    assert axes.get_aspect() == 1.0
    assert _stretch(axes) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("height", [0.02, 0.164, 1.0, 6.0, 50.0])
def test_tick_labels_do_not_overlap(height: float) -> None:
    x, y = np.linspace(-0.3, 0.3, 40), np.linspace(-0.3 * height, 0.3 * height, 30)
    figure = draw(slices(_picture({"values": np.ones((30, 40))}, x=x, y=y)))
    figure.draw_without_rendering()
    inset = figure.axes[0].child_axes
    for axes in (figure.axes[0], *inset):
        for axis in (axes.xaxis, axes.yaxis):
            shown = [text for text in axis.get_ticklabels() if text.get_text()]
            boxes = [text.get_window_extent() for text in shown]
            assert not any(one.overlaps(other) for one, other in pairwise(boxes))
        assert axes.xaxis.get_ticklabels() or axes.yaxis.get_ticklabels()


def test_components_that_vanish_have_no_panel_and_are_named() -> None:
    panels = [
        {"values": np.full((10, 20), value), "label": f"{name} (V/m)", "quantity": name[0]}
        for name, value in (("Ex", 0.0), ("Ey", 1e-9), ("Ez", 1.0), ("Hx", 1e-9))
    ]
    figure = draw(slices(_picture(*panels)))
    assert [axes.get_title(loc="left") for axes in _drawn(figure)] == ["Ez", "Hx"]
    assert any("below 0.1% of the largest component: Ex, Ey" in text for text in _texts(figure))
    for panel in panels:
        panel["values"] = np.zeros((10, 20))
    assert len(_drawn(draw(slices(_picture(*panels[:3]))))) == 3


def test_a_range_goes_from_the_least_to_the_greatest_value() -> None:
    values = np.linspace(100.0, 101.0, 200).reshape(10, 20)
    figure = draw(slices(_picture({"values": values, "scale": "range"})))
    assert _drawn(figure)[0].images[0].get_clim() == (100.0, 101.0)
    same = draw(slices(_picture({"values": 0 * values + 7.0, "scale": "range"})))
    low, high = _drawn(same)[0].images[0].get_clim()
    assert low < 7.0 < high


def test_a_colour_bar_has_the_unit_and_the_power_of_ten() -> None:
    values = 3e-5 * np.linspace(-1.0, 1.0, 200).reshape(10, 20)
    figure = draw(slices(_picture({"values": values, "label": "pressure (Pa)"})))
    (bar,) = figure.axes[0].child_axes
    assert bar.get_ylabel() == "pressure (1e-5 Pa)"
    assert bar.yaxis.get_offset_text().get_text() == ""


def test_an_axis_in_powers_of_ten_says_so_in_its_label() -> None:
    figure = draw(slices(_picture({"values": np.ones((10, 20))}, x=2e-3 * X, y=Y)))
    axes = figure.axes[0]
    assert axes.get_xlabel() == "x (1e-3 m)"
    assert axes.get_ylabel() == "z (m)"
    figure.draw_without_rendering()
    ticks = [tick for tick in axes.xaxis.get_ticklabels() if tick.get_text()]
    numbers = [float(tick.get_text()) * 1e-3 for tick in ticks]
    assert numbers == pytest.approx([tick.get_position()[0] for tick in ticks])


def test_main_results_stand_below_and_take_room_of_their_own() -> None:
    panel = {"values": np.ones((10, 20))}
    bare, with_lines = (
        draw(slices(_picture(panel), lines)) for lines in ((), ("drag 5.6", "long " * 60))
    )
    assert "drag 5.6" in _texts(with_lines)
    assert with_lines.get_figheight() > bare.get_figheight() + 0.5
    lowest = min(axes.get_position().y0 for axes in with_lines.axes)
    below = [text for text in with_lines.texts if text.get_text().startswith(("drag", "long"))]
    assert all(text.get_position()[1] < lowest for text in below)
    assert len(below) > 2


def test_outlines_are_drawn_on_each_panel_within_its_limits() -> None:
    outlines = [[[0.5, 0.5], [9.0, 0.5]], [[9.0, 0.5], [0.5, 0.9]]]
    panels = [{"values": np.ones((10, 20))}] * 2
    figure = draw(slices(_picture(*panels, outlines=outlines)))
    for axes in _drawn(figure):
        assert [len(lines.get_segments()) for lines in axes.collections] == [2, 2]
        assert axes.get_xlim() == pytest.approx((0.0, 2.0))


def test_small_lengths_are_shown_in_small_units() -> None:
    assert [length_unit(extent) for extent in (5.0, 0.01, 5e-6, 5e-9)] == [
        (1.0, "m"),
        (1e3, "mm"),
        (1e6, "um"),
        (1e9, "nm"),
    ]


def test_arrows_have_the_direction_of_the_field_and_are_at_most_25_along_a_side() -> None:
    x, y = np.linspace(0, 2, 200), np.linspace(0, 1, 100)
    u, v = np.broadcast_to(-y[:, None], (100, 200)), np.broadcast_to(x - 1.0, (100, 200))
    size = np.hypot(u, v)
    size[:50, :100] = np.nan
    panel = {"values": size, "scale": "magnitude", "vectors": (np.where(size > 0, u, np.nan), v)}
    (axes,) = _drawn(draw(slices(_picture(panel, x=x, y=y))))
    (arrows,) = axes.collections
    places = arrows.get_offsets()
    assert 20 <= len(np.unique(places[:, 0])) <= 25
    assert not ((places[:, 0] < 1) & (places[:, 1] < 0.49)).any()
    expected = np.stack([-places[:, 1], places[:, 0] - 1.0], axis=1)
    expected /= np.linalg.norm(expected, axis=1)[:, None]
    drawn = np.stack([arrows.U, arrows.V], axis=1)
    length = np.linalg.norm(drawn, axis=1)
    np.testing.assert_allclose(drawn / length[:, None], expected, atol=1e-6)
    # All of one length, and shorter than their distance.
    assert length.max() == pytest.approx(length.min())
    assert length.max() < np.diff(np.unique(places[:, 0])).min()
    assert axes.images[0].get_clim() == (0.0, np.nanmax(size))


def test_where_a_field_is_faint_there_is_no_arrow() -> None:
    u = np.broadcast_to(np.where(np.arange(20) < 10, 1.0, 0.01), (10, 20))
    panel = {"values": u, "vectors": (u, 0 * u)}
    (axes,) = _drawn(draw(slices(_picture(panel))))
    assert axes.collections[0].get_offsets()[:, 0].max() < X[10]


def test_a_field_across_the_plane_has_no_panel_of_arrows_and_scales_of_components_stay() -> None:
    one, none = np.ones((10, 20)), np.zeros((10, 20))

    def figure(along: Any) -> Any:
        arrows = {"values": np.sqrt(2) * along, "vectors": (along, along), "scale": "magnitude"}
        panels = [
            {"values": along, "label": "Ex (V/m)", "quantity": "E"},
            {"values": one, "label": "Ez (V/m)", "quantity": "E"},
            {**arrows, "label": "E along the plane (V/m)", "quantity": "E"},
        ]
        return draw(slices(_picture(*panels)))

    across = figure(none)
    assert [axes.get_title(loc="left") for axes in _drawn(across)] == ["Ez"]
    assert any(text.endswith("largest component: Ex") for text in _texts(across))
    both = _drawn(figure(one))
    assert [axes.get_title(loc="left") for axes in both] == ["Ex", "Ez", "E along the plane"]
    assert both[0].images[0].get_clim() == (-1.0, 1.0)
    assert both[2].images[0].get_clim() == (0.0, pytest.approx(np.sqrt(2)))


def test_lines_beyond_those_that_fit_end_in_dots() -> None:
    lines = [f"result {number}" for number in range(30)]
    texts = _texts(draw(slices(_picture({"values": np.ones((10, 20))}), lines)))
    assert "..." in texts
    assert "result 0" in texts
    assert "result 29" not in texts
