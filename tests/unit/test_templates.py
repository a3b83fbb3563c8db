"""Claims about the templates of `haloscope new`: each commented alternative runs when uncommented."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from closed_surfaces import tube
from written_meshes import write_gmsh, write_tets

import haloscope
from haloscope.case.tables import read_case
from haloscope.mesh.hexes.hex_generators import box
from haloscope.mesh.surfaces.surface_files import write_stl
from haloscope.mesh.tets.tet_generators import tet_box
from haloscope.mesh.tets.tets import make_tet_mesh
from haloscope.solvers import registry

_HEADER = re.compile(r"\[+[\w.]+\]+(?= *(#|$))")
_KEY = re.compile(r'([\w"+-]+) = ')
_REPLACES = "# In place of "


@dataclass(frozen=True)
class Alternative:
    """Commented lines of a template that are used together."""

    lines: tuple[int, ...]
    replaced: str  # Tables and keys that they take the place of, as the line before them names them

    def title(self, text: list[str]) -> str:
        return text[self.lines[0]][2:].partition("#")[0].strip()


def alternatives(text: list[str]) -> list[Alternative]:
    """A commented table with the lines that follow it, or a commented key by itself."""
    blocks: list[list[int]] = []
    in_table = False
    for number, line in enumerate(text):
        code = line[2:] if line.startswith("# ") else ""
        if _HEADER.match(code):
            if not in_table:
                blocks.append([])
            in_table = True
            blocks[-1].append(number)
        elif not _KEY.match(code):
            in_table = False
        elif in_table or (blocks and blocks[-1][-1] == number - 1):
            blocks[-1].append(number)
        else:
            blocks.append([number])
    replaced = [text[block[0] - 1] for block in blocks]
    return [
        Alternative(
            tuple(block), line.removeprefix(_REPLACES) if line.startswith(_REPLACES) else ""
        )
        for block, line in zip(blocks, replaced, strict=True)
    ]


def _replaced(alternative: Alternative) -> list[str]:
    """Names of the tables, with brackets, and of the keys."""
    names = re.findall(r"\[+[\w.]+\]+|\w+", alternative.replaced)
    return [name for name in names if name != "and"]


def uncommented(text: list[str], alternative: Alternative) -> str:
    """The template with one alternative, without the tables and keys that it replaces."""
    replaced = _replaced(alternative)
    lines = []
    table = ""
    for number, line in enumerate(text):
        header = _HEADER.match(line)
        key = _KEY.match(line)
        table = header[0] if header else table
        if number in alternative.lines:
            lines.append(line[2:])
        elif not (table in replaced and (header or key)) and not (key and key[1] in replaced):
            lines.append(line)
    return "\n".join(lines)


def _write_meshes(folder: Path) -> None:
    """Files that the templates name, with the surfaces and zones that they name."""
    pytest.importorskip("meshio")
    write_stl(folder / "vessel.stl", tube(0.01, 0.042))
    mesh = box((6, 4, 4), (0.0, 0.0, 0.0), (300.0, 200.0, 200.0))
    sides = {name: mesh.outer_faces(name) for name in mesh.boundary_names}
    antenna = sides.pop("x-")
    surfaces = {"antenna": antenna, "outside": np.concatenate(list(sides.values()))}
    write_gmsh(folder / "antenna.msh", mesh, surfaces)
    plain = tet_box((4, 2, 2), upper=(200.0, 100.0, 100.0))
    walls = dict(plain.boundaries)
    groups = {"inlet": walls.pop("x_low"), "outlet": walls.pop("x_high")}
    groups["blades"] = walls.pop("z_low")
    groups["housing"] = np.concatenate(list(walls.values()))
    zones = np.zeros(len(plain.tets), np.int64)
    pump = make_tet_mesh(plain.nodes, plain.tets, groups, zones, ("rotor",))
    write_tets(pump, folder / "pump.msh")


_ALTERNATIVES = [
    pytest.param(solver, alternative, id=f"{solver}: {alternative.title(text)}")
    for solver in registry.NAMES
    for text in [registry.template(solver).splitlines()]
    for alternative in alternatives(text)
]


@pytest.mark.parametrize(("solver", "alternative"), _ALTERNATIVES)
def test_each_commented_alternative_of_a_template_runs(solver, alternative, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = registry.template(solver).splitlines()
    path = tmp_path / "case.toml"
    path.write_text(uncommented(text, alternative))
    if any("file = " in text[number] for number in alternative.lines):
        _write_meshes(tmp_path)
    simulation = haloscope.load(path, device="cpu")
    # Steady flow ends by itself where Newton's method converges.
    steady = solver == "flow" and 'scheme = "steady"' in path.read_text()
    summary = simulation.run(30 if steady else 2, ceilings=False)
    assert summary["steps"] < 30


def _values_in_comments(text: list[str]) -> list[tuple[str, str]]:
    """Lines with another value that the comment beside a key quotes: `flux = "central"`."""
    lines = []
    for line in text:
        code, _, comment = line.partition("#")
        match = re.fullmatch(r'(\w+ = )"[\w-]+" *', code)
        if match:
            lines += [(line, match[1] + value) for value in re.findall(r'"[\w-]+"', comment)]
    return lines


@pytest.mark.parametrize("solver", registry.NAMES)
def test_values_that_the_comment_of_a_key_quotes_are_accepted(solver, tmp_path):
    text = registry.template(solver).splitlines()
    values = _values_in_comments(text)
    assert values
    for number, (line, other) in enumerate(values):
        path = tmp_path / f"{number}.toml"
        path.write_text("\n".join(text).replace(line, other))
        assert read_case(path, [], registry.case_model).solver == solver


@pytest.mark.parametrize("solver", registry.NAMES)
def test_a_template_shows_alternatives_and_names_only_tables_and_keys_that_it_sets(solver):
    text = registry.template(solver).splitlines()
    assert len(alternatives(text)) >= 4
    active = {match[0] for line in text if (match := _HEADER.match(line))}
    active |= {match[1] for line in text if (match := _KEY.match(line))}
    named = {name for alternative in alternatives(text) for name in _replaced(alternative)}
    assert named <= active
