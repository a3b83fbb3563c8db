"""What several files of unit tests share: a case, a measurement, the command in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from explorer_samples import write_sample
from fluid_on_one_thread import PassingForGpu
from small_cavities import TEXT

from haloscope import regions
from haloscope.commands import cli
from haloscope.commands import options as commands_world
from haloscope.scope.analysis.result import Result
from haloscope.solvers.blood.fluid import boundaries


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small case file; the test works in its folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "box.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def sample(tmp_path: Path) -> tuple[Path, Result]:
    """A measurement of nine ranks without a trace."""
    return tmp_path / "run", write_sample(tmp_path / "run", ranks=9, steps=2, trace=False)


@pytest.fixture
def passing_for_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PassingForGpu:
    """Cores that run the fluid's kernels for GPUs by one thread, which is a warp."""
    monkeypatch.setattr(boundaries, "WARP", 1)
    return PassingForGpu(tmp_path)


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Call the command in this process: exit code, standard output, standard error."""
    # On a busy machine every set-up is slow, and would be named on standard error.
    monkeypatch.setattr(regions, "SLOW_SECONDS", 1e6)

    def haloscope(*arguments: str | int | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["haloscope", *map(str, arguments)])
        monkeypatch.setattr(commands_world, "_world", None)
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        done = capsys.readouterr()
        return int(caught.value.code or 0), done.out, done.err

    return haloscope
