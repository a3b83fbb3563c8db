"""Claims about a wheel: installed outside the tree, on a plain machine, it runs a case."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
_PLACE = "Büro 1"
_PLAIN = {"HOME": "/dev/null/home", "LANG": "C", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}


def _pip(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    # Sources on PYTHONPATH would count as installed.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; it has the dependencies of the running one."""
    folder = tmp_path_factory.mktemp("wheel") / _PLACE
    folder.mkdir()
    # A copy, since building leaves files behind.
    sources = folder / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    shutil.copytree(ROOT / "cases", sources / "cases")
    for name in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, sources)
    built = _pip("wheel", "--no-deps", "--wheel-dir", folder, sources)
    if built.returncode and "No matching distribution found for setuptools" in built.stderr:
        pytest.skip("setuptools, which builds the wheel, cannot be downloaded")
    assert built.returncode == 0, built.stderr
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("haloscope-*.whl")
    installed = _pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    (packages,) = environment.glob("lib/python*/site-packages")
    # Lines of .pth files in a folder that is added so are not followed: this tree is not there.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def _run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command where HOME cannot be written and texts are ASCII."""
    kept = {key: os.environ[key] for key in ("PATH", "CXX", "TMPDIR") if key in os.environ}
    return subprocess.run(
        [folder / "environment" / "bin" / "haloscope", *arguments],
        cwd=folder,
        env={**kept, **_PLAIN, **variables},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
    )


def test_an_installed_wheel_shows_its_version(folder: Path) -> None:
    done = _run(folder, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("haloscope ")
    assert done.stderr == ""


def test_an_installed_wheel_has_the_shipped_cases(folder: Path) -> None:
    listed = _run(folder, "cases")
    assert listed.returncode == 0, listed.stderr
    assert all(path.stem in listed.stdout for path in (ROOT / "cases").glob("*.toml"))
    done = _run(folder, "run", "cavity-2d", "--check", HALOSCOPE_CACHE=str(folder / "kernels"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("solver", ["cavity", "flow"])
def test_an_installed_wheel_runs_a_case_without_a_writable_home(folder: Path, solver: str) -> None:
    assert _run(folder, "new", solver).returncode == 0
    arguments = (
        "run",
        f"{solver}.toml",
        "--steps",
        "1",
        "--device",
        "cpu",
        "--out",
        f"aus {solver}",
    )
    refused = _run(folder, *arguments)
    assert refused.returncode == 3
    assert "kernel cache folder /dev/null/home/" in refused.stderr
    assert "set HALOSCOPE_CACHE" in refused.stderr
    done = _run(folder, *arguments, HALOSCOPE_CACHE=str(folder / "kernels"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / f"aus {solver}" / "summary.json").exists()
    assert (folder / f"aus {solver}" / "overview.png").exists()
