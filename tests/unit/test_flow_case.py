"""Claims about flow cases: what is wrong is refused in one line, with exit code 2, before any step."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path

import meshio
import numpy as np
import pytest
from case_keys import describe
from refusals import refused
from short_channels import channel_text
from written_meshes import write_tets

from haloscope.case.tables import check
from haloscope.errors import InputError
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.solvers import registry
from haloscope.solvers.carreau import Carreau
from haloscope.solvers.flow.case import FlowCase
from haloscope.solvers.flow.meshes import elements_of, make_mesh

SIDES = ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")
_CHANNEL = channel_text([3, 2, 2], [1.5, 1.0, 1.0], "speed = 0.1")


@pytest.fixture
def refusal(tmp_path, call):
    """What the command says of a case with some settings: one line, exit code 2."""
    path = tmp_path / "channel.toml"
    path.write_text(_CHANNEL)

    def message(*settings: str) -> str:
        options = itertools.chain.from_iterable(("--set", setting) for setting in settings)
        code, out, err = call("run", path, "--out", tmp_path / "out", "--device", "cpu", *options)
        assert code == 2, err
        assert out == ""
        assert len(err.splitlines()) == 1
        return err

    return message


def checked(**changes) -> FlowCase:
    """A checked case of a box with walls, and other keys."""
    table = {
        "box": {"cells": [2, 2, 2]},
        "fluid": {"density": 1.0, "viscosity": 1.0},
        "boundaries": {**dict.fromkeys(SIDES, "no-slip"), "x_high": "open"},
    }
    if changes.keys() & {"cylinder_channel", "cylinder_slice", "mesh"}:
        del table["box"]
    case = check({"solver": "flow", "flow": {**table, **changes}}, FlowCase, "test")
    assert isinstance(case, FlowCase)
    return case


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("flow.fluid.viscosty=1", ["flow.fluid.viscosty: unknown key", "did you mean viscosity?"]),
        (
            "flow.fluid.carreau={at_high_shear=0.1, time=1.0, exponent=0.5, a=1.25}",
            ["flow.fluid.carreau.a: unknown key", "at_high_shear, exponent, time"],
        ),
        ("flow.fluid.density=-1.0", ["flow.fluid.density = -1.0", "or equal to 1e-30"]),
        (
            "flow.boundaries.outlet='open'",
            ["flow.boundaries.outlet: ", "no boundary 'outlet'", "allowed: x_low, x_high, y_low"],
        ),
        ("flow.boundaries.x_low='opne'", ["flow.boundaries.x_low", "'no-slip', 'slip' or 'open'"]),
        (
            "flow.boundaries.x_low={}",
            ["flow.boundaries.x_low: no condition is set", "one of velocity, speed"],
        ),
        (
            "flow.boundaries={''='open'}",
            [
                "flow.boundaries: the name '' is not allowed: wrong length; allowed: at least 1 character"
            ],
        ),
        (
            "flow.boundaries.x_low={velocity=2}",
            ["channel.toml: flow.boundaries.x_low.velocity = 2"],
        ),
        ("flow.boundaries.inlet-1={}", ["flow.boundaries.inlet-1", "no condition is set"]),
        (
            "flow.boundaries.x_low={speed=1.0,pressure=1.0}",
            ["one of velocity", "speed and pressure are set"],
        ),
        ("flow.boundaries.x_low={speed='sin(x)'}", ["x_low.speed", "'x'"]),
        ("flow.boundaries.x_low={velocity=['1/(y-y)',0.0,0.0]}", ["x_low.velocity", "finite"]),
        (
            "flow.boundaries.x_low={speed=1.0,backflow=0.5}",
            ["x_low.backflow = 0.5: it has no effect on speed", "allowed: with pressure, traction"],
        ),
        ("flow.boundaries.x_low={speed=1.0,signal='no.csv'}", ["no.csv"]),
        ("flow.boundaries.x_high='no-slip'", ["the pressure has no reference", "pressure_at"]),
        (
            "flow.pressure_at=[0.0,0.0,0.0]",
            ["flow.boundaries.x_high has one", "leave flow.pressure_at out"],
        ),
        ("flow.zones.rotor={}", ["flow.zones.rotor: ", "no such zone", "allowed: volume"]),
        ("flow.cylinder_channel={}", ["flow: box and cylinder_channel are set"]),
        ("flow.time.scheme=bdf2", ["flow.time.time_step and flow.time.end"]),
        ("flow.time={scheme='bdf2',time_step=2.0,end=1.0}", ["longer than flow.time.end"]),
        ("flow.time={time_step=2.0}", ["for unsteady flow"]),
        ("flow.time={scheme='bdf2',time_step=1e-30,end=1e30}", ["1e+60 steps", "lengthen"]),
        ("flow.slice.offset=99.0", ["z = 99 m: it misses the mesh", "allowed: 0 to 1 m"]),
        ("flow.linear.preconditioner=amg", ["two-level", "block-ilu"]),
        ("flow.forces=[{name='a',boundaries=['hub']}]", ["flow.forces 'a'", "no boundary 'hub'"]),
        (
            "flow.forces=[{name='a',boundaries=['x_low'],area=1.0}]",
            ["flow.forces.0: ", "set both velocity and area"],
        ),
        ("flow.head={inlet='x_low',outlet='out'}", ["flow.head", "no boundary 'out'"]),
        ("flow.box.cells=[0,2,2]", ["flow.box.cells"]),
        ("flow.initial.u='1/x'", ["flow.initial.u", "finite"]),
        ("output.probes=[{name='p',position=[9.0,0.5,0.5]}]", ["probe p", "7.5 m"]),
    ],
)
def test_bad_input_is_refused_in_one_line_that_says_what_is_allowed(refusal, setting, parts):
    message = refusal(setting)
    for part in parts:
        assert part in message


def test_boundaries_without_a_condition_are_listed(tmp_path, call):
    path = tmp_path / "bare.toml"
    path.write_text(
        "\n".join(
            line for line in _CHANNEL.splitlines() if not line.startswith(("y_low", "z_high"))
        )
    )
    code, _, err = call("run", path, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert "the boundaries y_low, z_high of the mesh" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("outlet", "time", "said"),
    [
        (
            "'no-slip'",
            "{}",
            "at 0 s the velocities of the boundaries let 0.1 m^3/s more in than out",
        ),
        ("{speed=-0.3}", "{}", "let 0.2 m^3/s more out than in"),
        (
            "{speed='-0.1+t'}",
            "{scheme='bdf2',time_step=0.1,end=0.8}",
            "at 0.1 s the velocities of the boundaries let 0.1 m^3/s more in than out",
        ),
    ],
)
def test_a_closed_vessel_lets_as_much_in_as_out(refusal, outlet, time, said):
    closed = "flow.pressure_at=[0.0,0.0,0.0]", "flow.boundaries.x_low={speed=0.1}"
    message = refusal(f"flow.boundaries.x_high={outlet}", f"flow.time={time}", *closed)
    assert said in message
    assert "flow.pressure_at" in message


def test_a_run_begins_with_the_shape_of_the_elements(tmp_path, call):
    path = tmp_path / "channel.toml"
    path.write_text(_CHANNEL)
    code, _, err = call("run", path, "--steps", 0, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 0, err
    assert "quality SICN at least 0.775, median 0.775\n" in err
    assert "dihedral angles 45.0 to 90.0 degrees\n" in err


def test_steady_flow_says_that_it_takes_what_depends_on_time_at_its_start(tmp_path, call):
    path, signal = tmp_path / "channel.toml", tmp_path / "beat.csv"
    path.write_text(_CHANNEL)
    signal.write_text("0,1\n1,2\n")
    sides = [
        ("x_low = { speed = 0.1 }", 'x_low = { speed = "0.1 + t" }', "x_low.speed"),
        ('x_high = "open"', 'x_high = { pressure = "100*t*y" }', "x_high.pressure"),
        ('z_low = "no-slip"', 'z_low = { velocity = [0.0, "sin(t)", 0.0] }', "z_low.velocity"),
        ("speed = 0.1 }", f'speed = 0.1, signal = "{signal}" }}', "x_low.signal"),
        ("speed = 0.1 }", 'speed = "2*0.05" }', None),
    ]
    for number, (old, new, key) in enumerate(sides):
        path.write_text(_CHANNEL.replace(old, new))
        out = tmp_path / f"out{number}"
        code, _, err = call("run", path, "--steps", 0, "--out", out, "--device", "cpu")
        assert code == 0, err
        notices = [line for line in err.splitlines() if "depends on t, and steady flow" in line]
        assert [line.split()[0] for line in notices] == ([f"flow.boundaries.{key}"] if key else [])
    times = ("flow.time.scheme=bdf2", "flow.time.time_step=0.1", "flow.time.end=0.1")
    options = itertools.chain.from_iterable(("--set", setting) for setting in times)
    path.write_text(_CHANNEL.replace(*sides[0][:2]))
    _, _, err = call("run", path, "--out", tmp_path / "bdf2", "--device", "cpu", *options)
    assert "steady flow has no time" not in err


def _file_case(path: Path) -> str:
    """The channel's case with a mesh from a file."""
    box = _CHANNEL.index("[flow.box]"), _CHANNEL.index("[flow.fluid]")
    return f'{_CHANNEL[: box[0]]}[flow.mesh]\nfile = "{path}"\n{_CHANNEL[box[1] :]}'


