"""Whether a vessel is as large as vessels are, or its file in another unit than the case assumes."""

from __future__ import annotations

import math

import numpy as np

from haloscope.mesh.surfaces.surface_ends import flat_ends, wall_diameter
from haloscope.mesh.surfaces.surfaces import Surface
from haloscope.solvers.blood import case_vessels as keys

Vessels = keys.Channel | keys.Tube | keys.Bifurcation | keys.Tree | keys.SurfaceFile

# In um: of the narrowest slits and the widest arteries, and of what a remedy is to give.
_LEAST, _MOST = 2.0, 4e4
_LEAST_PLAUSIBLE = 5.0
_UNITS = {"micrometres": 1.0, "millimetres": 1e3, "centimetres": 1e4, "metres": 1e6}
_SCALES = {1.0: "1", 1e3: "1000", 1e4: "1e4", 1e6: "1e6"}


def surface_diameter(surface: Surface) -> float:
    """Diameter in m of the largest flat end of a surface; without one that of a tube as wide."""
    ends = flat_ends(surface)
    return ends[0].diameter if ends else wall_diameter(surface)


def implausible_surface(table: keys.SurfaceFile, surface: Surface) -> str:
    """One clause on a surface whose unit of length must be wrong; empty where its size is plausible."""
    diameter = surface_diameter(surface) / keys.MICRO
    if not math.isfinite(diameter) or _LEAST <= diameter <= _MOST:
        return ""
    extent = " x ".join(f"{side / keys.MICRO:.3g}" for side in np.ptp(surface.bounds, axis=0))
    assumed = next((unit for unit, scale in _UNITS.items() if scale == table.scale_um), "")
    taken = f", which takes it for {assumed}" if assumed else ""
    raw = diameter / table.scale_um
    fitting = [
        (unit, scale) for unit, scale in _UNITS.items() if _LEAST_PLAUSIBLE <= raw * scale <= _MOST
    ]
    remedy = "check the unit of the file"
    if fitting:
        unit, scale = fitting[0]
        remedy = f"{unit}? scale_um = {_SCALES[scale]}"
    return (
        f"blood.surface: {table.file} is {extent} um with scale_um = {table.scale_um:g}{taken}: diameter "
        f"{diameter:.2g} um is implausible; {remedy}"
    )


def implausible_vessel(table: Vessels, surface: Surface | None = None) -> str:
    """The same of any vessel of a case; a file's needs its surface."""
    if isinstance(table, keys.SurfaceFile):
        return "" if surface is None else implausible_surface(table, surface)
    if isinstance(table, keys.Channel):
        walled = [
            size
            for axis, size in zip("xyz", table.size_um, strict=True)
            if axis not in table.periodic and axis not in table.open
        ]
        key, width = "blood.channel.size_um", min(walled, default=_LEAST)
    else:
        key, width = f"blood.{type(table).__name__.lower()}.radius_um", 2 * table.radius_um
    if _LEAST <= width <= _MOST:
        return ""
    return (
        f"{key} gives a width of {width:.2g} um, which is implausible: vessels are {_LEAST:g} to {_MOST:g} um "
        "wide; this key is in micrometres"
    )
