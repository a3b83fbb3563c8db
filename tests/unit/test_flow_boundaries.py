"""Claims about what acts on the boundaries of a flow: slip, tractions, resistances, backflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bounded_flow import BoundedFlow, turned, turned_back
from exact_flows import circular_couette, pulsating_channel
from refusals import refused

from haloscope.exchange.ranks.world import World
from haloscope.mesh.tets.tet_generators import BOX_SIDES, tet_box
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.solvers.flow.boundary_integrals import boundary_means, force_and_moment
from haloscope.solvers.flow.conditions import (
    MovingWall,
    NoFlow,
    OutsidePressure,
    Resistance,
    Slip,
    Traction,
    Velocity,
)
from haloscope.solvers.flow.equations.equations import Medium


def along_x(speed):
    return lambda x, time: turned(np.tile([speed, 0.0, 0.0], (len(x), 1)))


def box(cells=(4, 2, 2), upper=(2.0, 1.0, 0.5), **options):
    return lambda: tet_box(cells, (0, 0, 0), upper, **options)


def bent(x):
    """A box of angle, radius and height as a sector between two cylinders."""
    angle, radius = x[:, 0], x[:, 1]
    return np.stack([radius * np.sin(angle), radius * np.cos(angle), x[:, 2]], axis=1)


SLIP = {side: Slip() for side in BOX_SIDES}
TIGHT = {"iterations": 16, "tolerance": 1e-9, "linear_tolerance": 1e-3}


def test_slip_on_slanted_walls_is_that_on_planes_across_an_axis():
    def swirl(x, time):
        y, z = x[:, 1] - 0.4, x[:, 2]
        return np.stack([1 + y + z, 0.3 * y * z, 0.2 * y], axis=1)

    planes = {
        **{side: NoFlow("xyz".index(side[0])) for side in BOX_SIDES},
        "x_low": Velocity(swirl),
        "x_high": OutsidePressure(2.0),
        "y_low": Velocity(),
    }
    slanted = {
        **SLIP,
        "x_low": Velocity(lambda x, time: turned(swirl(turned_back(x), time))),
        "x_high": OutsidePressure(2.0),
        "y_low": Velocity(),
    }
    medium = Medium(1.3, 0.02)
    plain = BoundedFlow(World(), box(), [medium], planes, **TIGHT)
    other = BoundedFlow(World(), box(shape=turned), [medium], slanted, **TIGHT)
    wanted, slanted_state = plain.steady(), other.steady()
    assert np.abs(turned_back(slanted_state[:, :3]) - wanted[:, :3]).max() < 1e-7
    assert np.abs(slanted_state[:, 3] - wanted[:, 3]).max() < 1e-7
    # Forces of the walls, too, those without friction included.
    for side in ("y_low", "y_high"):
        forces = [
            force_and_moment(
                *(one.conditions.reactions, one.shared, one.state, np.zeros(3 * len(one.x))),
                *(one.x, one.boundary_values.nodes[side]),
            )
            for one in (plain, other)
        ]
        assert np.allclose(turned_back(forces[1][0]), forces[0][0], atol=1e-7)


def test_slip_keeps_to_edges_and_rests_in_corners_whatever_the_sizes_of_triangles():
    flow = BoundedFlow(
        World(),
        box((4, 3, 3), grading=(20.0, 0.1, 5.0), shape=turned),
        [Medium(1.0, 1.0)],
        {**SLIP, "x_low": OutsidePressure()},
    )
    slip = flow.conditions.slip
    x = turned_back(flow.x)
    wanted = {}
    for node, at in enumerate(x):
        open_axes = np.ones(3)
        for axis, end in enumerate((2.0, 1.0, 0.5)):
            if abs(at[axis] - end) < 1e-9 or (axis > 0 and abs(at[axis]) < 1e-9):
                open_axes[axis] = 0
        if open_axes.min() == 0:
            wanted[node] = np.diag(open_axes)
    assert slip.nodes.tolist() == sorted(wanted)
    for node, projector in zip(slip.nodes, slip.projectors, strict=True):
        assert np.abs(turned_back(turned_back(projector).T) - wanted[node]).max() < 1e-12


def test_what_slips_along_a_curved_wall_does_not_pass_it():
    def inflow(x, time):
        return np.tile([1.0, 0.0, 0.0], (len(x), 1))

    conditions = {**SLIP, "x_low": Velocity(inflow), "x_high": OutsidePressure(straight=True)}
    flow = BoundedFlow(
        World(),
        lambda: tet_box((12, 4, 2), (0, 1, 0), (np.pi / 2, 2, 0.5), shape=bent),
        [Medium(1.0, 0.05)],
        conditions,
        preconditioner=BlockIlu,
        **TIGHT,
    )
    flow.steady()
    velocities = flow.state.reshape(-1, 4)[:, :3]
    radius = np.hypot(*flow.x[:, :2].T)
    wall = np.flatnonzero((np.abs(radius - 1) < 1e-9) | (np.abs(radius - 2) < 1e-9))
    assert np.abs((velocities * flow.x)[wall, :2].sum(axis=1)).max() < 1e-12
    assert np.linalg.norm(velocities[wall], axis=1).min() > 0.4
    means = boundary_means(flow.shared, flow.conditions.areas["x_high"], flow.state)
    assert means.flow_rate == pytest.approx(0.5, rel=0.01)
    # It leaves at right angles, along -y.
    assert np.abs(velocities[flow.boundary_values.nodes["x_high"]][:, [0, 2]]).max() < 1e-12
    assert flow.history.residuals[-1] < 1e-8


@pytest.mark.parametrize("rates", [(0.0,), (0.0, 0.7), (1.0, 1.0)])
def test_a_rigid_rotation_slips_in_every_frame(rates):
    """Between cylinders and planes without friction, seen from one zone or from two."""
    true = {"inner": 1.0, "outer": 2.0, "inner_rate": 1.0, "outer_rate": 1.0}

    def profile(x, time):
        return -circular_couette(x, **true)[:, :3]

    def pressure(x, time):
        return circular_couette(x, **true)[:, 3]

    errors = []
    for cells in (4, 8):

        def make(cells=cells):
            mesh = tet_box((cells, cells, 1), (0, 1, 0), (np.pi / 2, 2, 0.3), shape=bent)
            if len(rates) > 1:
                inner = np.hypot(*mesh.centres[:, :2].T) < 1.5
                return replace(
                    mesh,
                    zones=np.where(inner, 1, 0).astype(np.int32),
                    zone_names=("still", "turning"),
                )
            return mesh

        conditions = {
            **SLIP,
            "x_low": Velocity(profile),
            "x_high": OutsidePressure(pressure, straight=True),
        }
        media = [Medium(1.0, 0.3, rotation=(0.0, 0.0, -rate)) for rate in rates]
        flow = BoundedFlow(World(), make, media, conditions, preconditioner=BlockIlu, **TIGHT)
        state, wanted = flow.steady(), circular_couette(flow.x, **true)
        errors.append(
            (
                flow.mean_square(state[:, :3], -wanted[:, :3]),
                flow.mean_square(state[:, 3], wanted[:, 3]),
            )
        )
    coarse, fine = np.array(errors)
    assert (fine < coarse / 3).all()
    assert fine[0] < 1e-4


def test_rows_and_products_hold_all_derivatives_of_boundaries():
    random = np.random.default_rng(4)
    conditions = {
        "x_low": Velocity(along_x(1.0)),
        "x_high": Resistance(3.0, backflow=0.7),
        "y_low": NoFlow(1),
        "y_high": Slip(),
        "z_low": Traction(lambda x, time: 0.1 * x, backflow=0.4),
        "z_high": OutsidePressure(straight=True),
    }

    def wavy(x):
        return x + 0.05 * np.sin(3 * x[:, [1, 2, 0]]) * x[:, 1:2]

    # LSIC is left out, since it would hide all else behind 1e7 of its own.
    flow = BoundedFlow(
        World(), box((2, 2, 2), shape=wavy), [Medium(1.3, 0.4)], conditions, lsic=False
    )
    equations, product = flow.conditions.equations, flow.conditions.product
    # So short a time step that tau is that of the step alone.
    equations.set_time(2.2, 1e7)
    count = 4 * len(flow.x)
    state, past = random.standard_normal(count), random.standard_normal(3 * len(flow.x))
    plus, minus, product_vector = (flow.newton.equations.rows.vector() for _ in range(3))
    equations.linearise(state, past, product_vector)
    again = equations.rows.vector()
    equations.residual(state, past, again)
    assert np.array_equal(product_vector, again)
    equations.rows.fixing(flow.boundary_values.numbers)()
    free = np.setdiff1d(np.arange(count), flow.boundary_values.numbers)
    for _ in range(20):
        along = random.standard_normal(count)
        equations.residual(state + 1e-5 * along, past, plus)
        equations.residual(state - 1e-5 * along, past, minus)
        product(along, product_vector)
        slope = (plus - minus) / 2e-5
        assert (
            np.abs((slope - product_vector)[free]).max() < 1e-7 * np.abs(product_vector[free]).max()
        )
    # The outlet's part is far above that.
    assert abs(flow.conditions.resistances.flows(along)[0][1]) > 0.01


def test_a_large_resistance_costs_no_iterations():
    counts = []
    for resistance in (0.0, 1e6):
        conditions = {
            **SLIP,
            "x_low": Velocity(along_x(1.0)),
            "y_low": Velocity(),
            "x_high": Resistance(resistance, outside=5.0),
        }
        flow = BoundedFlow(
            World(),
            box(shape=turned),
            [Medium(1.3, 0.2)],
            conditions,
            preconditioner=BlockIlu,
            iterations=10,
            tolerance=1e-10,
            linear_tolerance=1e-4,
        )
        flow.steady()
        counts.append([one.iterations for one in flow.history.linear])
        out = boundary_means(flow.shared, flow.conditions.areas["x_high"], flow.state)
        assert out.flow_rate == pytest.approx(0.5 * 3 / 4, rel=0.02)
        assert out.pressure == pytest.approx(5.0 + resistance * out.flow_rate, rel=0.3)
    assert max(counts[1]) <= 2 * max(counts[0])
    assert len(counts[1]) <= len(counts[0]) + 1


def test_backflow_takes_out_what_enters():
    """At an end through which a vortex passes, with and without."""
    conditions = {
        side: OutsidePressure(backflow=0.5) if side == "x_high" else Velocity()
        for side in BOX_SIDES
    }
    flow = BoundedFlow(World(), box(), [Medium(2.0, 1e-6)], conditions)
    random = np.random.default_rng(5)
    state = random.standard_normal(4 * len(flow.x))
    residual, plain = (flow.newton.equations.rows.vector() for _ in range(2))
    flow.conditions.equations.residual(state, np.zeros(3 * len(flow.x)), residual)
    flow.flow.residual(state, np.zeros(3 * len(flow.x)), plain)
    added = (residual - plain).reshape(-1, 4)
    areas = flow.conditions.areas["x_high"]
    u = state.reshape(-1, 4)[areas.nodes, :3]
    inward = np.minimum((areas.vectors * u).sum(axis=1), 0.0)
    assert (inward < 0).any()
    assert (inward == 0).any()
    # Its power is that of the kinetic energy that flows in.
    power = (added[areas.nodes, :3] * u).sum()
    assert power == pytest.approx(-(0.5 * 2.0 * inward * (u**2).sum(axis=1)).sum())
    assert np.abs(np.delete(added, areas.nodes, axis=0)).max() == 0.0


def test_a_traction_closes_a_channel():
    """Poiseuille's flow leaves a channel with its own pressure and friction."""
    law = {"half_width": 0.5, "steady": 0.8, "swing": 0.0, "frequency": 1.0}
    viscosity = 0.1

    def exact(x):
        return pulsating_channel(x, 0.0, viscosity, **law)

    def stress(x, time):
        traction = np.zeros_like(x)
        traction[:, 0] = -exact(x)[:, 3]
        traction[:, 1] = -0.8 * x[:, 1]
        return traction

    errors = []
    for cells in (4, 8):
        flow = BoundedFlow(
            World(),
            lambda cells=cells: tet_box((cells, cells, 1), (0, -0.5, 0), (1, 0.5, 0.2)),
            [Medium(1.0, viscosity)],
            {
                **{side: NoFlow(2) for side in ("z_low", "z_high")},
                **{side: Velocity() for side in ("y_low", "y_high")},
                "x_low": Velocity(lambda x, time: exact(x)[:, :3]),
                "x_high": Traction(stress),
            },
            **TIGHT,
        )
        state = flow.steady()
        errors.append([flow.mean_square(state[:, k], exact(flow.x)[:, k]) for k in (0, 3)])
    coarse, fine = np.array(errors)
    assert (fine < coarse / 2).all()
    assert (fine < [0.011, 0.06]).all()