def _flattened(nodes: np.ndarray) -> np.ndarray:
    """One node moved so that an element is almost flat."""
    moved = nodes.copy()
    inner = np.flatnonzero((np.abs(nodes - [0.5, 0.5, 0.5]) < 0.1).all(axis=1))
    moved[inner, 0] += 0.4999
    return moved


def test_slivers_are_named_and_may_be_allowed(tmp_path, call):
    mesh = tmp_path / "sliver.msh"
    write_tets(tet_box((3, 2, 2), upper=(1.5, 1.0, 1.0), shape=_flattened), mesh)
    path = tmp_path / "sliver.toml"
    path.write_text(_file_case(mesh))
    code, _, err = call("run", path, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert "slivers" in err
    assert "element" in err
    assert len(err.splitlines()) == 1
    case = check(
        {
            "solver": "flow",
            "flow": {
                "mesh": {"file": str(mesh), "smallest_quality": 0.0},
                "fluid": {"density": 1.0, "viscosity": 1.0},
                "boundaries": dict.fromkeys(SIDES, "no-slip"),
            },
        },
        FlowCase,
        "test",
    )
    assert make_mesh(case.flow).count == 72


@pytest.mark.parametrize(
    ("tets", "said"),
    [
        ([[0, 1, 2, 3], [4, 5, 6, 7]], "2 parts that share no face"),
        ([[0, 1, 2, 3], [0, 1, 2, 8]], "lie on the same side of the face they share"),
    ],
)
def test_broken_meshes_are_refused(tmp_path, call, tets, said):
    corner = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], float)
    points = np.concatenate([corner, corner + 3, [[1.0, 1.0, 1.0]]])
    mesh = tmp_path / "broken.vtu"
    meshio.Mesh(points, [("tetra", np.array(tets))]).write(mesh)
    path = tmp_path / "broken.toml"
    path.write_text(_file_case(mesh))
    code, _, err = call("run", path, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_mesh_that_is_not_there_is_refused(tmp_path, call):
    path = tmp_path / "absent.toml"
    path.write_text(_file_case(tmp_path / "absent.msh"))
    code, _, err = call("run", path, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert "absent.msh: it does not exist" in err
    path.write_text(_file_case(tmp_path))
    code, _, err = call("run", path, "--out", tmp_path / "out", "--device", "cpu")
    assert code == 2
    assert "it is a folder; give a file in it that ends in .msh, .vtu, .vtk" in err


def test_more_ranks_than_elements_are_refused_before_any_rank_starts(tmp_path, call):
    path = tmp_path / "channel.toml"
    path.write_text(_CHANNEL)
    code, _, err = call("run", path, "--out", tmp_path / "out", "--ranks", "100")
    assert code == 2
    assert "72" in err


@pytest.mark.parametrize("name", ["a.msh", "a.vtu"])
def test_ranks_are_held_against_the_elements_of_a_file_or_about_so_many(tmp_path, name):
    path = tmp_path / name
    write_tets(tet_box((1, 1, 1)), path, "vtu" if name == "a.vtu" else "gmsh22", binary=False)
    case = checked(mesh={"file": str(path)})
    about = elements_of(case.flow)
    assert about > 7
    if name == "a.msh":
        with refused(problem="7 parts for a mesh of 6 elements", allowed="^1 to 6$"):
            registry.check_ranks(case, 7)
    else:
        with refused(
            problem=f"a mesh of about {about} elements, by the size of the file",
            allowed=f"^at most about {about}$",
        ):
            registry.check_ranks(case, about + 1)
    registry.check_ranks(case, 6)


def test_the_number_of_elements_is_known_before_there_is_a_mesh():
    names = ("inlet", "outlet", "walls", "cylinder")
    channel = {
        "cylinder_channel": {"resolution": 5},
        "boundaries": dict.fromkeys(names, "no-slip"),
    }
    thin = {
        "cylinder_slice": {"resolution": 4, "layers": 2},
        "boundaries": dict.fromkeys((*names, "back", "front"), "no-slip"),
    }
    for changes in ({}, channel, thin):
        table = checked(**changes).flow
        assert elements_of(table) == make_mesh(table).count


def test_a_box_can_be_drawn_towards_its_walls():
    mesh = make_mesh(checked(box={"cells": [8, 2, 2], "to_walls": 0.5}).flow)
    widths = np.diff(np.unique(mesh.nodes[:, 0]))
    assert widths == pytest.approx(widths[::-1], rel=1e-12)
    assert widths[0] < 0.6 * widths[3]
    assert mesh.nodes.min() == 0.0
    assert mesh.nodes.max() == 1.0


def test_zones_take_what_they_do_not_say_from_the_fluid():
    law = {"at_high_shear": 3e-3, "time": 3.3, "exponent": 0.4}
    fluid = {"density": 1050.0, "viscosity": 0.056, "carreau": law, "force": [0.0, 0.0, -9.81]}
    zones = {"rotor": {"rotation": [0.0, 0.0, 100.0], "viscosity": 0.004}}
    table = checked(fluid=fluid, zones=zones).flow
    other, rotor = table.medium("diffuser"), table.medium("rotor")
    assert (other.viscosity, other.rotation) == (0.056, (0.0, 0.0, 0.0))
    assert (rotor.viscosity, rotor.rotation) == (0.004, (0.0, 0.0, 100.0))
    assert rotor.force == other.force == (0.0, 0.0, -9.81)
    assert rotor.carreau == Carreau(0.004, 3e-3, 3.3, 0.4)


def test_studies_sweep_cells_and_let_a_box_grow():
    own = registry.sweeping("flow")
    data = {
        "solver": "flow",
        "flow": json.loads(checked().flow.model_dump_json(exclude_unset=True)),
    }
    own.put(data["flow"], "elements", (2, 4, 6))
    alone = own.lay_out(copy.deepcopy(data), 1, "auto", "strong")
    assert alone.nodes == (2, 4, 6)
    assert alone.columns == {"elements": "2x4x6", "tetrahedra": 288, "preconditioner": "auto"}
    grown = own.lay_out(data, 4, "auto", "type1")
    assert grown.nodes == (2, 8, 12)
    assert data["flow"]["box"]["upper"] == [1.0, 2.0, 2.0]
    channel = {"cylinder_channel": {}}
    own.put(channel, "elements", 7)
    assert channel == {"cylinder_channel": {"resolution": 7}}
    with refused(location="^elements$", problem="neither a box", remedy="flow.box"):
        own.put({"mesh": {"file": "a.msh"}}, "elements", 7)
    data["flow"]["box"]["to_walls"] = 0.5
    with refused(location="type1", problem="cells of one size", remedy="flow.box.to_walls"):
        own.lay_out(data, 2, "auto", "type1")
    assert own.rates({}, 1000, 2.0) == {"steps_per_hour": 1800.0}


def test_no_value_of_any_key_does_worse_than_a_refusal_in_one_line():
    keys = [row[0] for row in describe(FlowCase) if row[0].startswith("flow.")]
    assert len(keys) > 80
    base = json.loads(checked().model_dump_json(exclude_unset=True))
    for key, value in itertools.product(keys, (-1, 0, 1e300, "", "x/0", [], {})):
        data = json.loads(json.dumps(base))
        table = data
        *path, last = key.split(".")
        for name in path:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                break
        if not isinstance(table, dict):
            continue
        table[last] = value
        try:
            case = check(data, FlowCase, "my-case.toml")
        except InputError as error:
            assert "\n" not in str(error), (key, value)
            assert "my-case.toml" in str(error), (key, value)
        else:
            assert registry.estimate(case)["memory_bytes"] > 0
