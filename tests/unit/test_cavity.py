"""Claims about the cavity: symmetries, walls, and every step as NumPy computes it from the equations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from small_cavities import PLANE, simulate, swirl

Fields = dict[str, np.ndarray]


class _Reference:
    """The cavity's equations in NumPy, node by node as the theory has them.

    Fields are whole arrays (z, y, x), walls included; nothing is taken from the solver but the
    case. Axis 0 is x in the lists of this class.
    """

    def __init__(self, case: Any, initial: Fields) -> None:
        table = case.cavity
        self.table = table
        self.axes = range(table.dimensions)
        nodes = table.nodes if isinstance(table.nodes, tuple) else (table.nodes,) * 3
        size = table.size if isinstance(table.size, tuple) else (table.size,) * 3
        self.h = [size[i] / (nodes[i] - 1) for i in self.axes]
        self.nu = table.kinematic_viscosity
        self.alpha = table.thermal_diffusivity or self.nu / (table.prandtl or 0.71)
        gravity = float(np.sqrt(sum(g * g for g in table.gravity)))
        if table.temperature_difference is None:
            self.dT = (table.rayleigh or 1e5) * self.nu * self.alpha
            self.dT /= gravity * table.expansion * size[0] ** 3
        else:
            self.dT = table.temperature_difference
        lid = max(
            float(np.sqrt(sum(v * v for v in getattr(table.walls, name).velocity)))
            for name in ("x_low", "x_high", "y_low", "y_high", "z_low", "z_high")
        )
        height = size[int(np.argmax(np.abs(table.gravity[: table.dimensions])))]
        self.speed = max(np.sqrt(gravity * table.expansion * self.dT * height), lid)
        self.fields = {name: field.astype(np.float64) for name, field in initial.items()}
        self.step_size = self._global_step() if table.time_step == "global" else None
        self.steps = 0

    def _at(self, field: np.ndarray, offset: int = 0, axis: int = 0) -> np.ndarray:
        """Inner nodes of a field, or their neighbours `offset` nodes along an axis."""
        cut = [slice(None)] * 3
        for i in self.axes:
            shift = offset if i == axis else 0
            n = field.shape[2 - i]
            cut[2 - i] = slice(1 + shift, n - 1 + shift)
        return field[tuple(cut)]

    def _fourth(self, field: np.ndarray, axis: int) -> np.ndarray:
        """Fourth difference; next to a wall that of the node after it (one-sided)."""
        line = np.moveaxis(field, 2 - axis, 0)
        central = line[:-4] - 4 * line[1:-3] + 6 * line[2:-2] - 4 * line[3:-1] + line[4:]
        whole = np.concatenate([central[:1], central, central[-1:]])
        whole = np.moveaxis(whole, 0, 2 - axis)
        for i in self.axes:
            if i != axis:
                whole = np.delete(whole, [0, -1], axis=2 - i)
        return whole

    def _lambdas(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Square of the artificial speed of sound, and the wave speed along each axis."""
        velocity = [self._at(self.fields["uvw"[i]]) for i in self.axes]
        square = sum(v * v for v in velocity)
        beta2 = np.maximum(square, (self.table.kappa or 0.1) * self.speed**2)
        return beta2, [(np.abs(v) + np.sqrt(v * v + 4 * beta2)) / 2 for v in velocity]

    def _limits(self, rate: Any) -> Any:
        """Time step for a wave rate: sum over axes of (lambda / h)^2, rooted."""
        slowest, fastest = sorted((self.nu, self.alpha))
        diffusive = 1 / (2 * fastest * sum(1 / h**2 for h in self.h))
        cell = 2 * slowest / (max(self.h) * rate) ** 2
        return self.table.cfl * np.minimum(np.minimum(1 / rate, diffusive), cell)

    def _rate(self) -> np.ndarray:
        _, waves = self._lambdas()
        return np.sqrt(sum((wave / h) ** 2 for wave, h in zip(waves, self.h, strict=True)))

    def _global_step(self) -> float:
        return float(self._limits(self._rate().max()))

    def _rates(self) -> Fields:
        """Time derivative of each field at the inner nodes."""
        f, table = self.fields, self.table
        beta2, waves = self._lambdas()

        def first(name: str, axis: int) -> np.ndarray:
            return (self._at(f[name], 1, axis) - self._at(f[name], -1, axis)) / (2 * self.h[axis])

        def second(name: str, axis: int) -> np.ndarray:
            around = self._at(f[name], 1, axis) + self._at(f[name], -1, axis)
            return (around - 2 * self._at(f[name])) / self.h[axis] ** 2

        def transported(name: str, diffusivity: float) -> np.ndarray:
            diffusion = sum(second(name, i) for i in self.axes)
            convection = sum(self._at(f["uvw"[i]]) * first(name, i) for i in self.axes)
            return diffusivity * diffusion - convection

        divergence = sum(first("uvw"[i], i) for i in self.axes)
        damping = sum(waves[i] * self._fourth(f["p"], i) / self.h[i] for i in self.axes)
        rates = {"p": -beta2 * table.density * divergence - table.damping * damping}
        excess = self._at(f["T"]) - (table.reference_temperature or 300.0)
        for i in self.axes:
            name = "uvw"[i]
            rates[name] = transported(name, self.nu) - first("p", i) / table.density
            rates[name] = rates[name] - table.expansion * excess * table.gravity[i]
        rates["T"] = transported("T", self.alpha)
        return rates

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self._advance()

    def _advance(self) -> None:
        local = self.step_size is None
        step = self._limits(self._rate()) if local else self.step_size
        rates = self._rates()
        centre = tuple(n // 2 for n in self.fields["p"].shape)
        reference = self.fields["p"][centre] if self.table.rescale_pressure == "step" else 0.0
        for name, rate in rates.items():
            inner = self._at(self.fields[name])
            inner += step * rate
        self._at(self.fields["p"])[...] -= reference
        self._fill_walls()
        self.steps += 1
        if not local and self.steps % 50 == 0:
            self.step_size = self._global_step()

    def _fill_walls(self) -> None:
        """Pressure of second order on every wall, temperature on those that are adiabatic."""
        for i in self.axes:
            for flip, side in ((False, "low"), (True, "high")):
                wall = getattr(self.table.walls, f"{'xyz'[i]}_{side}")
                for name in ("p", "T"):
                    line = np.moveaxis(self.fields[name], 2 - i, 0)
                    line = line[::-1] if flip else line
                    if name == "p":
                        line[0] = 2 * line[1] - line[2]
                    elif wall.temperature == "adiabatic":
                        keep = self._prescribed(i)
                        line[0] = np.where(keep, line[0], (4 * line[1] - line[2]) / 3)

    def _prescribed(self, axis: int) -> np.ndarray:
        """Edges of a wall across `axis` that lie on a wall with a temperature of its own."""
        shape = [n for i, n in enumerate(reversed(self.fields["T"].shape)) if i != axis]
        others = [i for i in range(3) if i != axis]
        keep = np.zeros(shape, bool)
        for place, i in enumerate(others):
            for at, side in ((0, "low"), (-1, "high")):
                wall = getattr(self.table.walls, f"{'xyz'[i]}_{side}")
                if i in self.axes and wall.temperature != "adiabatic":
                    cut: list[Any] = [slice(None)] * 2
                    cut[place] = at
                    keep[tuple(cut)] = True
        return keep.T


def _assert_close(actual: Fields, wanted: Fields, within: float) -> None:
    for name, field in wanted.items():
        scale = np.abs(field - (300.0 if name == "T" else 0.0)).max()
        assert np.abs(actual[name] - field).max() <= within * scale, name


_VARIANTS = {
    "as it is": (),
    "pressure rescaled each step": ("cavity.rescale_pressure=step",),
    "gravity aslant": ("cavity.gravity=[3.0, -8.0, {0}]",),
    "no gravity, a lid": (
        "cavity.gravity=[0.0, 0.0, 0.0]",
        "cavity.temperature_difference=0.0",
        "cavity.walls.y_high.velocity=[0.05, 0.0, {0}]",
    ),
    "heated from below": (
        "cavity.walls.y_low.temperature=303.0",
        *("cavity.walls.y_high.temperature=300 - 20*x", "cavity.kappa=0.3"),
    ),
    "liquid": ("cavity.prandtl=7.0", "cavity.density=998.0", "cavity.kappa=1.0"),
}


@pytest.mark.parametrize("variant", _VARIANTS)
@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_steps_are_those_of_the_equations(dimensions, step, variant):
    along_z = "0.0" if dimensions == 2 else "2.0"
    if variant == "no gravity, a lid" and dimensions == 3:
        along_z = "0.02"
    settings = [text.format(along_z) for text in _VARIANTS[variant]]
    simulation = simulate([*swirl(dimensions), f"cavity.time_step={step}", *settings])
    solver = simulation.solver
    reference = _Reference(simulation.case, {name: solver.owned(name) for name in solver.fields})
    for steps in (1, 4, 55):  # the global step is renewed after 50
        solver.advance(steps)
        reference.advance(steps)
        fields = {name: solver.owned(name) for name in solver.fields}
        _assert_close(fields, reference.fields, 1e-12 if steps < 10 else 1e-11)


def test_a_pressure_that_alternates_from_node_to_node_is_damped():
    still = (
        "cavity.walls.x_low.temperature=adiabatic",
        "cavity.walls.x_high.temperature=adiabatic",
    )
    wave = "cavity.initial.p=1e-4*cos(3.141592653589793*x/0.05*14)"
    simulation = simulate([*PLANE, *still, wave])
    alternating = (-1.0) ** np.arange(13)

    def share() -> float:
        return float(np.abs(simulation.solver.owned("p")[0, 1:-1, 1:-1] @ alternating).max())

    before = share()
    simulation.solver.advance(100)
    assert share() < 0.1 * before


# Symmetries

# Rotation by half a turn about the axis along z: (x, y) -> (L - x, L - y).
_SIGNS = {"p": 1, "u": -1, "v": -1, "w": 1, "T": -1}


@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_the_flow_is_symmetric_under_half_a_turn_at_any_time(settings, step):
    simulation = simulate([*settings, f"cavity.time_step={step}"])
    for _ in range(3):
        simulation.solver.advance(70)
        for name, field in simulation.fields.items():
            even = field - (300.0 if name == "T" else 0.0)
            turned = _SIGNS[name] * even[:, ::-1, ::-1]
            if name == "p":  # the centre, where p is 0, is a node only where the count is odd
                turned = turned - turned.mean() + even.mean()
            assert np.abs(even - turned).max() <= 1e-11 * np.abs(even).max(), name


def test_the_two_halves_in_depth_mirror_each_other():
    simulation = simulate(["cavity.nodes=[15, 13, 13]"])
    simulation.solver.advance(150)
    for name, field in simulation.fields.items():
        sign = -1 if name == "w" else 1
        scale = np.abs(field).max()
        assert np.abs(field - sign * field[::-1]).max() <= 1e-11 * scale, name


def test_a_box_that_is_turned_gives_the_turned_flow():
    """Heated along x with gravity along y, or heated along y with gravity along z."""
    first = simulate(["cavity.nodes=[15, 13, 11]", "cavity.size=0.05"])
    second = simulate(
        [
            *("cavity.nodes=[11, 15, 13]", "cavity.size=0.05", "cavity.gravity=[0.0, 0.0, -9.81]"),
            *("cavity.walls.y_low.temperature=hot", "cavity.walls.y_high.temperature=cold"),
            *("cavity.walls.x_low.temperature=adiabatic",),
            *("cavity.walls.x_high.temperature=adiabatic",),
        ]
    )
    for simulation in (first, second):
        simulation.solver.advance(100)
    turned = {"p": "p", "u": "v", "v": "w", "w": "u", "T": "T"}
    for name, other in turned.items():
        field = first.field(name)  # (z, y, x) there is (x, z, y) here
        again = np.transpose(second.field(other), (2, 0, 1))
        assert np.abs(field - again).max() <= 1e-11 * np.abs(field).max(), name


@pytest.mark.parametrize("step", ["local", "global"])
@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_what_nothing_drives_stays_at_rest(settings, step):
    still = [
        *(*settings, f"cavity.time_step={step}", "cavity.initial.p=2.0"),
        *("cavity.walls.x_low.temperature=adiabatic", "cavity.walls.x_high.temperature=adiabatic"),
    ]
    simulation = simulate(still)
    simulation.solver.advance(100)
    for name, value in {"p": 2.0, "u": 0.0, "v": 0.0, "w": 0.0, "T": 300.0}.items():
        if name in simulation.solver.fields:
            assert (simulation.solver.owned(name) == value).all(), name
    assert max(simulation.solver.follow().values()) == 0.0


# Walls


def _wall(field: np.ndarray, axis: int, high: bool, depth: int = 0) -> np.ndarray:
    """Values on the nodes `depth` nodes from a wall."""
    return np.take(field, -1 - depth if high else depth, axis=2 - axis)


def test_walls_keep_their_temperature_and_velocity():
    simulation = simulate(
        [
            "cavity.walls.y_high.velocity=[0.03, 0.0, 0.01]",
            "cavity.walls.y_low.temperature=301 + 10*x + 5*z",
            *swirl(3),
        ]
    )
    simulation.solver.advance(60)
    fields = simulation.fields
    hot, cold = simulation.solver.flow.hot, simulation.solver.flow.cold
    z, x = np.meshgrid(np.linspace(0, 0.045, 14), np.linspace(0, 0.05, 15), indexing="ij")
    np.testing.assert_allclose(fields["T"][:, 0, :], 301 + 10 * x + 5 * z, rtol=1e-15)
    assert (fields["T"][:, 1:, 0] == hot).all()
    assert (fields["T"][:, 1:, -1] == cold).all()
    for axis, high in itertools.product(range(3), (False, True)):
        for name in "uvw":
            wall = _wall(fields[name], axis, high)
            if (axis, high) != (1, True):
                assert not wall.any(), (name, axis, high)
    lid = {"u": 0.03, "v": 0.0, "w": 0.01}
    for name, speed in lid.items():
        assert (fields[name][1:-1, -1, 1:-1] == speed).all()
        edges = fields[name][:, -1, :].copy()
        edges[1:-1, 1:-1] = 0.0
        assert not edges.any()  # edges belong to the walls that stand


@pytest.mark.parametrize("settings", [PLANE, ()], ids=["plane", "box"])
def test_pressure_and_temperature_are_extrapolated_to_walls_and_edges(settings):
    if "cavity.dimensions=2" not in settings:
        settings = ["cavity.walls.z_low.temperature=300.5"]
    simulation = simulate(settings)
    simulation.solver.advance(40)
    dimensions = simulation.case.cavity.dimensions
    p, T = simulation.solver.owned("p"), simulation.solver.owned("T")
    adiabatic = [(1, False), (1, True), (2, True)][: 2 if dimensions == 2 else 3]
    for axis, high in itertools.product(range(dimensions), (False, True)):
        wanted = 2 * _wall(p, axis, high, 1) - _wall(p, axis, high, 2)
        scale = np.abs(p).max()
        np.testing.assert_allclose(_wall(p, axis, high), wanted, rtol=0, atol=1e-14 * scale)
    for axis, high in adiabatic:
        wanted = (4 * _wall(T, axis, high, 1) - _wall(T, axis, high, 2)) / 3
        values = _wall(T, axis, high)
        free = np.ones(values.shape, bool)
        free[..., [0, -1]] = False  # edges on the hot and the cold wall
        if dimensions == 3 and axis == 1:
            free[0] = False  # edge on the wall z_low
        np.testing.assert_allclose(values[free], wanted[free], rtol=1e-14)
    hot, cold = simulation.solver.flow.hot, simulation.solver.flow.cold
    inner = slice(1 if dimensions == 3 else 0, None)
    assert (T[inner, :, 0] == hot).all()
    assert (T[inner, :, -1] == cold).all()
