"""Claims about shipped cases: they are listed, copied, run by name, and they are in the wheel."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from refusals import refused

import haloscope
from haloscope.case import toml_files
from haloscope.case.tables import read_case
from haloscope.device.meters import Ceilings
from haloscope.solvers import registry

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "cases").glob("*.toml"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_all_files_of_cases_are_listed_with_solver_title_and_memory(call):
    code, out, err = call("cases")
    assert (code, err) == (0, "")
    rows = json.loads(call("cases", "--json")[1])
    assert [row["name"] for row in rows] == [path.stem for path in FILES]
    for row, line in zip(rows, out.splitlines()[1:], strict=True):
        assert line.split()[:2] == [row["name"], row["solver"]]
        assert line.endswith(row["title"])
        assert row["memory_bytes"] > 0


def test_a_copy_has_the_bytes_of_the_case_and_never_replaces_a_file(call):
    code, out, _ = call("cases", "cavity-2d", "--out", "mine here.toml")
    assert code == 0
    assert "haloscope run 'mine here.toml'" in out
    assert Path("mine here.toml").read_bytes() == (ROOT / "cases/cavity-2d.toml").read_bytes()
    code, _, err = call("cases", "cavity-2d", "--out", "mine here.toml")
    assert code == 2
    assert "exists" in err


def test_no_case_refers_to_another_file():
    for path in FILES:
        texts = json.dumps(read_case(path, (), registry.case_model).model_dump(mode="json"))
        assert not any(ending in texts for ending in (".msh", ".obj", ".stl", ".vtu", ".csv"))


def test_a_shipped_case_is_run_and_built_by_its_name(call, monkeypatch):
    made_up = Ceilings(copy=8.0, update=16.0, triad=12.0, load=0.5)
    monkeypatch.setattr("haloscope.run.summary.measure_ceilings", lambda device, sharing: made_up)
    settings = ("--set", "cavity.nodes=9", "--device", "cpu")
    quick = ("--steps", "2", "--set", "output.picture=false")
    code, out, _ = call("run", "cavity-2d", *settings, *quick)
    assert code == 0
    assert "runs/cavity-2d-1/summary.json" in out
    assert call("build", "cavity-2d", *settings, "--json")[0] == 0
    assert haloscope.load("cavity-2d", settings=["cavity.nodes=9"]).name == "cavity-2d"


def test_a_file_of_the_same_name_comes_first(call):
    Path("cavity-2d").write_text('solver = "lava"')
    code, _, err = call("run", "cavity-2d")
    assert code == 2
    assert "lava" in err
    assert toml_files.file_or_shipped(Path("cavity-2d")) == Path("cavity-2d")


@pytest.mark.parametrize("name", ["cavity-dem", "cases/cavity-demo.toml"])
def test_the_nearest_name_is_suggested(name):
    with refused(problem="does not exist", remedy="did you mean the shipped case cavity-demo"):
        haloscope.load(name)
    with refused(allowed="lid-driven", remedy="did you mean cavity-demo"):
        toml_files.shipped_file("cavity-dem")


def test_a_wheel_holds_the_cases_where_the_program_looks_for_them(tmp_path, monkeypatch):
    dist = pytest.importorskip("setuptools.dist", reason="setuptools is not installed")
    command = runpy.run_path(str(ROOT / "setup.py"))["BuildWithCases"]
    build = command(dist.Distribution({"name": "haloscope", "packages": []}))
    build.build_lib, build.packages, build.py_modules = str(tmp_path), [], []
    build.editable_mode = False
    build.run()
    monkeypatch.setattr(toml_files, "_INSTALLED", tmp_path / "haloscope" / "cases")
    monkeypatch.setattr(toml_files, "_CLONE", tmp_path / "no clone")
    assert toml_files.shipped_names() == [path.stem for path in FILES]
