"""Maxwell's fields with media, layers and sources, as several files of tests open them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.mesh.hexes.mesh_parts import take
from haloscope.numerics.elements.element_maps import nodes
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.stepping import Stepping
from haloscope.solvers.maxwell.terms.additions import PointwiseAdditions, place


def opened(
    mesh: HexMesh,
    order: int,
    device: Any,
    *,
    media: Sequence[Material] = (Material(),),
    boundaries: Mapping[str, str | float] | None = None,
    dtype: type = np.float64,
    **added: Any,
) -> tuple[Stepping, PointwiseAdditions, np.ndarray]:
    """Stepping, its additions, and x, y, z of the nodes (3, elements, nodes), as the part has them."""
    placed = place(mesh, order, media=media, **added)
    part = take(mesh, np.arange(mesh.count), placed.concerned.astype(int))
    places = nodes(part.mesh, order)
    stepping = Stepping(
        part, places, order, device, materials=media, boundaries=boundaries, dtype=dtype
    )
    additions = PointwiseAdditions(placed, part, places, (1,), device, dtype=dtype)
    stepping.additions = additions
    return stepping, additions, np.moveaxis(places.reshape(mesh.count, -1, 3), 2, 0)


def advance(stepping: Stepping, until: float, width: float, share: float = 0.5) -> int:
    """Go to a time from 0 in equal steps, a share of the stability bound for cubes; how many."""
    fastest = 2 * stepping.order * (stepping.order + 1) / width
    if isinstance(stepping.additions, PointwiseAdditions):
        fastest += stepping.additions.fastest
    steps = int(np.ceil(until * fastest / (share * LSERK4.real_limit)))
    stepping.set_step(until / steps)
    stepping.advance(steps)
    return steps
