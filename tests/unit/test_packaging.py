"""Claims about environments and packages: one for each Python; all files name the same versions."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_VERSIONS = ["3.11", "3.12", "3.13"]


def _project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile, and programs named python3 and python3.13 of these versions."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for name, version in (("python3", "3.11"), ("python3.11", "3.11"), ("python3.13", "3.13")):
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
    return tmp_path


def _environments(checkout: Path, *arguments: str) -> set[str]:
    """Environments that `make lint` would use."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        ["make", "--dry-run", "lint", *arguments],
        cwd=checkout,
        env={"PATH": f"{checkout / 'bin'}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(re.findall(r"(\.venv[\w.-]*)/bin/python -m", done.stdout))


def _make_environment(checkout: Path, name: str, version: str) -> None:
    (checkout / name / "bin").mkdir(parents=True)
    (checkout / name / "bin" / "pip").touch()
    (checkout / name / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {version}\n")


@pytest.mark.parametrize(
    ("python", "environment"),
    [
        ("python3", ".venv"),
        ("python3.11", ".venv-3.11"),
        ("python3.13", ".venv-3.13"),
        ("python3.99", ".venv-none"),
    ],
)
def test_each_python_has_its_own_environment(checkout, python, environment):
    _make_environment(checkout, ".venv", "3.11.7")
    assert _environments(checkout, f"PYTHON={python}") == {environment}


def test_an_environment_of_an_earlier_python3_is_not_used_again(checkout):
    assert _environments(checkout) == {".venv"}
    _make_environment(checkout, ".venv", "3.10.13")
    assert _environments(checkout) == {".venv-3.11"}


def test_environments_are_ignored_by_git_and_ruff():
    assert {"/.venv", "/.venv-*/"} <= set((ROOT / ".gitignore").read_text().splitlines())
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ".venv*" in ruff["extend-exclude"]


def test_all_files_name_the_same_versions_of_python():
    project = _project()
    assert project["requires-python"] == f">={_VERSIONS[0]}"
    prefix = "Programming Language :: Python :: "
    classifiers = [text.removeprefix(prefix) for text in project["classifiers"] if prefix in text]
    assert classifiers == _VERSIONS
    listed = f"Python {', '.join(_VERSIONS[:-1])} or {_VERSIONS[-1]}"
    assert listed in (ROOT / "README.md").read_text()
    assert listed in (ROOT / "CONTRIBUTING.md").read_text()
    assert f"for version in {' '.join(_VERSIONS)}; do" in (ROOT / ".ci" / "run").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert f"{_VERSIONS[0]} to {_VERSIONS[-1]}" in makefile
    assert "or newer" not in makefile


def test_the_citation_has_the_version_and_licence_of_the_package():
    project = _project()
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation
    assert f'  - name: "{project["authors"][0]["name"]}"\n' in citation


def test_the_container_recipe_copies_all_that_a_wheel_is_built_from() -> None:
    lines = (ROOT / "Containerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "src", "cases"} <= copied
