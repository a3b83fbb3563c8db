"""Absorbing layers at the sides of a box: perfectly matched, and their terms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import HexMesh
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.terms.terms import Floats, Integers, Setting, StatefulTerm

SOURCE = Path(__file__).with_name("layers.cpp")
LOSSY = "layer_lossy"
"""Name of the term of elements with a lossy medium."""
SIDES = ("x-", "x+", "y-", "y+", "z-", "z+")

# Lengths below this share of a layer's thickness are rounding.
_SLACK = 1e-6


@dataclass(frozen=True)
class Layer:
    """Perfectly matched layers inside the sides of the mesh's box."""

    # By side (x-, x+, y-, y+, z-, z+): lengths, counted from the outermost nodes of the mesh
    # inwards. The layer begins where an element begins.
    thickness: Mapping[str, float]
    grading: float = 3.0  # Power with which the absorption grows from the layer's beginning
    # What a wave at normal incidence is damped to on its way to the end and back.
    reflection: float = 1e-6

    def __post_init__(self) -> None:
        if not self.thickness:
            raise InputError(
                "it has no side",
                location="absorbing layer",
                allowed=f"one or more of {', '.join(SIDES)}",
                remedy="add a side to thickness",
            )

    def placed(self, ends: Sequence[Floats], speed: float = 1.0) -> PlacedLayer:
        """Find where the layers begin and how strong they are.

        `ends`: lowest and highest coordinate of elements along x, y, z, three of (elements, 2).
        """
        begins, depths = np.full(6, np.nan), np.zeros(6)
        for number, side in enumerate(SIDES):
            if side not in self.thickness:
                continue
            axis, upper = divmod(number, 2)
            thick = self.thickness[side]
            sign = 1.0 if upper else -1.0
            # Along the outward direction.
            near, far = ends[axis].T if upper else -ends[axis][:, ::-1].T
            end = far.max()
            if thick > (end - near.min()) * (1 + _SLACK):
                raise InputError(
                    f"its thickness of {thick:g} is more than the extent of the mesh",
                    location=f"absorbing layer at {side}",
                    allowed=f"at most {end - near.min():g}",
                    remedy="make the layer thinner",
                )
            within = (near + far) / 2 > end - thick * (1 + _SLACK)
            if not within.any():
                raise InputError(
                    f"no element lies within its thickness of {thick:g}",
                    location=f"absorbing layer at {side}",
                    allowed="at least one element, that is "
                    f"{end - near[far > end - _SLACK].max():g}",
                    remedy="make the layer thicker",
                )
            begin = near[within].min()
            begins[number], depths[number] = sign * begin, end - begin
        for axis, name in enumerate("xyz"):
            low, high = begins[2 * axis : 2 * axis + 2]
            if low > high + _SLACK * (depths[2 * axis] + depths[2 * axis + 1]):
                raise InputError(
                    "they overlap",
                    location=f"absorbing layers at {name}- and {name}+",
                    remedy="make them thinner",
                )
        strengths = np.zeros(6)
        inside = depths > 0
        strengths[inside] = -(self.grading + 1) * math.log(self.reflection) * speed / 2
        strengths[inside] /= depths[inside]
        return PlacedLayer(begins, depths, strengths, self.grading)


@dataclass(frozen=True, eq=False)
class PlacedLayer:
    """Layers whose place is known."""

    # For each side: coordinate at which its layer begins, thickness (0: none), and the rate of
    # absorption at its end.
    begins: Floats
    depths: Floats
    strengths: Floats
    grading: float  # Power

    def rates(self, points: Floats) -> Floats:
        """Rates r_x, r_y, r_z at points (..., 3)."""
        result = np.zeros(points.shape)
        for number in np.flatnonzero(self.depths > 0):
            axis, upper = divmod(int(number), 2)
            inward = points[..., axis] - self.begins[number]
            share = (inward if upper else -inward) / self.depths[number]
            share = np.where(share > _SLACK, share, 0.0)
            result[..., axis] += self.strengths[number] * share**self.grading
        return result

    def reached(self, mesh: HexMesh) -> NDArray[np.bool_]:
        """Whether each element of the whole mesh reaches into a layer of an axis, (elements, 3)."""
        rates = self.rates(mesh.coordinates.reshape(mesh.count, -1, 3))
        return np.asarray((rates > 0).any(axis=1))

    @property
    def fastest(self) -> float:
        """Largest rate that it adds: at an edge those of two axes act on one component.

        At a node alone the eigenvalues are the single rates, but with the curl beside them steps
        that allow for one rate only are unstable where layers meet (seen at N = 4 and 6).
        """
        return float(np.sort(self.strengths.reshape(3, 2).max(axis=1))[1:].sum())


def _layer_term(
    setting: Setting, name: str, elements: Integers, rates: Floats, axis: int | None, lossy: bool
) -> StatefulTerm:
    """Elements of the layer that are treated alike, with rates (elements, nodes, 3) at their nodes."""
    width, chosen = (6, np.moveaxis(rates, 2, 1)) if axis is None else (2, rates[:, :, axis])
    count = len(elements) * width * setting.nodes
    kept = [(setting.zeros(count), setting.zeros(count)) for _ in range(2 if lossy else 1)]
    arguments = {
        "states": kept[0][0],
        "steps": kept[0][1],
        "rates": setting.put(chosen),
        "elements": setting.put(elements, np.int64),
        "count": len(elements),
        **setting.blocks(len(elements), setting.nodes),
    }
    if axis is None:
        # What a medium in the layer answers to beside the fields; None without a lossy medium.
        beyond, beyond_steps = kept[1] if lossy else (None, None)
        arguments |= {"beyond": beyond, "beyond_steps": beyond_steps, "lossy": int(lossy)}
    else:
        arguments["axis"] = axis
    return StatefulTerm(
        name,
        setting.kernel(SOURCE, "corner_layer" if axis is None else "side_layer"),
        arguments,
        ("fields", "increments", "dt"),
        {"rka": LSERK4.a, "rkb": LSERK4.b},
        setting,
        elements,
        kept,
        width,
    )


def layer_terms(
    setting: Setting,
    layer: PlacedLayer,
    axes: NDArray[np.bool_],
    places: Floats,
    lossy: NDArray[np.bool_],
) -> list[StatefulTerm]:
    """Terms for the layer's elements: of each single axis, of several, of several and lossy.

    `axes`: whether each element of this rank reaches into it, by axis (elements, 3).
    """
    flat = places.reshape(len(places), -1, 3)
    within, alone = axes.any(axis=1), axes.sum(axis=1) == 1
    groups: dict[str, tuple[Any, int | None]] = {
        f"layer_{name}": (alone & axes[:, axis] & ~lossy, axis) for axis, name in enumerate("xyz")
    }
    groups |= {"layer_corner": (within & ~alone & ~lossy, None), LOSSY: (within & lossy, None)}
    result = []
    for name, (chosen, axis) in groups.items():
        elements = np.flatnonzero(chosen)
        if len(elements):
            rates = layer.rates(flat[elements])
            result.append(_layer_term(setting, name, elements, rates, axis, name == LOSSY))
    return result
