"""Claims about the picture of a geometry: all boundaries by name, condition and colour, from outside and inside."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import open_vessels
import pytest
from small_cavities import PLANE, simulate

import haloscope
from haloscope.commands.dry_run import save_geometry_picture
from haloscope.errors import MachineError
from haloscope.io.figures import geometry_views
from haloscope.io.figures.figure import draw
from haloscope.io.figures.geometry_pictures import colours_of, geometry_picture
from haloscope.io.figures.geometry_views import (
    Geometry,
    Marks,
    Part,
    box_side,
    draw_views,
    simplified,
    with_counts,
)
from haloscope.mesh.blocks import SIDES
from haloscope.solvers.blood.outputs.pictures import opening_squares

_SIDES = [f"{axis}{sign}" for axis in "xyz" for sign in "-+"]
_MAXWELL = {
    "solver": "maxwell",
    "maxwell": {
        "order": 2,
        "end_time": 1e-9,
        "sphere": {
            "radius": 0.1,
            "core": 1,
            "rings": 1,
            "box_half_width": 0.2,
            "outer_rings": 1,
            "margin": 0.1,
            "margin_layers": 2,
        },
        "boundaries": dict.fromkeys(_SIDES, "absorbing") | {"z+": "pec"},
        "materials": [{"region": "inner", "permittivity": 4.0}],
        "layer": {"thickness": {"x-": 0.05}},
        "sources": [
            {
                "kind": "dipole",
                "position": [0.0, 0.15, 0.0],
                "moment": [0.0, 0.0, 1e-2],
                "waveform": {"kind": "ricker", "centre": 2e-9, "frequency": 8e8},
            }
        ],
        "waves": [
            {
                "direction": [0, 0, 1],
                "polarisation": [1, 0, 0],
                "inside": ["inner", "outer"],
                "waveform": {"kind": "gaussian", "centre": 2e-9, "width": 5e-10},
            }
        ],
    },
    "output": {"probes": [{"name": "behind", "position": [0.0, 0.0, 0.15]}]},
}
_FLOW = {
    "solver": "flow",
    "flow": {
        "fluid": {"density": 1.0, "viscosity": 1e-3},
        "cylinder_channel": {"resolution": 4, "layers": 3},
        "boundaries": {
            "inlet": {"speed": 0.2},
            "outlet": "open",
            "walls": "no-slip",
            "cylinder": "no-slip",
        },
    },
}
_VOLUMES = {"flow": 2.5 * 0.41**2 - np.pi * 0.05**2 * 0.41, "maxwell": 0.6**3}


def _vessel(vessel: dict[str, Any], **table: Any) -> Any:
    return haloscope.load(
        {
            "solver": "blood",
            "blood": {"spacing_um": 1.0, "relaxation_time": 1.5, **vessel, **table},
        },
        device="cpu",
    )


def _tube_with_cells() -> Any:
    cells = [{"name": "sphere", "hematocrit": 0.1, **open_vessels.CELLS}]
    return _vessel(open_vessels.tube(), openings=open_vessels.ends(), cells=cells)


_MAKERS = {
    "cavity": simulate,
    "flow": lambda: haloscope.load(_FLOW, device="cpu"),
    "maxwell": lambda: haloscope.load(_MAXWELL, device="cpu"),
    "blood": _tube_with_cells,
}


@pytest.fixture(scope="module", params=_MAKERS)
def simulation(request: pytest.FixtureRequest) -> Any:
    return _MAKERS[request.param]()


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry_views, "_BESIDE", (240, 220))
    monkeypatch.setattr(geometry_views, "_ABOVE", (400, 160))


def _figure(geometry: Geometry) -> Any:
    views = None if geometry.planar else draw_views(geometry, *geometry.bounds())
    return draw(geometry_picture(geometry, views, "A title", "a subtitle"))


def _legend(figure: Any) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]


def test_the_legend_has_all_boundaries_with_their_conditions(simulation: Any) -> None:
    geometry = simulation.solver.geometry()
    texts = _legend(_figure(geometry))
    conditions = simulation.case.boundary_conditions()
    assert len(conditions) >= 3
    for name, condition in conditions.items():
        assert any(f"  {name}: {condition}" in text for text in texts), (name, texts)
    colours = colours_of(geometry.parts)
    assert len(set(colours)) == len(geometry.parts)


def test_boundaries_look_out_of_the_domain_and_close_it(simulation: Any) -> None:
    outer = [part for part in simulation.solver.geometry().parts if part.kind != "body"]
    a, b, c = np.concatenate([part.corners for part in outer]).swapaxes(0, 1)
    volume = float(np.einsum("ni,ni->", a, np.cross(b, c)) / 6)
    exact = {
        "cavity": 0.05 * 0.04 * 0.045,
        "blood": np.pi * 5e-6**2 * 24e-6,
        **_VOLUMES,
    }[simulation.solver.name]
    # Squares of points stand for round openings, flat triangles for round walls.
    assert volume == pytest.approx(exact, rel=0.02)
    area = np.cross(b - a, c - a)
    assert np.abs(area.sum(axis=0)).max() < 0.05 * np.linalg.norm(area, axis=1).sum() / 2


def test_tags_of_both_views_cover_all_boundaries(simulation: Any) -> None:
    geometry = simulation.solver.geometry()
    figure = _figure(geometry)
    numbers = {text.get_text() for axes in figure.axes for text in axes.texts}
    shown = [str(n) for n, part in enumerate(geometry.parts, 1) if len(part.corners)]
    assert set(shown) <= numbers


def test_inside_of_a_channel_its_cylinder_is_seen() -> None:
    geometry = _MAKERS["flow"]().solver.geometry()
    outside, inside = draw_views(geometry, *geometry.bounds()).images
    names = [part.name for part in geometry.parts]
    cylinder, inlet, outlet = (names.index(name) for name in ("cylinder", "inlet", "outlet"))
    pixels = [(image.value[image.body >= 0] == cylinder).sum() for image in (outside, inside)]
    assert pixels[1] > 3 * pixels[0]
    assert (outside.value[outside.body >= 0] == outlet).any()
    assert not (inside.value[inside.body >= 0] == outlet).any()
    assert (inside.value[inside.body >= 0] == inlet).any()


def test_media_sources_waves_layers_and_probes_are_marked(tmp_path: Any) -> None:
    simulation = _MAKERS["maxwell"]()
    geometry = simulation.solver.geometry()
    texts = _legend(_figure(geometry))
    for words in (
        *("region inner: permittivity 4", "absorbing layers begin here", "sources"),
        "wave: along (0, 0, 1), E along (1, 0, 0)",
    ):
        assert any(words in text for text in texts), words
    inner = next(part for part in geometry.parts if part.kind == "body")
    assert np.linalg.norm(inner.corners, axis=2) == pytest.approx(0.1, rel=1e-6)
    save_geometry_picture(simulation, tmp_path / "new" / "case-check.png")
    assert (tmp_path / "new" / "case-check.png").stat().st_size > 10_000


def test_cells_at_the_start_lie_within_the_vessel() -> None:
    geometry = _tube_with_cells().solver.geometry()
    cells = geometry.parts[-1]
    assert cells.kind == "body"
    assert cells.condition.startswith("cells at the start: ")
    assert cells.faces is not None
    assert int(cells.condition.split()[-1]) == cells.faces.max() + 1
    assert np.hypot(*cells.corners.reshape(-1, 3)[:, 1:].T).max() < 5e-6


def test_squares_of_an_opening_cover_its_points() -> None:
    simulation = _tube_with_cells()
    vessel = simulation.solver.vessel
    for opening in vessel.lattice.openings:
        corners = opening_squares(vessel.lattice, opening)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2
        area = normals.sum(axis=0)[opening.axis] * opening.direction
        assert area == pytest.approx(len(opening.numbers) * vessel.lattice.spacing**2)
        assert len(corners) < len(opening.numbers)


def test_moving_walls_and_periodic_ends_of_a_channel_have_their_sides() -> None:
    solver = _vessel(
        {"channel": {"size_um": [8.0, 6.0, 5.0], "periodic": ["x"]}},
        walls={"velocity_m_s": {"y_high": [0.001, 0.0, 0.0]}},
    ).solver
    parts = {part.name: part.corners for part in solver.geometry().parts}
    assert (parts["wall y_high"][:, :, 1] == 6e-6).all()
    assert len(parts["walls"]) == 2 * 3
    assert set(np.unique(parts["ends"][:, :, 0])) == {0.0, 8e-6}


def test_a_plane_has_its_sides_as_lines_with_their_names() -> None:
    geometry = simulate(PLANE).solver.geometry()
    assert geometry.planar
    texts = _legend(_figure(geometry))
    assert [text.split(":")[0].split()[-1] for text in texts] == [
        *("x_low", "x_high", "y_low", "y_high")
    ]
    lines = {part.name: part.corners[0, :, :2].tolist() for part in geometry.parts}
    assert lines["x_high"] == [[0.05, 0.0], [0.05, 0.04]]
    assert lines["y_low"] == [[0.0, 0.0], [0.05, 0.0]]


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_sides_of_a_box_look_outwards(side: Any) -> None:
    corners = box_side(
        np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]), side.axis, side.direction
    )
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    direction = np.zeros(3)
    direction[side.axis] = side.direction
    assert (normals @ direction > 0).all()
    assert np.count_nonzero(normals) == 2
    assert np.linalg.norm(normals.sum(axis=0)) / 2 == np.prod(np.delete([1.0, 2.0, 3.0], side.axis))


def _sphere(along: int) -> np.ndarray:
    """Triangles of a sphere."""
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 2 * along + 1), np.linspace(0, np.pi, along + 1))
    points = np.stack([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)], axis=-1)
    # Triangles that touch have the same corners to the last bit.
    points[:, -1], points[0], points[-1] = points[:, 0], [0, 0, 1], [0, 0, -1]
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]
    halves = [np.stack(half, axis=-2).reshape(-1, 3, 3) for half in ((a, b, c), (a, c, d))]
    return np.concatenate(halves)


def test_a_surface_of_too_many_triangles_is_simplified_without_holes_and_says_so() -> None:
    corners = _sphere(120)
    few, faces = simplified(corners, np.arange(len(corners)), 2.0, most=5000)
    assert faces is None
    assert 1000 < len(few) <= 5000
    a, b, c = few.swapaxes(0, 1)
    volume = np.einsum("ni,ni->", a, np.cross(b, c)) / 6
    assert volume == pytest.approx(4 * np.pi / 3, rel=0.05)
    # Each edge has two triangles.
    _, names = np.unique(few.reshape(-1, 3).round(12), axis=0, return_inverse=True)
    edges = [np.sort(names.reshape(-1, 3)[:, [i, (i + 1) % 3]], axis=1) for i in range(3)]
    _, counts = np.unique(np.concatenate(edges), axis=0, return_counts=True)
    assert (counts % 2 == 0).all()
    geometry = with_counts(Geometry((Part("wall", "no-slip", few),)), len(few), len(corners))
    written = [text.get_text() for text in _figure(geometry).texts]
    assert f"simplified for the picture: {len(few):,} triangles for {len(corners):,}" in written
    assert with_counts(geometry, 7, 7) is geometry


def test_parts_of_two_ranks_give_the_picture_of_one() -> None:
    corners, faces = _sphere(12), np.arange(2 * 2 * 12 * 12)
    lower, upper = Geometry((Part("wall", "", corners),)).bounds()
    whole = draw_views(Geometry((Part("wall", "", corners, faces=faces),)), lower, upper)
    halves = [
        draw_views(
            Geometry((Part("wall", "", corners[rank::2], faces=faces[rank::2]),)),
            *(lower, upper),
            rank=rank,
        )
        for rank in (0, 1)
    ]
    for number in (0, 1):
        image = halves[0].images[number]
        image.merge(*halves[1].images[number].part())
        expected = whole.images[number]
        np.testing.assert_array_equal(image.depth, expected.depth)
        np.testing.assert_array_equal(image.outlines(), expected.outlines())


def test_borders_of_boundaries_are_drawn_with_and_without_those_of_faces() -> None:
    sides = [box_side(np.zeros(3), np.ones(3), side.axis, side.direction) for side in SIDES]
    parts = [Part(str(n), "", corners, faces=np.arange(2)) for n, corners in enumerate(sides)]
    lines = []
    for mesh_lines in (False, True):
        geometry = Geometry(tuple(parts))
        views = draw_views(geometry, *geometry.bounds(), mesh_lines=mesh_lines)
        image = views.images[0]
        values = np.unique(image.value[image.body >= 0])
        # Three sides, and where two of them meet, an outline.
        assert len(values) == 3
        both = (image.value[:, 1:] != image.value[:, :-1]) & (image.body[:, 1:] >= 0)
        both &= image.body[:, :-1] >= 0
        outlines = image.outlines()
        assert (outlines[:, 1:] | outlines[:, :-1])[both].all()
        assert both.sum() > 100
        lines.append(outlines.sum())
    # The diagonals of the sides.
    assert lines[1] > 1.2 * lines[0]


def test_colours_of_many_boundaries_differ() -> None:
    none = np.zeros((0, 3, 3))
    parts = [Part(str(n), "", none) for n in range(28)]
    parts += [Part("cells", "", none, kind="body"), Part("wall", "", none, kind="wall")]
    colours = np.array(colours_of(parts))
    distance = np.abs(colours[:, None] - colours).max(axis=2) + np.eye(len(parts))
    assert distance.min() > 0.03


def test_names_of_points_keep_apart() -> None:
    corners = np.concatenate(
        [box_side(np.zeros(3), np.ones(3), s.axis, s.direction) for s in SIDES]
    )
    places = np.array([[0.5, 0.5, 0.5], [0.52, 0.5, 0.5], [0.5, 0.62, 0.5], [0.66, 0.5, 0.5]])
    marks = Marks("probes", places, ("first", "second", "third", "fourth"))
    geometry = Geometry((Part("wall", "no-slip", corners),), (marks,))
    figure = _figure(geometry)
    figure.canvas.draw()
    inside = figure.axes[1]
    names = ("first", "second", "third", "fourth")
    texts = [t for t in inside.texts if any(name in t.get_text() for name in names)]
    # Points that coincide on the screen share a label.
    assert "first, second" in {text.get_text() for text in texts}
    boxes = [text.get_window_extent() for text in texts]
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[n + 1 :])


def test_both_axes_of_a_view_have_one_scale_and_units() -> None:
    geometry = simulate().solver.geometry()
    views = draw_views(geometry, *geometry.bounds())
    figure = draw(geometry_picture(geometry, views, "A title"))
    for axes in figure.axes:
        box = axes.get_window_extent()
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        assert box.width / (right - left) == pytest.approx(box.height / (bottom - top), rel=1e-6)
        labels = {text.get_text() for text in axes.texts}
        assert {f"{axis} (m)" for axis in "xyz"} <= labels
    heights = [axes.get_position().y0 for axes in figure.axes]
    assert all(a == b for a, b in pairwise(heights))


def test_names_of_axes_keep_clear_of_the_numbers_at_their_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Along the short axis of a long tube a name with a power of ten reaches farthest."""
    monkeypatch.setattr(geometry_views, "_ABOVE", (1200, 460))
    lower, upper = np.array([-6e-3, -6e-3, 0.0]), np.array([6e-3, 6e-3, 0.064])
    corners = np.concatenate([box_side(lower, upper, s.axis, s.direction) for s in SIDES])
    geometry = Geometry((Part("wall", "no-slip", corners),))
    figure = _figure(geometry)
    figure.canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text()]
    names = [text for text in texts if "(" in text.get_text()]
    assert "x (1e-3 m)" in {name.get_text() for name in names}
    for name in names:
        box = name.get_window_extent()
        others = [text.get_window_extent() for text in texts if text is not name]
        assert not any(box.overlaps(other) for other in others), name


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Any) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(MachineError, match="cannot be created"):
        save_geometry_picture(simulate(PLANE), tmp_path / "runs" / "case-check.png")
