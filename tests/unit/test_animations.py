"""Claims about animations: the frames of a run with common scales, and a run with the same bits."""

from __future__ import annotations

import numpy as np
import open_vessels
import pytest
from refusals import refused
from small_cavities import simulate

import haloscope
from haloscope.io.figures import animations
from haloscope.io.figures.animations import (
    MOST_POINTS,
    Frames,
    SurfaceFrames,
    frame_figures,
    save_animation,
)
from haloscope.io.figures.geometry_views import box_side
from haloscope.io.figures.surface_pictures import SurfaceImage, View, Walls
from haloscope.mesh.blocks import SIDES

pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def _picture(values, step, **more):
    panels = [
        {"values": factor * values, "label": f"E{axis} (V/m)", "quantity": "E", **more}
        for factor, axis in ((1.0, "x"), (0.0, "y"))
    ]
    x, y = (np.linspace(0, 1, count) for count in values.shape[::-1])
    return {
        "x": x,
        "y": y,
        "x_label": "x (m)",
        "y_label": "y (m)",
        "panels": panels,
        "title": "Fields",
        "subtitle": f"step {step}",
    }


def _frames(*factors, **more):
    frames = Frames()
    ramp = np.linspace(-1.0, 1.0, 600).reshape(20, 30)
    for step, factor in enumerate(factors):
        frames.add(step, _picture(factor * ramp, step, **more))
    return frames


def test_all_frames_have_the_panels_and_scales_of_the_whole():
    seen = []
    for figure in frame_figures(_frames(0.0, 4.0, 1.0, scale="range")):
        (axes,) = [axes for axes in figure.axes if axes.images]
        image = axes.images[0]
        seen.append((image.get_clim(), float(image.get_array().max()), figure.texts[1].get_text()))
    assert [clim for clim, _, _ in seen] == [(-4.0, 4.0)] * 3
    assert [largest for _, largest, _ in seen] == [0.0, 4.0, 1.0]
    assert [text.split(",")[0] for _, _, text in seen] == ["step 0", "step 1", "step 2"]
    assert all("of the largest component: Ey" in text for _, _, text in seen)


def test_frames_are_small_and_a_step_has_one():
    frames = Frames()
    for step in (3, 3, 5):
        frames.add(step, _picture(np.ones((900, 40)), step))
    assert len(frames.frames) == 2
    assert frames.frames[0].values[0].dtype == np.float32
    assert max(frames.frames[0].values[0].shape) <= MOST_POINTS


def test_an_animation_without_frames_or_in_another_format_is_refused(tmp_path):
    with refused(problem="0 frames"):
        save_animation(tmp_path / "a.gif", Frames())
    with refused(allowed="gif"):
        save_animation(tmp_path / "a.png", _frames(1.0))
    assert list(tmp_path.iterdir()) == []


def test_a_run_writes_its_frames_and_its_numbers_keep_their_bits(tmp_path):
    bare = simulate(["output.picture=false"])
    bare.run(10, out=tmp_path / "bare", ceilings=False)
    moving = simulate(["output.picture=false", "output.frames=3"])
    summary = moving.run(10, out=tmp_path / "moving", ceilings=False)
    for name in bare.fields:
        assert moving.field(name).tobytes() == bare.field(name).tobytes()
    assert moving.history == bare.history
    assert moving.diagnostics() == bare.diagnostics()
    with pillow.open(summary["files"]["animation"]) as animation:
        # The first state, steps 4 and 8, and the end.
        assert animation.n_frames == 4
    assert not (tmp_path / "bare" / "animation.gif").exists()


def test_panels_of_arrows_are_not_kept():
    frames = Frames()
    picture = _picture(np.ones((4, 5)), 0)
    picture["panels"].append({**picture["panels"][0], "vectors": (np.ones((4, 5)),) * 2})
    frames.add(0, picture)
    assert len(frames.frames[0].values) == 2


def test_the_cells_of_a_blood_run_have_an_animation_with_one_scale(tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.setattr(animations, "FRAME_PIXELS", (200, 140))
    case = {
        "solver": "blood",
        "blood": {
            **open_vessels.tube(12.0),
            "spacing_um": 1.0,
            "relaxation_time": 1.5,
            "openings": open_vessels.ends(),
            "cells": [{"name": "sphere", "hematocrit": 0.1, **open_vessels.CELLS}],
        },
        "run": {"steps": 6},
        "output": {"frames": 3, "picture": False, "fields": False},
    }
    summary = haloscope.load(case, device="cpu").run(out=tmp_path, ceilings=False)
    path = tmp_path / "cells.gif"
    assert summary["files"]["cell animation"] == str(path)
    with Image.open(path) as image:
        assert image.n_frames == 4
        pictures = []
        for number in range(4):
            image.seek(number)
            pictures.append(np.asarray(image.convert("RGB")).astype(int))
    assert np.abs(pictures[0] - pictures[3]).max() > 60
    bare = haloscope.load({**case, "output": {"picture": False}}, device="cpu")
    bare.run(ceilings=False)
    again = haloscope.load(case, device="cpu")
    again.run(out=tmp_path / "again", ceilings=False)
    for name in bare.fields:
        np.testing.assert_array_equal(bare.field(name), again.field(name))


def test_frames_of_surfaces_have_the_scale_of_the_fastest(tmp_path):
    from PIL import Image

    corners = np.concatenate(
        [box_side(np.zeros(3), np.ones(3), s.axis, s.direction) for s in SIDES]
    )
    points, triangles = corners.reshape(-1, 3), np.arange(36).reshape(12, 3)
    none = np.zeros((0, 3))
    walls = Walls(none, none.astype(np.int64), np.zeros((0, 2, 3)))
    frames = SurfaceFrames()
    for step, speed in enumerate((1.0, 4.0)):
        surfaces = SurfaceImage(View.of_points(points, (200, 150)))
        surfaces.draw(points, triangles, np.full(36, speed), np.zeros(36, np.int64))
        frames.add(step, surfaces, walls, speed, f"step {step}")
    frames.save(tmp_path / "a.gif", label="speed (mm/s)", unit="um", title="Cells")
    shares = []
    with Image.open(tmp_path / "a.gif") as image:
        for number in range(2):
            image.seek(number)
            pixels = np.asarray(image.convert("RGB")).astype(int)
            red, green, blue = np.moveaxis(pixels[:, :-200], -1, 0)
            shares.append(((red - blue > 60) & (green - blue > 60)).mean())
    # The upper end of the scale is yellow; a quarter of it is not.
    assert shares[0] < 0.002 < 0.02 < shares[1]
