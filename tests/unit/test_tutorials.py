"""Claims about the tutorials: what a reader types prints the numbers shown; meshes fit their scripts."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from haloscope.case.tables import read_case
from haloscope.solvers import registry

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
SCRIPT, MESH = ROOT / "examples" / "cylinder.geo", ROOT / "examples" / "cylinder.msh"
MOST_BYTES = 200_000
# The other two have tests of their own: test_docs.py, and test_tutorial.py of tests/mpi.
PAGES = ["gmsh-flow", "red-cell", "antenna", "notebook"]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Installing and opening a program are the reader's.
_NOT_RUN = {"pip", "jupyter"}
_TIME = re.compile(r"[\d.e+-]+(?= s of stepping)")


def _blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall((TUTORIALS / f"{page}.md").read_text(encoding="utf-8"))


def _normal(line: str) -> str:
    """The line with single blanks, and without the time that depends on the machine."""
    return _TIME.sub("...", " ".join(line.split()))


def _output_of(command: str) -> str:
    program, *arguments = shlex.split(command, comments=True)
    if program in _NOT_RUN:
        return ""
    assert program == "haloscope", command
    done = subprocess.run(
        [sys.executable, "-m", "haloscope", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder that shows the repository's files."""
    monkeypatch.chdir(folder)
    for name in ("cases", "examples"):
        (folder / name).symlink_to(ROOT / name)


def _write_case(text: str) -> None:
    """Save a case under the name in its first line."""
    name = text.partition("\n")[0].removeprefix("# ")
    Path(name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_cases_and_settings_of_a_tutorial_are_accepted_and_its_python_compiles(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _enter(tmp_path, monkeypatch)
    for language, text in _blocks(page):
        if language == "toml":
            _write_case(text)
        elif language == "python":
            compile(text, page, "exec")
        elif language == "sh":
            for command in text.splitlines():
                words = shlex.split(command)
                if words[0] in _NOT_RUN:
                    continue
                assert words[:2] == ["haloscope", "run"]
                settings = [value for name, value in pairwise(words) if name == "--set"]
                read_case(Path(words[2]), settings, registry.case_model)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_commands_and_python_of_a_tutorial_print_the_lines_that_it_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _enter(tmp_path, monkeypatch)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__main__"}
    printed: set[str] = set()
    missing = []
    for language, text in _blocks(page):
        if language == "toml":
            _write_case(text)
        elif language == "sh":
            for command in text.splitlines():
                printed.update(map(_normal, _output_of(command).splitlines()))
        elif language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(text, namespace)
            printed.update(map(_normal, output.getvalue().splitlines()))
        elif language == "text":
            missing += [line for line in text.splitlines() if _normal(line) not in printed]
    assert not missing


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
