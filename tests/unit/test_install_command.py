"""Claims about the command that messages give for a missing extra: it fits the installation."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from haloscope import errors

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_a_clone_is_installed_from_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert errors.install_command("mpi") == "pip install -e '.[mpi]'"
    monkeypatch.chdir(tmp_path)
    assert errors.install_command("mpi") == f"pip install -e '{ROOT}[mpi]'"


def test_a_wheel_gets_the_packages_of_the_extra_alone(tmp_path, monkeypatch):
    requirements = [
        "numpy>=1.26",
        'mpi4py>=4; extra == "mpi"',
        'mpich>=4.2; extra == "mpi"',
        'intel-openmp; platform_machine == "x86_64" and extra == "compiler"',
        'mpi-other; extra == "mpi2"',
    ]
    monkeypatch.setattr(errors, "_CLONE", tmp_path)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: requirements)
    assert errors.install_command("mpi") == "pip install 'mpi4py>=4' 'mpich>=4.2'"
    command = errors.install_command("compiler")
    assert command == """pip install 'intel-openmp; platform_machine == "x86_64"'"""


def test_messages_name_extras_that_exist_and_no_package_haloscope():
    extras = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        assert "haloscope[" not in text, path
        extras |= set(re.findall(r"install_command\(['\"](\w+)", text))
    assert {"mpi", "mesh", "cuda13"} <= extras <= set(EXTRAS)
