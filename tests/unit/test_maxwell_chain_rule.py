"""Claims about the curl by the chain rule: what it shares with the default, and what it does not."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from turned_meshes import turned

from haloscope.device.cpu import CpuDevice, CpuKernel
from haloscope.device.jit import DECLARATIONS, declarations, find_compiler, source_text
from haloscope.mesh.hexes.hex_generators import box
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import STORED, Material, geometry
from haloscope.solvers.maxwell.stepping import SOURCE, Stepping
from haloscope.solvers.maxwell.verification import warped_energy

WALLS = dict(
    zip(("x-", "x+", "y-", "y+", "z-", "z+"), 2 * ("pec", "pmc", "absorbing"), strict=True)
)


def opened(mesh: HexMesh, order: int, **options) -> Stepping:
    walls = {name: WALLS[name] for name in mesh.boundary_names}
    device = CpuDevice(threads=1)
    return Stepping(mesh, nodes(mesh, order), order, device, boundaries=walls, **options)


def random(stepping: Stepping) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(stepping.values().shape)


@pytest.mark.parametrize(("order", "upwind"), [(3, False), (7, True)])
def test_on_affine_elements_both_curls_are_the_same(order, upwind):
    """All orientations of faces, two media, every kind of wall; elements of three widths."""
    mesh = turned(box((3, 2, 2), upper=(1.0, 0.4, 2.0)), 5)
    object.__setattr__(mesh, "regions", (np.arange(mesh.count) % 2).astype(np.int32))
    rates = []
    for chain_rule in (False, True):
        media = (Material(), Material(3.0, 1.5))
        stepping = opened(mesh, order, upwind=upwind, materials=media, chain_rule=chain_rule)
        stepping.set_fields(random(stepping))
        stepping.set_step(1e-3)
        stepping.advance(5)
        rates.append(stepping.values())
    assert np.abs(rates[0] - random(stepping)).max() > 1e-3
    assert np.abs(rates[0] - rates[1]).max() < 1e-12


def test_both_curls_differ_on_curved_elements_and_constants_are_preserved():
    """The derivative of a constant vanishes before it meets the shape: no metric identity needed."""
    mesh = box((2, 2, 2), periodic=(True,) * 3, warp=0.05)
    covariant, chain = (opened(mesh, 7, chain_rule=chain_rule) for chain_rule in (False, True))
    values = random(chain).ravel()
    assert np.abs(covariant.right_hand_side(values) - chain.right_hand_side(values)).max() > 1.0
    constant = np.broadcast_to(np.arange(1.0, 7.0)[None, :, None], chain.values().shape)
    chain.set_fields(constant)
    chain.set_step(1e-3)
    chain.advance(10)
    assert np.abs(chain.values() - constant).max() < 1e-11


def test_derivatives_of_smooth_fields_converge_with_the_order():
    """Right-hand side of a wave in the periodic box, two per cent warped."""
    length = 2 * np.pi
    mesh = box((3, 3, 3), upper=(length,) * 3, periodic=(True,) * 3, warp=0.02)
    errors = []
    for order in (3, 5, 7):
        chain = opened(mesh, order, chain_rule=True)
        x, y, z = np.moveaxis(nodes(mesh, order).reshape(mesh.count, -1, 3), 2, 0)
        s, c, zero = np.sin, np.cos, np.zeros_like(x)
        # E at time 0 with H = 0: dH/dt = -curl E.
        fields = [zero, c(x) * s(y) * s(z), c(x) * c(y) * c(z), zero, zero, zero]
        rate = [2 * c(x) * s(y) * c(z), -s(x) * c(y) * c(z), s(x) * s(y) * s(z)]
        rates = chain.right_hand_side(np.stack(fields, axis=1).ravel())
        wanted = np.stack([zero, zero, zero, *rate], axis=1)
        errors.append(np.abs(rates - wanted.ravel()).max())
    assert errors[1] < errors[0] / 8
    assert errors[2] < errors[1] / 8
    assert errors[2] < 2e-3


def test_fields_of_one_element_grow_at_a_rate_that_no_shorter_step_changes():
    """It meets itself on all sides. The default has no mode that grows, whatever the step."""
    mesh = box((1, 1, 1), periodic=(True,) * 3, warp=0.06)
    rates = []
    for chain_rule in (False, True):
        for dt in (0.02, 0.005):
            stepping = opened(mesh, 3, chain_rule=chain_rule)
            stepping.set_fields(random(stepping))
            stepping.set_step(dt)
            stepping.advance(round(10 / dt))
            before = stepping.energy()
            stepping.advance(round(2 / dt))
            rates.append(np.log(stepping.energy() / before) / 2 / 2)
    assert max(rates[:2]) < 1e-12
    # The rightmost eigenvalue of the operator as a dense matrix.
    assert rates[2] == pytest.approx(1.049, rel=0.02)
    assert rates[3] == pytest.approx(rates[2], rel=0.02)


def growth_rate(energies, until):
    """Exponential rate of growth over the last third."""
    times = np.linspace(0.0, until, len(energies))
    first = 2 * len(times) // 3
    return np.log(energies[-1] / energies[first]) / (times[-1] - times[first])


def grows(energies: np.ndarray) -> bool:
    return bool((np.diff(energies) > 1e-12 * energies[:-1]).any())


def test_random_fields_grow_with_the_chain_rule_and_never_with_the_default():
    device = CpuDevice(threads=1)
    default = warped_energy(7, 0.06, 15.0, False, device)
    assert not grows(default)
    assert default[-1] < 0.5
    chain = warped_energy(7, 0.06, 15.0, True, device)
    assert grows(chain)
    assert chain[-1] > 5
    assert growth_rate(chain, 15.0) > 0.3


@pytest.mark.slow
def test_energy_until_a_time_of_sixty():
    device = CpuDevice(threads=1)
    default = warped_energy(7, 0.06, 60.0, False, device)
    assert not grows(default)
    assert 0.3 < default[-1] < 0.36
    chain = warped_energy(7, 0.06, 60.0, True, device)
    assert chain[-1] > 1e9
    assert growth_rate(chain, 60.0) > 0.4


@pytest.mark.parametrize("order", [3, 5])
def test_the_kernel_for_gpus_gives_the_bits_of_that_for_cores(order, tmp_path):
    """Its code is run by one thread of a core, where barriers mean nothing."""
    prelude = DECLARATIONS.read_text() + Path(__file__).with_name("one_thread_gpu.hpp").read_text()
    constants = {
        "real": "double",
        "N": order,
        "UPWIND": 1,
        "CHAIN_RULE": 1,
        "GEOMETRY": STORED,
        "THREADS_A_BLOCK": 32,
        "BLOCKS_A_PROCESSOR": 1,
    }
    declared = declarations(SOURCE, constants, on_gpu=True)
    source, library = tmp_path / "stage.cpp", tmp_path / "stage.so"
    defined = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    source.write_text(defined + prelude + source_text(SOURCE))
    flags = ["-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([*find_compiler().command, *flags, "-o", str(library), str(source)], check=True)
    kernels = ctypes.CDLL(str(library))
    mesh = turned(box((2, 2, 2), warp=0.02), 5)
    stepping = opened(mesh, order, chain_rule=True)
    stepping.set_fields(random(stepping))
    fields = np.array(stepping.fields)
    increments = np.zeros_like(fields)
    traces = [np.zeros_like(np.asarray(one)) for one in stepping._traces]
    common = {
        "fields": fields,
        "geometry": np.ascontiguousarray(geometry(nodes(mesh, order), order)),
        "D": stepping._D,
        "DT": stepping._DT,
        "first": 0,
        "elements": mesh.count,
    }
    first_traces = CpuKernel(kernels.first_traces, declared.kernel("first_traces"))
    first_traces.bind(**common, traces=traces[0], extent=(1,))()
    stage = CpuKernel(kernels.stage, declared.kernel("stage"))
    for a, b in zip(LSERK4.a, LSERK4.b, strict=True):
        stage.bind(
            **common,
            increments=increments,
            materials=stepping._materials,
            faces=stepping._faces,
            traces_before=traces[0],
            traces_after=traces[1],
            dt=1e-3,
            rka=a,
            rkb=b,
            extent=(1,),
        )()
        traces.reverse()
    stepping.set_step(1e-3)
    stepping.advance(1)
    assert np.array_equal(stepping.values().ravel(), fields)
