"""Claims about the meshes of the tutorials: they fit their scripts and cases."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
SCRIPT, MESH = ROOT / "examples" / "cylinder.geo", ROOT / "examples" / "cylinder.msh"
MOST_BYTES = 200_000

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall((TUTORIALS / f"{page}.md").read_text(encoding="utf-8"))


def test_the_page_shows_the_script_of_the_stored_mesh() -> None:
    (shown,) = (text for language, text in _blocks("gmsh-flow") if language == "geo")
    comments, _, commands = SCRIPT.read_text(encoding="utf-8").partition("wall = ")
    assert all(line.startswith("//") for line in comments.splitlines())
    assert shown == f"wall = {commands}"


def test_the_stored_mesh_is_small_and_has_the_groups_of_its_script_and_of_the_case() -> None:
    assert MESH.stat().st_size < MOST_BYTES
    head, _, rest = MESH.read_text(encoding="ascii").partition("$PhysicalNames\n")
    assert head.split()[1] == "4.1"
    names = re.findall(r'"(\w+)"', rest.partition("$EndPhysicalNames")[0])
    script = re.findall(r'^Physical \w+\("(\w+)"\)', SCRIPT.read_text(), re.MULTILINE)
    assert sorted(names) == sorted(script)
    (case,) = (text for language, text in _blocks("gmsh-flow") if language == "toml")
    table = case.partition("[flow.boundaries]\n")[2].partition("\n\n")[0]
    assert sorted({*re.findall(r"^(\w+) =", table, re.MULTILINE), "fluid"}) == sorted(names)
