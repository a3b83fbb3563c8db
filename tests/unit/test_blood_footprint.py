"""Claims about what a blood run keeps on a GPU: as much as is foretold, and a case too large gets one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lattice_tables import box_part
from refusals import refused

from haloscope.case.tables import check
from haloscope.commands import cli
from haloscope.device import jit
from haloscope.device.cpu import CpuDevice
from haloscope.errors import MachineError
from haloscope.run import Simulation
from haloscope.solvers.blood.case import BloodCase
from haloscope.solvers.blood.coupling.coupling import Coupling, OwnBox
from haloscope.solvers.blood.coupling.inside import Insides
from haloscope.solvers.blood.coupling.repulsion import (
    CellsOfKind,
    Repulsion,
    RepulsionLaw,
    WallRepulsion,
)
from haloscope.solvers.blood.fluid.fluid import Fluid
from haloscope.solvers.blood.fluid.gpu_layout import KernelVariant
from haloscope.solvers.blood.fluid.lattice import DIRECTIONS
from haloscope.solvers.blood.membranes.membranes import MembraneLaw, Membranes
from haloscope.solvers.blood.membranes.meshes import sphere
from haloscope.solvers.blood.sizing import (
    OUTPUTS,
    bytes_a_point,
    bytes_a_vertex,
    bytes_beside_populations,
    estimate,
    near_vertices,
)

HALO, DOUBLE = 2, 8


class Counted(CpuDevice):
    """Passes for a GPU that computes nothing, and counts what it is asked to hold."""

    kind = "cuda"
    block_memory = 227 << 10

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.held = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        array = super().empty(shape, dtype)
        self.held += array.nbytes
        return array

    def kernel(self, file: Any, name: str, constants: Any) -> Any:
        class Kernel:
            declaration = jit.declarations(file, constants, on_gpu=True).kernels[name]

            def bind(self, *_: Any, **__: Any) -> Any:
                return lambda: None

        return Kernel()


def held(points: int, cells: int, buffers: int = 1, viscosity: float = 0.0) -> int:
    """Bytes of a box of so many points along a side with so many cells."""
    device = Counted()
    part = box_part((points,) * 3)
    fluid = Fluid(device, part, tau=1.0, with_cells=True, way=KernelVariant(buffers=buffers))
    box = OwnBox((0,) * 3, (points,) * 3, (points,) * 3, (True,) * 3)
    table = np.zeros((points + 2 * HALO,) * 3, np.int32)
    coupling = Coupling(device, box, HALO, table, fluid.stride)
    repulsion = Repulsion(device, box, RepulsionLaw(1.0, 1.0))
    Insides(device, box, HALO, table)
    WallRepulsion(device, box, HALO, table, np.ones(1), RepulsionLaw(1.0, 1.0))
    device.held += 8 * part.owned - 8  # distances, of which that table names one
    if cells:
        law = MembraneLaw(1.0, viscosity=viscosity)
        m = Membranes(device, sphere(162, 3.0), cells, law)
        m.compute_forces_of(0)
        m.advance(0)
        count = cells * m.vertices
        coupling.interpolate(fluid.velocity, m.positions, m.velocities, count)
        repulsion.apply([CellsOfKind(m.positions, m.forces, cells, m.vertices)])
        coupling.spread(fluid.force, m.positions, m.forces, count)
    return device.held


@pytest.mark.parametrize(("viscosity", "most"), [(0.0, 230), (1.0, 278)])
def test_a_vertex_takes_what_is_foretold(viscosity, most):
    """Beside it a cell has its place in lists, energies and moments: 140 bytes for all its vertices."""
    many, few = (held(12, cells, viscosity=viscosity) for cells in (60, 20))
    bytes_per_vertex = (many - few) / (40 * 162)
    wanted = bytes_a_vertex(repulsion=True, viscous=viscosity > 0, room=1.0)
    assert wanted <= bytes_per_vertex < wanted + 1
    assert wanted < most


@pytest.mark.parametrize("buffers", [1, 2])
def test_a_point_takes_what_is_foretold(buffers):
    """Tables go beyond the box by the halo, and slots begin in lines of their own."""
    bytes_per_point = (held(24, 0, buffers) - held(16, 0, buffers)) / (24**3 - 16**3)
    beside = bytes_a_point(with_cells=True, repulsion=True)
    wanted = buffers * DIRECTIONS * DOUBLE + beside
    assert wanted <= bytes_per_point < wanted + 8
    assert beside <= 85


def case(**table: Any) -> BloodCase:
    channel = {"size_um": [40.0, 40.0, 40.0], "periodic": ["x", "y", "z"]}
    blood = {"spacing_um": 1.0, "channel": channel, **table}
    blood_case = check({"solver": "blood", "blood": blood}, BloodCase, "test")
    assert isinstance(blood_case, BloodCase)
    return blood_case


def test_a_case_is_known_to_take_what_its_points_and_vertices_do():
    cells = case(cells=[{"hematocrit": 0.4}], repulsion={"range_um": 1.0})
    vertices = 0.4 * 40**3 / 94.1 * 642
    near = near_vertices(642, 94.1, 1.4)
    # Brute force on the bench's cells found 8.9.
    assert 8 < near < 10
    beside = 40**3 * 85 + vertices * (bytes_a_vertex(repulsion=True, near=near) + OUTPUTS)
    assert bytes_beside_populations(cells.blood, 40**3) == pytest.approx(beside, rel=1e-3)
    whole = estimate(cells)["memory_bytes"]
    assert whole == pytest.approx(beside + 40**3 * DIRECTIONS * DOUBLE, rel=1e-3)
    fluid = estimate(case())["memory_bytes"]
    assert fluid == 40**3 * (DIRECTIONS * DOUBLE + 4)


def test_a_case_too_large_gets_a_line_with_numbers():
    class Small(CpuDevice):
        def memory(self) -> tuple[int, int]:
            return 20_000_000, 30_000_000

    with refused(MachineError, problem=r"about 0\.07\d+ GB a rank, and 0\.02 GB are free"):
        Simulation(case(cells=[{"hematocrit": 0.4}]), device=Small(threads=1))


def test_memory_that_runs_out_ends_in_a_line(monkeypatch, capsys):
    def run(*_: Any, **__: Any) -> None:
        raise MemoryError("Out of memory allocating 10,939,000,832 bytes (allocated so far: 7).")

    monkeypatch.setattr(cli, "app", run)
    monkeypatch.setattr("sys.argv", ["haloscope", "run", "a.toml"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "10,939,000,832 bytes" in line
    assert "use a smaller case" in line
