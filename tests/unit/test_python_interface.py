"""Claims about the Python interface: cases and settings as dicts, coordinates, data sets, tables."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from small_cavities import TEXT

import haloscope

BOX = {
    "solver": "cavity",
    "cavity": {"nodes": [8, 6, 7], "size": [0.04, 0.03, 0.05]},
    "run": {"steps": 4},
    "output": {"picture": False},
    "machine": {"device": "cpu", "threads": 1},
}


def test_settings_as_a_dict_are_those_of_texts(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    texts = haloscope.load(path, settings=["run.steps=7", "cavity.nodes=[8, 6, 7]", "title=A box"])
    values = {"run.steps": np.int64(7), "cavity.nodes": (8, 6, 7), "title": "A box"}
    assert haloscope.load(path, settings=values).case == texts.case


def test_a_case_as_a_dict_is_that_of_a_file_and_stays_as_it_is(tmp_path):
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    tables = {
        "solver": "cavity",
        "cavity": {"nodes": np.array([15, 13, 14]), "size": (0.05, 0.04, 0.045)},
        "run": {"steps": 60, "diagnostics_interval": 20},
        "machine": {"device": "cpu", "threads": 1},
    }
    before = copy.deepcopy(tables)
    simulation = haloscope.load(tables, settings={"run.steps": 3})
    assert simulation.case == haloscope.load(path, settings=["run.steps=3"]).case
    assert simulation.name == "case"
    assert repr(tables) == repr(before)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("cavity.nodes=33", "of the type str"),
        (b"cavity.nodes=33", "of the type bytes"),
        (33, "of the type int"),
        (None, "of the type NoneType"),
        ([("cavity.nodes", 33)], r"the item \('cavity.nodes', 33\) is not text"),
        ({1: 33}, "the key 1 is not text"),
    ],
)
def test_settings_of_a_wrong_kind_are_refused(settings, problem):
    with refused(
        location="^settings$", problem=problem, allowed="a dict of dotted keys or a list of texts"
    ) as refusal:
        haloscope.load(BOX, settings=settings)
    assert "\n" not in refusal.text


@pytest.mark.parametrize(
    ("settings", "location", "problem"),
    [
        ({"cavity.nodes": None}, "^settings cavity.nodes$", "of the type NoneType"),
        ({"cavity.size": [1, {2}]}, "^settings cavity.size.1$", "of the type set"),
        ({"cavity..nodes": 3}, "^settings 'cavity..nodes'$", "^wrong form$"),
        ({"cavity": {1: 2}}, "^settings cavity$", "the key 1 is not text"),
        ({"cavity.nodes.7": 3}, "^settings cavity.nodes.7$", "has no item 7"),
        ({"cavity.node": 3}, "^case: cavity.node$", "^unknown key$"),
        ({"cavity.nodes": "many"}, "^case: cavity.nodes", ""),
        ({"title": "a\0"}, "^settings title$", "value zero"),
    ],
)
def test_a_wrong_setting_of_a_dict_is_refused_with_its_key(settings, location, problem):
    with refused(location=location, problem=problem):
        haloscope.load(BOX, settings=settings)


def test_a_wrong_case_is_refused():
    with refused(location="^case$", problem="of the type int", allowed="path .* or a dict"):
        haloscope.load(3)
    with refused(location="^case: solver$", problem="is missing"):
        haloscope.load({"cavity": {"nodes": 5}})
    nested: dict = {}
    nested["cavity"] = nested
    with refused(location="^case", problem="nested too deeply"):
        haloscope.load(nested)
    with refused(location="^case: probe a$", problem="outside the grid"):
        haloscope.load(BOX, settings={"output.probes": [{"name": "a", "position": [1, 0, 0]}]})


def test_a_path_among_settings_is_text():
    assert haloscope.load(BOX, settings={"title": Path("a/b")}).case.title == "a/b"
