"""Claims about Maxwell cases: what they compute, write and go on from, and what they refuse."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from refusals import refused

from haloscope.case.tables import check
from haloscope.device import open_device
from haloscope.errors import SolutionError
from haloscope.exchange.ranks.world import World
from haloscope.run import Simulation
from haloscope.solvers.maxwell.case import IMPEDANCE, LIGHT, MaxwellCase

_WALLS = dict.fromkeys(("x-", "x+", "y-", "y+", "z-", "z+"), "pec")


def cavity(order: int = 4, **more: Any) -> dict[str, Any]:
    """A mode of a box of conducting walls, 0.2 m wide, in SI units."""
    table = {
        "order": order,
        "end_time": 1e-9,
        "box": {"elements": [2, 2, 2], "upper": [0.2, 0.2, 0.2]},
        "boundaries": _WALLS,
        "exact": {"solution": "cavity-te101", "size": [0.2, 0.2, 0.2]},
    }
    return {"solver": "maxwell", "maxwell": {**table, **more}, "run": {"diagnostics_interval": 10}}


def opened(data: dict[str, Any], **tables: Any) -> Simulation:
    case = check({"output": {"picture": False}, **data, **tables}, MaxwellCase, "test")
    return Simulation(case, device=open_device("cpu", threads=2), world=World())


def test_a_mode_in_si_units_is_that_of_the_exact_solution():
    simulation = opened(cavity(7))
    summary = simulation.run(ceilings=False)
    diagnostics = summary["diagnostics"]
    assert diagnostics["time"] == pytest.approx(1e-9, rel=1e-12)
    assert diagnostics["largest_error"] < 1e-6
    # E in V/m and H in A/m: their energies come to the same over a period.
    frequency = LIGHT * np.sqrt(2) * np.pi / 0.2
    swing = simulation.field("Ey")
    assert swing is not None
    assert np.abs(swing).max() == pytest.approx(abs(np.cos(frequency * 1e-9)), abs=1e-5)
    magnetic = np.abs(simulation.field("Hx")).max()
    assert magnetic == pytest.approx(
        abs(np.sin(frequency * 1e-9)) / np.sqrt(2) / IMPEDANCE, rel=1e-4
    )
    volume = 8.8541878128e-12 / 2 * 0.2**3 / 4
    assert diagnostics["energy"] == pytest.approx(volume, rel=1e-6)


def test_natural_units_and_si_are_the_same_fields():
    natural = cavity(4, units="natural", end_time=1e-9 * LIGHT)
    results = []
    for data in (natural, cavity(4)):
        simulation = opened(data)
        simulation.run(ceilings=False)
        results.append(simulation.solver.owned("Hz"))
    assert np.abs(results[0] - results[1]).max() < 1e-12


def test_tables_of_energy_and_probes_have_the_time(tmp_path):
    probe = {"name": "p", "position": [0.07, 0.05, 0.11]}
    simulation = opened(
        cavity(6), output={"picture": False, "probe_interval": 4, "probes": [probe]}
    )
    simulation.run(out=tmp_path, ceilings=False)
    rows = list(csv.DictReader((tmp_path / "probe-p.csv").open()))
    assert list(rows[0]) == ["step", "time", "Ex", "Ey", "Ez", "Hx", "Hy", "Hz"]
    x, _, z = probe["position"]
    frequency = LIGHT * np.sqrt(2) * np.pi / 0.2
    for row in rows:
        shape = np.sin(np.pi * x / 0.2) * np.sin(np.pi * z / 0.2)
        wanted = shape * np.cos(frequency * float(row["time"]))
        assert abs(float(row["Ey"])) == pytest.approx(abs(wanted), abs=2e-5)
    energies = list(csv.DictReader((tmp_path / "energy.csv").open()))
    assert list(energies[0]) == ["step", "electric", "magnetic"]
    assert json.loads((tmp_path / "summary.json").read_text())["rate"]["unit"] == "Mnodes/s"


def test_fields_are_written_as_cells_of_their_order(tmp_path):
    simulation = opened(cavity(3), output={"picture": True})
    simulation.run(2, out=tmp_path, ceilings=False)
    assert (tmp_path / "overview.png").exists()
    with h5py.File(tmp_path / "fields.vtkhdf") as file:
        root = file["VTKHDF"]
        assert (root["Types"][...] == 72).all()
        points, E = root["Points"][...], root["PointData/E"][...]
    frequency = LIGHT * np.sqrt(2) * np.pi / 0.2
    x, _, z = np.pi * points.T / 0.2
    wanted = np.sin(x) * np.sin(z) * np.cos(frequency * simulation.solver.time)
    assert np.abs(np.abs(E[:, 1]) - np.abs(wanted)).max() < 2e-2


def test_a_restart_goes_on_bitwise(tmp_path):
    whole = opened(cavity(4))
    whole.run(ceilings=False)
    assert whole.step > 12
    first = opened(cavity(4), checkpoint={"at_end": True})
    first.run(7, out=tmp_path, ceilings=False)
    second = opened(cavity(4))
    second.run(out=tmp_path, restart=True, ceilings=False)
    assert second.step == whole.step
    for name in whole.solver.fields:
        np.testing.assert_array_equal(second.solver.owned(name), whole.solver.owned(name))


def test_a_restart_keeps_the_time_step_and_meets_another_end(tmp_path):
    first = opened(cavity(4), checkpoint={"at_end": True})
    first.run(7, out=tmp_path, ceilings=False)
    step = first.solver.dt
    second = opened(cavity(4, end_time=2.017e-9))
    assert second.solver.dt != step
    summary = second.run(out=tmp_path, restart=True, ceilings=False)
    assert second.solver.dt == step
    assert 0 <= second.solver.time - 2.017e-9 < step
    assert sum("the checkpoint's time step is kept" in line for line in summary["notices"]) == 1


@pytest.mark.parametrize("changes", [{"cfl": 0.6}, {"time_step": 1e-12}])
def test_a_restart_with_another_time_step_is_refused(tmp_path, changes):
    first = opened(cavity(4), checkpoint={"at_end": True})
    first.run(7, out=tmp_path, ceilings=False)
    with refused(
        location="^checkpoint$", problem="one time step", remedy="^restart with"
    ) as refusal:
        opened(cavity(4, **changes)).run(out=tmp_path, restart=True, ceilings=False)
    assert "\n" not in refusal.text
    # What it says to do works.
    asked = refusal.error.remedy.split("maxwell.time_step = ")[1].split(",")[0]
    again = opened(cavity(4, time_step=float(asked)))
    again.run(out=tmp_path, restart=True, ceilings=False)
    assert again.solver.dt == first.solver.dt


def test_single_precision_is_computed_and_written(tmp_path):
    simulation = opened(cavity(5, precision="single"))
    summary = simulation.run(out=tmp_path, ceilings=False)
    assert summary["diagnostics"]["largest_error"] < 1e-3
    with h5py.File(tmp_path / "fields.vtkhdf") as file:
        assert file["VTKHDF/PointData/E"].dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (
            {"boundaries": {}},
            {
                "location": "maxwell.boundaries.x-$",
                "problem": "'x-' of the mesh has no kind",
                "remedy": "add the key",
            },
        ),
        (
            {"boundaries": {**_WALLS, "wall": "pec"}},
            {
                "location": "^maxwell.boundaries.wall$",
                "problem": "no surface 'wall'",
                "allowed": "x-, ",
            },
        ),
        (
            {"materials": [{"region": "glass"}]},
            {"location": "maxwell.materials", "problem": "'glass'", "allowed": "^volume$"},
        ),
        ({"time_step": 1e-9}, {"location": "time step 1e-09 s$", "allowed": "above 0 and at most"}),
        (
            {"time_step": -1e-12},
            {"location": "maxwell.time_step = -1e-12$", "allowed": '^"auto" or a number above 0$'},
        ),
        (
            {"boundaries": {**_WALLS, "x-": {"impedance": -50.0}}},
            {
                "location": "maxwell.boundaries.x-$",
                "problem": "cannot be {'impedance': -50.0}",
                "allowed": "'pec', 'pmc', 'absorbing'",
            },
        ),
        (
            {"boundaries": {**_WALLS, "y+": "steel"}},
            {"location": r"maxwell.boundaries.y\+$", "problem": "'y\\+' cannot be 'steel'"},
        ),
        ({"order": 16}, {"location": "maxwell.order = 16$", "allowed": "less than or equal to 15"}),
        (
            {"materials": [{"permittivity": -2.0}]},
            {"location": "maxwell.materials.0.permittivity = -2.0$"},
        ),
        (
            {"materials": [{"permittivity": 1e-300}]},
            {"location": "maxwell.materials.0.permittivity = 1e-300$"},
        ),
        (
            {"box": {"elements": [2, 2, 2], "upper": [1e300, 1.0, 1.0]}},
            {
                "location": r"maxwell.box.upper.0 = 1e\+300$",
                "allowed": r"less than or equal to 1e\+30$",
            },
        ),
        (
            {"box": None},
            {"problem": "no mesh", "allowed": "one of the tables maxwell.box, maxwell.cylinder"},
        ),
        ({"sphere": {"radius": 1.0}}, {"problem": "^box and sphere are set"}),
        (
            {"exact": {"solution": "cavity"}},
            {"location": "maxwell.exact: solution = 'cavity'$", "allowed": "^periodic-box"},
        ),
        ({"initial": {"Ex": 1.0}}, {"problem": "maxwell.initial and maxwell.exact are both set"}),
    ],
)
def test_what_cannot_be_computed_is_told(changes, fields):
    data = cavity(**{"order": 3, **changes})
    data["maxwell"] = {key: value for key, value in data["maxwell"].items() if value is not None}
    with refused(**fields) as refusal:
        opened(data)
    assert "\n" not in refusal.text


def test_a_mesh_file_that_does_not_exist_is_refused():
    data = cavity(3, mesh={"file": "no.msh"})
    del data["maxwell"]["box"]
    with refused(location=r"mesh file no\.msh"):
        opened(data)


_RICKER = {"kind": "ricker", "centre": 1e-9, "frequency": 1e9}
_DIPOLE = {
    "kind": "dipole",
    "waveform": _RICKER,
    "position": [0.1, 0.1, 0.1],
    "moment": [0.0, 0.0, 1.0],
}
_WAVE = {"direction": [1.0, 0.0, 0.0], "polarisation": [0.0, 0.0, 1.0], "waveform": _RICKER}
_VOLUME = {"kind": "volume", "waveform": _RICKER, "density": [0.0, 0.0, 1.0]}


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (
            {"sources": [{**_DIPOLE, "waveform": {**_RICKER, "width": 1e-9}}]},
            {
                "location": "maxwell.sources.0.waveform.width$",
                "problem": "a ricker waveform has no key width",
                "allowed": "^centre, frequency$",
            },
        ),
        (
            {"sources": [{**_DIPOLE, "waveform": {**_RICKER, "samples": 99}}]},
            {"location": "maxwell.sources.0.waveform.samples$", "problem": "a ricker waveform"},
        ),
        (
            {"sources": [{**_DIPOLE, "density": [1.0, 1.0, 1.0]}]},
            {
                "location": "maxwell.sources.0.density$",
                "problem": "a dipole source has no key density",
                "allowed": "^position, moment, waveform, magnetic$",
            },
        ),
        (
            {"sources": [{**_DIPOLE, "surface": "no"}]},
            {"location": "maxwell.sources.0.surface$", "problem": "a dipole source has no key"},
        ),
        (
            {"sources": [{**_DIPOLE, "regions": ["no"]}]},
            {"location": "maxwell.sources.0.regions$", "problem": "a dipole source has no key"},
        ),
        (
            {"sources": [{**_VOLUME, "surface": "no"}]},
            {"location": "maxwell.sources.0.surface$", "problem": "a volume source has no key"},
        ),
        (
            {"waves": [{**_WAVE, "waveform": {**_RICKER, "phase": 1.0}}]},
            {"location": "maxwell.waves.0.waveform.phase$", "problem": "a ricker waveform"},
        ),
        (
            {"krylov": {"tolerance": 1e-3}},
            {
                "location": "maxwell.krylov$",
                "problem": "maxwell.integrator is 'runge-kutta'",
                "remedy": "^remove it",
            },
        ),
    ],
)
def test_keys_without_effect_are_refused(changes, fields):
    with refused(**fields) as refusal:
        opened(cavity(3, **changes))
    assert "\n" not in refusal.text


@pytest.mark.parametrize(
    ("tables", "fields"),
    [
        (
            {"run": {"tolerance": 0.5}},
            {"location": "run.tolerance = 0.5$", "remedy": "maxwell.end_time or run.steps"},
        ),
        (
            {"machine": {"decomposition": [7, 7, 7]}},
            {
                "location": "machine.decomposition",
                "problem": "maxwell partitions its grid otherwise",
            },
        ),
        ({"machine": {"decomposition": "1d"}}, {"location": 'machine.decomposition = "1d"'}),
    ],
)
def test_keys_of_steady_states_and_of_grids_are_refused(tables, fields):
    with refused(**fields):
        opened(cavity(3), **tables)


def test_a_case_with_all_its_keys_as_studies_keep_it_is_read():
    data = cavity(3, sources=[_DIPOLE, _VOLUME])
    del data["maxwell"]["exact"]
    case = check(data, MaxwellCase, "test")
    whole = json.loads(case.model_dump_json(exclude_none=True))
    assert check(whole, MaxwellCase, "test") == case


def test_a_given_step_that_is_not_refused_is_stable():
    """The bound that is found lies up to some percent above the true one."""
    bound = opened(cavity(2, flux="central")).solver.bound
    with refused(location="^time step", allowed="0.95 of the bound"):
        opened(cavity(2, flux="central", time_step=0.97 * bound))
    solver = opened(cavity(2, flux="central", time_step=0.9499 * bound)).solver
    fields = np.random.default_rng(2).standard_normal(solver.stepping.values().shape)
    solver.stepping.set_fields(fields)
    before = solver.stepping.energy()
    solver.stepping.advance(3000)
    assert solver.stepping.energy() < before


def test_a_probe_outside_the_mesh_is_refused():
    with refused(location="probe p$", problem=r"^\(0.3, 0.1, 0.1\) lies outside .* 0.1 m from"):
        opened(cavity(3), output={"probes": [{"name": "p", "position": [0.3, 0.1, 0.1]}]})


def test_a_solution_that_breaks_is_told():
    data = cavity(3)
    del data["maxwell"]["exact"]
    data["maxwell"]["initial"] = {"Ez": "1e300*x*y"}
    simulation = opened(data)
    with refused(kind=SolutionError, problem="the solution broke before step"):
        simulation.run(ceilings=False)


def test_a_case_larger_than_memory_is_refused_before_its_mesh_is_made(tmp_path: Path):
    from haloscope.errors import MachineError

    with refused(kind=MachineError, problem="the case needs about .* GB a rank"):
        opened(cavity(15, box={"elements": [900, 900, 900]}))


def test_the_exponential_integrator_takes_long_steps():
    data = cavity(6, integrator="exponential")
    simulation = opened(data)
    summary = simulation.run(ceilings=False)
    diagnostics = summary["diagnostics"]
    assert diagnostics["step_over_bound"] > 5
    assert diagnostics["largest_error"] < 1e-5


def test_the_exponential_integrator_knows_no_memory_of_media():
    data = cavity(3, integrator="exponential", materials=[{"conductivity": 1.0}])
    del data["maxwell"]["exact"]
    with refused(
        location='maxwell.integrator = "exponential"',
        problem="maxwell.materials is set",
        remedy="runge-kutta",
    ):
        opened(data)


def test_the_curl_by_the_chain_rule_is_that_of_bricks():
    simulations = [opened(cavity(4, curl=curl)) for curl in ("covariant", "chain-rule")]
    for simulation in simulations:
        simulation.run(5, ceilings=False)
    fields = [simulation.solver.owned("Ey") for simulation in simulations]
    assert np.abs(fields[0] - fields[1]).max() < 1e-13


def test_a_mesh_with_as_many_elements_in_another_order_is_another_grid(tmp_path):
    """As one that was saved again between two jobs: fields would come to other places."""
    saved = opened(cavity(2), checkpoint={"at_end": True})
    saved.run(2, out=tmp_path, ceilings=False)
    again = opened(cavity(2))
    mesh = again.solver.layout._mesh
    mesh.coordinates[...] = mesh.coordinates[::-1].copy()
    with refused(location="checkpoint", problem="another grid with the same number of nodes"):
        again.run(out=tmp_path, restart=True, ceilings=False)
    stretched = cavity(2, box={"elements": [2, 2, 2], "upper": [0.2, 0.2, 0.21]})
    with refused(location="checkpoint", problem="another grid"):
        opened(stretched).run(out=tmp_path, restart=True, ceilings=False)
