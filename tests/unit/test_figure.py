"""Claims about the specification of figures: panels lie where they are placed, texts and ticks fit."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from haloscope.io.figures.figure import (
    HEAD_HEIGHT,
    Axis,
    ColourBar,
    Line,
    Panel,
    Picture,
    Raster,
    Rows,
    caption,
    draw,
    head,
)


def test_panels_in_rows_lie_in_the_middle_and_leave_room_for_head_and_text():
    rows = Rows(3, 2, (2.0, 1.0), (0.5, 0.3, 0.4, 0.2))
    (width, height), places = rows.places(0.7)
    assert (width, height) == pytest.approx((2 * 2.8, 2 * 1.6 + HEAD_HEIGHT + 0.7))
    lefts, bottoms = np.array(places)[:, 0], np.array(places)[:, 1]
    assert lefts == pytest.approx([0.5, 3.3, 0.5])
    assert bottoms == pytest.approx([0.7 + 1.6 + 0.4, 0.7 + 1.6 + 0.4, 0.7 + 0.4])
    alone, (place,) = Rows(1, 1, (1.0, 1.0), (0.5, 0.3, 0.4, 0.2)).places(0.0)
    assert place[0] - 0.5 == pytest.approx(alone[0] - place[0] - 1.0 - 0.3)


def test_a_picture_is_drawn_as_it_is_specified():
    values = np.arange(6.0).reshape(2, 3)
    extent = (0.0, 3.0, 0.0, 2.0)
    shown = Panel(
        [Raster(values, extent, "viridis", (0.0, 5.0))],
        Axis("x (m)", extent[:2], 3.0),
        Axis("y (m)", extent[2:], 2.0),
        (0.5, 0.6, 3.0, 2.0),
        "p",
        bar=ColourBar("p (Pa)", longest=1.0),
    )
    line = Panel([Line([1, 2], [1e-9, 1e3], "r")], Axis(), Axis(log=True), (5.0, 0.6, 3.0, 2.0))
    size = (9.0, 4.0)
    texts = [*head(size, "a $title", "below"), *caption(["first", "second"])]
    figure = draw(Picture(size, [shown, line], texts))
    figure.draw_without_rendering()
    first, second = figure.axes[:2]
    box = first.get_position()
    assert (box.x0 * 9, box.y0 * 4, box.width * 9, box.height * 4) == pytest.approx(shown.place)
    assert first.get_title(loc="left") == "p"
    assert second.get_yscale() == "log"
    (bar,) = first.child_axes
    assert bar.get_ylabel() == "p (Pa)"
    share = bar.get_position().height / box.height
    assert share == pytest.approx(0.5)
    assert [text.get_text() for text in figure.texts] == ["a $title", "below", "second", "first"]
    heights = [text.get_position()[1] for text in figure.texts]
    assert heights[0] > heights[1] > heights[3] > heights[2]