def test_the_mean_pressure_is_that_over_the_area():
    """Of fluid at rest under its weight."""
    medium = Medium(2.0, 0.1, force=(0.0, 0.0, -10.0))
    conditions = {side: Velocity() for side in BOX_SIDES}
    flow = BoundedFlow(World(), box((3, 2, 4)), [medium], conditions)
    flow.state.reshape(-1, 4)[:, 3] = 20 * (0.5 - flow.x[:, 2])
    depth, width = 0.5, 1.0
    means = boundary_means(flow.shared, flow.conditions.areas["x_high"], flow.state)
    assert means.area == pytest.approx(depth * width)
    assert means.pressure == pytest.approx(5.0)


def test_walls_at_rest_rule_over_moving_ones_and_these_over_inlets():
    conditions = {
        **{side: Velocity() for side in BOX_SIDES},
        "z_high": MovingWall((0.0, 1.0, 0.0), (0.0, 0.0, 2.0), (0.5, 0.0, 0.0)),
        "x_low": Velocity(lambda x, time: np.tile([7.0, 7.0, 7.0], (len(x), 1))),
        "x_high": Slip(),
    }
    flow = BoundedFlow(World(), box(), [Medium(1.0, 1.0)], conditions)
    values = np.full(4 * len(flow.x), np.nan)
    values[flow.boundary_values.numbers] = flow.boundary_values.values(0.0)
    values, x = values.reshape(-1, 4), flow.x
    still = (x[:, 1] % 1 == 0) | (x[:, 2] == 0)
    moving = (x[:, 2] == 0.5) & ~still
    inlet = (x[:, 0] == 0) & ~still & ~moving
    assert (values[still, :3] == 0).all()
    assert values[moving, 0] == pytest.approx(-2 * x[moving, 1])
    assert values[moving, 1] == pytest.approx(1 + 2 * (x[moving, 0] - 0.5))
    assert (values[inlet, :3] == 7).all()
    assert inlet.any()
    # No pressure is given anywhere: that of the whole mesh's first node is 0.
    assert not flow.boundary_values.has_pressure
    assert values[flow.part.node_numbers == 0, 3] == 0


def test_a_compliance_without_a_distal_resistance_is_refused():
    condition = Resistance(1.0, compliance=1.0)
    with refused(
        location="'x_high'$", problem="compliance is 1 ", allowed="only with a distal resistance"
    ):
        BoundedFlow(World(), box(), [Medium(1.0, 1.0)], {**SLIP, "x_high": condition})
