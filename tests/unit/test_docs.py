"""Claims about the documentation: it is in step with the code, its links lead somewhere, examples run."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from haloscope.case.tables import read_case
from haloscope.commands import cli
from haloscope.solvers import registry

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src" / "haloscope").rglob("*.md"),
    ]
)
CASES = sorted([*(ROOT / "cases").glob("*.toml"), *(ROOT / "src").rglob("template.toml")])
COMMANDS = ROOT / "docs" / "reference" / "commands.md"

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _without_code(text: str) -> str:
    """The text with code blocks blanked, in which brackets are no links and # no headings."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, by the rule that GitHub follows."""
    headings = re.findall(r"^#+ +(.+)$", _without_code(page.read_text()), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    # Of headings that are the same the second one has -1.
    again = [slugs[:n].count(slug) for n, slug in enumerate(slugs)]
    return {f"{slug}-{n}" if n else slug for slug, n in zip(slugs, again, strict=True)}


def _blocks(page: Path, language: str) -> list[str]:
    return [code for name, code in _BLOCK.findall(page.read_text()) if name == language]


def _run_python(arguments: list[str], folder: Path) -> None:
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["generate_reference", "generate_python_reference"])
def test_page_of_the_reference_is_what_the_code_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    specification = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    generator = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, name, generator)
    specification.loader.exec_module(generator)
    written = generator.PAGE.read_text(encoding="utf-8")
    assert written == generator.page(), f"run: python docs/{name}.py"


def test_python_in_the_page_of_the_interface_runs(tmp_path: Path) -> None:
    (tmp_path / "cases").symlink_to(ROOT / "cases")
    (code,) = _blocks(ROOT / "docs" / "reference" / "python.md", "python")
    _run_python(["-c", code], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("path", CASES, ids=_name)
def test_every_case_is_accepted(path: Path) -> None:
    assert read_case(path, [], registry.case_model).solver in registry.NAMES


def test_every_option_of_every_command_is_documented_and_no_other() -> None:
    sections = re.split(r"^## ", COMMANDS.read_text(), flags=re.MULTILINE)
    for name, command in typer.main.get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        if command.hidden:
            continue
        section = next(text for text in sections if text.startswith(f"haloscope {name}\n"))
        documented = set(re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE))
        usage = section.split("\n    haloscope", 1)[1].split("\n")[0]
        documented |= set(re.findall(r"--[\w-]+", usage))
        existing = {option for parameter in command.params for option in parameter.opts}
        assert documented == {option for option in existing if option.startswith("--")} - {"--help"}


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=_name)
def test_example_runs_and_draws(example: Path, tmp_path: Path) -> None:
    _run_python([str(example)], tmp_path)
    assert list(tmp_path.glob("*.png"))
