"""Shear on walls and in the fluid, and where it stands, at the end of a flow run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.numerics.elements.node_fields import NodeFields
from haloscope.solvers.flow.case import FlowTable
from haloscope.solvers.flow.derived_fields import (
    element_shear,
    nodal_means,
    stagnation,
    volume_shares,
    wall_shear,
)
from haloscope.solvers.flow.system import System
from haloscope.solvers.interface import Results

Floats = NDArray[np.float64]

_AXES = "xyz"


def shear_results(
    table: FlowTable,
    system: System,
    places: NodeFields,
    state: Floats,
    path: Path | None,
    time: float,
) -> Results:
    """Work out what flow.shear asks for; all ranks call this.

    `time`: of the state, in s.
    """
    asked = table.shear
    assert asked is not None
    part, shared, world = system.part, system.shared, system.shared.world
    media = [table.medium(zone) for zone in part.zone_names]
    shear = element_shear(part, media, state)
    walls = [name for name in part.boundaries if table.is_wall(name)]
    at_walls = wall_shear(part, shared, media, state, walls)
    means = nodal_means(part, shared, np.column_stack([shear.rate, shear.stress]))
    summary: dict[str, Any] = {
        "largest_shear_stress": world.largest(float(shear.stress.max())),
        "largest_wall_shear": {
            name: world.largest(float(np.linalg.norm(vectors, axis=1).max(initial=0.0)))
            for name, vectors in at_walls.triangles.items()
        },
    }
    columns = {"shear_rate": means[:, 0], "shear_stress": means[:, 1]}
    columns |= {f"wall_shear_{a}": at_walls.nodes[:, k] for k, a in enumerate(_AXES)}
    lines = [
        f"largest scalar shear stress {summary['largest_shear_stress']:.4g} Pa, on walls "
        f"{max(summary['largest_wall_shear'].values(), default=0.0):.4g} Pa"
    ]
    if asked.thresholds:
        shares = volume_shares(part, world, shear.stress, asked.thresholds)
        summary["volume_shares_of_shear_stress"] = {
            zone: row.tolist() for zone, row in zip(part.zone_names, shares, strict=True)
        }
    if asked.stagnation_speed is not None or asked.stagnation_rate is not None:
        points = stagnation(
            part,
            world,
            media,
            state,
            speed=asked.stagnation_speed,
            rate=asked.stagnation_rate,
        )
        summary["stagnation"] = dict(points.shares)
        columns["stagnation"] = nodal_means(part, shared, points.marks.astype(np.float64))
        lines += [
            f"stagnation in {100 * share:.3g} % of the zone {zone}"
            for zone, share in points.shares.items()
        ]
    if path is None:
        return Results({"shear": summary}, {}, lines)
    own = places.own_nodes
    values = {name: partial(np.take, column, own) for name, column in columns.items()}
    vectors = {"wall_shear": [f"wall_shear_{axis}" for axis in _AXES]}
    places.write(path, values, vectors, time)
    return Results({"shear": summary}, {"shear": path}, lines)
