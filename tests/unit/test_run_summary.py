"""Claims about the summary of a run that hold for every solver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from short_channels import channel_text

import haloscope
from haloscope.commands.run import _closing
from haloscope.device.meters import Ceilings
from haloscope.exchange.ranks.world import World
from haloscope.run import summary as summaries
from haloscope.run.records import headline_of
from haloscope.solvers import registry

_SOLVERS = Path(haloscope.__file__).parent / "solvers"
# A box of 3 x 3 x 3 cells, as the channel of the template takes its time.
_BOX = channel_text([3] * 3, [1.0] * 3, "speed = 0.2", 1.0, 0.1)
_IN_TIME = _BOX + '[flow.time]\nscheme = "bdf2"\ntime_step = 0.1\nend = 1.0\n'
_SMALL = {
    "cavity": ["cavity.nodes=9"],
    "blood": ["blood.channel.size_um=[9.6, 6.0, 6.0]", "blood.cells=[]"],
    "maxwell": ["maxwell.order=2"],
    "flow": [],
    "flow in time": [],
}


def test_there_is_a_small_case_of_every_solver():
    assert set(_SMALL) >= set(registry.NAMES)


@pytest.mark.parametrize("kind", _SMALL)
def test_what_is_followed_is_no_other_key_of_the_summary(kind, tmp_path):
    path = tmp_path / "case.toml"
    if kind.startswith("flow"):
        path.write_text(_IN_TIME if kind == "flow in time" else _BOX)
    else:
        path.write_text((_SOLVERS / kind / "template.toml").read_text())
    simulation = haloscope.load(
        path, settings=[*_SMALL[kind], "run.diagnostics_interval=1"], device="cpu"
    )
    solver = simulation.solver
    name = solver.followed.name
    solver.followed = replace(solver.followed, name="followed")
    summary = simulation.run(2, ceilings=False)
    assert name not in summary
    assert summary["followed"] == simulation.history[-1][1]


def test_the_warning_of_several_residuals_names_the_largest(tmp_path):
    path = tmp_path / "case.toml"
    path.write_text(_BOX)
    summary = haloscope.load(path, device="cpu").run(1, ceilings=False)
    (warning,) = (line for line in summary["notices"] if "not steady" in line)
    assert warning.startswith("warning: not steady: residual ")


class _RanksOnSameCores(World):
    """One rank that takes itself for the first of several on the same cores."""

    def __init__(self, size):
        self.size = self.local_size = size

    def sharing(self, name):
        return self.size


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.setattr(summaries, "available_cores", lambda: 2)
    return haloscope.load("cavity-2d", settings=["cavity.nodes=9"], device="cpu")


class _Lines:
    def __init__(self):
        self.lines = []

    def line(self, text):
        self.lines.append(text)

    def update(self, step, end, rate, residual):
        pass


@pytest.mark.parametrize(("ranks", "crowded"), [(2, False), (3, True)])
def test_more_ranks_than_cores_are_noticed_and_get_no_share_of_a_bandwidth(
    simulation, ranks, crowded
):
    own, simulation.world = simulation.world, _RanksOnSameCores(ranks)
    progress = _Lines()
    summaries.note_crowded_cores(simulation, progress)
    simulation.world = own
    assert simulation.notices == progress.lines
    assert [line.partition(" (")[0] for line in progress.lines] == (
        ["more ranks than cores"] if crowded else []
    )
    summary = simulation.run(2, progress=progress)
    assert (summary["bandwidth"]["fraction"] is None) is crowded
    assert ("measured" in progress.lines[-1]) is not crowded
    text = _closing({**summary, "files": {}}, [])
    assert "GB/s" in text
    assert ("% of the memory bandwidth" in text) is not crowded


@pytest.mark.parametrize(("threads", "noticed"), [(2, False), (3, True)])
def test_more_threads_than_cores_are_noticed(monkeypatch, threads, noticed):
    monkeypatch.setattr(summaries, "available_cores", lambda: 2)
    simulation = haloscope.load(
        "cavity-2d", settings={"cavity.nodes": 9, "machine.threads": threads}, device="cpu"
    )
    progress = _Lines()
    summary = simulation.run(2, progress=progress)
    lines = [
        line for line in summary["notices"] if line.startswith("more threads than cores (3 on")
    ]
    assert bool(lines) is noticed
    assert set(lines) <= set(progress.lines)
    # One rank measures the bandwidth with all its threads at once.
    assert summary["bandwidth"]["fraction"] is not None


def test_ranks_that_take_turns_do_not_raise_the_bandwidth_of_the_machine(simulation):
    """Eight ranks on two cores have measured two cores, four times over."""
    measured = Ceilings(copy=10.0, update=20.0, triad=15.0, load=0.0)
    simulation.world = _RanksOnSameCores(8)
    summaries.note_crowded_cores(simulation, _Lines())
    of_all = summaries.ceiling_of_all(simulation, measured) * simulation.world.size
    assert of_all == pytest.approx(2 * measured.best)


@pytest.mark.parametrize(("steps", "doubt"), [(10**10, False), (2**40, True)])
def test_an_absurd_number_of_steps_is_doubted(simulation, monkeypatch, steps, doubt):
    monkeypatch.setattr(summaries, "ceiling_of_all", lambda state, ceilings: 1.0)
    progress = _Lines()
    simulation.solver.work = replace(simulation.solver.work, bytes=4000.0)
    summaries.log_least_time(simulation, steps, None, progress)
    assert "the run takes at least" in progress.lines[-1]
    assert progress.lines[-1].endswith("is so long a run meant?") is doubt


@pytest.mark.parametrize(("tolerance", "note"), [(0.0, False), (1e-5, True)])
def test_the_least_time_counts_all_steps_where_a_steady_state_ends_the_run(tolerance, note):
    simulation = haloscope.load(
        "cavity-2d", settings={"cavity.nodes": 9, "run.tolerance": tolerance}, device="cpu"
    )
    progress = _Lines()
    simulation.run(2, progress=progress)
    (least,) = (line for line in progress.lines if "take at least" in line)
    assert least.endswith(", if all are needed") is note


def test_a_picture_says_in_full_why_its_results_are_not_final():
    """Of the printed warning all but the remedy."""
    warning = (
        "warning: not steady: residual 4.6e-03 at step 4 (steady below 0.0001; run.tolerance is not "
        "set): the numbers are not final; raise run.steps"
    )
    summary = {"notices": [warning], "steps": 4, "converged": False, "headline": ["force 1 N"]}
    assert headline_of(summary, 60) == [
        "not steady: residual 4.6e-03 at step 4 (steady below 0.0001; run.tolerance is not set): the "
        "numbers are not final",
        "force 1 N",
    ]
