"""Makes the pump's mesh with Gmsh; runs as a program of its own, since Gmsh is a separate tool.

Takes the dimensions that :mod:`haloscope.solvers.flow.meshes` works out as JSON on its standard
input, and the path of the .msh file to write as its argument. Lengths are in mm. Nothing else of
Haloscope is used here.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from typing import Any

# How far vanes reach into the hub and out of the housing before they are cut, as shares of a radius.
_INTO_HUB, _OUT_OF_HOUSING = 0.3, 0.05
# Largest turn of a vane between two sections that its surfaces pass through, and fewest sections.
_TURN_OF_SECTION, _FEWEST_SECTIONS = math.radians(12), 5
# Of Gmsh's points that are to lie on a surface, in mm.
_ON_SURFACE = 1e-4
# Of Gmsh's bounding boxes of surfaces, in mm: they are a little large.
_BOX_SLACK = 1e-2
# Of each face, along each of its parameters, that distances are taken from.
_SAMPLES = 30
_WALLS = ("hub_radius", "housing_radius")
# Elements grow from a wall at which they are smaller by this much per length.
_GROWTH = 0.35
_DELAUNAY_3D = 1
_FRONTAL_2D = 6


def main() -> int:
    """Make one mesh; the last line of standard error says what went wrong."""
    try:
        gmsh = importlib.import_module("gmsh")
    except (ImportError, OSError) as error:
        sys.stderr.write(f"gmsh cannot be loaded: {' '.join(str(error).split())}\n")
        return 3
    try:
        _make(gmsh, json.load(sys.stdin), sys.argv[1])
    except Exception as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


def _make(gmsh: Any, pump: dict[str, Any], path: str) -> None:
    # Nobody's settings, and one thread: the same mesh whoever asks for it.
    gmsh.initialize(readConfigFiles=False, interruptible=False)
    for name, value in _options(pump).items():
        gmsh.option.setNumber(name, value)
    gmsh.model.add("pump")
    zones = _zones(gmsh, pump)
    _sizes(gmsh, pump, zones)
    gmsh.model.mesh.generate(3)
    _name(gmsh, pump, zones)
    gmsh.write(path)
    with open(path, "a") as file:
        file.write(f"$Comments\nGmsh {gmsh.option.getString('General.Version')}\n$EndComments\n")


def _options(pump: dict[str, Any]) -> dict[str, float]:
    return {
        "General.Terminal": 0,
        "General.NumThreads": 1,
        "Mesh.MaxNumThreads1D": 1,
        "Mesh.MaxNumThreads2D": 1,
        "Mesh.MaxNumThreads3D": 1,
        "Geometry.OCCParallel": 0,
        "Mesh.RandomFactor": 1e-9,
        "Mesh.RandomFactor3D": 1e-12,
        "Mesh.RandomSeed": 1,
        "Mesh.Algorithm": _FRONTAL_2D,
        "Mesh.Algorithm3D": _DELAUNAY_3D,
        "Mesh.Optimize": 1,
        "Mesh.MshFileVersion": 4.1,
        "Mesh.Binary": 1,
        "Mesh.SaveAll": 0,
        "Mesh.LcIntegrationPrecision": 1e-4,
        "Mesh.MeshSizeExtendFromBoundary": 0,
        "Mesh.MeshSizeFromPoints": 0,
        "Mesh.MeshSizeFromCurvature": 0,
        "Mesh.MeshSizeMax": pump["mesh_size"],
    }


def _zones(gmsh: Any, pump: dict[str, Any]) -> dict[str, list[int]]:
    """Volumes of each zone, which share the faces between them."""
    occ = gmsh.model.occ
    made = []
    for zone in pump["zones"]:
        low, high = zone["low"], zone["high"]
        housing = pump["housing_radius"]
        whole = occ.addCylinder(0, 0, low, 0, 0, high - low, housing)
        away = [(3, _hub(occ, pump, zone))]
        row = zone["vanes"]
        vanes = [(3, _vane(occ, pump, row, number)) for number in range(row["count"])]
        if row["tip_radius"] < housing:
            tips = occ.addCylinder(
                *(0, 0, row["low"] - 1, 0, 0, row["high"] - row["low"] + 2, row["tip_radius"])
            )
            vanes, _ = occ.intersect(vanes, [(3, tips)])
        volumes, _ = occ.cut([(3, whole)], [*away, *vanes])
        made.append(volumes)
    _, parts = occ.fragment(made[0], [one for volumes in made[1:] for one in volumes])
    occ.synchronize()
    sizes = [len(entities) for entities in made]
    zones: dict[str, list[int]] = {}
    for zone, count in zip(pump["zones"], sizes, strict=True):
        zones[zone["name"]] = sorted({tag for part in parts[:count] for _, tag in part})
        parts = parts[count:]
    return zones


def _hub(occ: Any, pump: dict[str, Any], zone: dict[str, Any]) -> int:
    """The hub in a zone: half a profile, a nose or a tail being a quarter of an ellipse, turned."""
    r, (low, high) = pump["hub_radius"], zone["hub"]
    begin, end = low + zone["nose"], high - zone["tail"]
    first, last = occ.addPoint(0, 0, low), occ.addPoint(0, 0, high)
    top, back = occ.addPoint(r, 0, begin), occ.addPoint(r, 0, end)
    curves = []
    for tip, shoulder, middle, length in ((first, top, begin, zone["nose"]),
                                          (last, back, end, zone["tail"])):  # fmt: skip
        if length:
            centre = occ.addPoint(0, 0, middle)
            longer = tip if length >= r else shoulder
            curves.append(occ.addEllipseArc(tip, centre, longer, shoulder))
        else:
            curves.append(occ.addLine(tip, shoulder))
    curves += [occ.addLine(top, back), occ.addLine(first, last)]
    loop = occ.addCurveLoop([curves[0], curves[2], curves[1], curves[3]])
    turned = occ.revolve([(2, occ.addPlaneSurface([loop]))], 0, 0, 0, 0, 0, 1, 2 * math.pi)
    return int(next(tag for dimension, tag in turned if dimension == 3))


def _vane(occ: Any, pump: dict[str, Any], row: dict[str, Any], number: int) -> int:
    """One vane, a solid through turned rectangles."""
    low, high = row["low"], row["high"]
    length = high - low
    first, last = row["twists"]
    inner = pump["hub_radius"] * (1 - _INTO_HUB)
    outer = pump["housing_radius"] * (1 + _OUT_OF_HOUSING)
    middle = (pump["hub_radius"] + pump["housing_radius"]) / 2
    turn = abs(first + last) / 2 * length
    sections = max(_FEWEST_SECTIONS, math.ceil(turn / _TURN_OF_SECTION) + 1)
    wires = []
    for section in range(sections):
        s = section / (sections - 1)
        # The twist changes linearly along the axis.
        angle = 2 * math.pi * number / row["count"] + length * s * (first + (last - first) * s / 2)
        slope = (first + (last - first) * s) * middle
        half = row["thickness"] / 2 * math.hypot(1, slope)
        x, y = math.cos(angle), math.sin(angle)
        points = [
            occ.addPoint(radius * x - side * y, radius * y + side * x, low + s * length)
            for radius, side in ((inner, -half), (outer, -half), (outer, half), (inner, half))
        ]
        lines = [occ.addLine(points[k], points[(k + 1) % 4]) for k in range(4)]
        wires.append(occ.addWire(lines))
    made = occ.addThruSections(wires, makeSolid=True, makeRuled=False)
    return int(next(tag for dimension, tag in made if dimension == 3))


def _sizes(gmsh: Any, pump: dict[str, Any], zones: dict[str, list[int]]) -> None:
    """Small elements along vanes and in the gap over the tips of the rotor's blades."""
    field, size, fine = gmsh.model.mesh.field, pump["mesh_size"], pump["blade_mesh_size"]
    rules = []
    for zone in pump["zones"]:
        vanes, tips = [], []
        for tag in _faces(gmsh, zones[zone["name"]]):
            radii = _radii_within(gmsh, zone["vanes"], tag)
            if radii and not any(_all_at(radii, pump[wall]) for wall in _WALLS):
                vanes.append(tag)
                if _all_at(radii, zone["vanes"]["tip_radius"]):
                    tips.append(tag)
        rules.append(_graded(field, _distance(gmsh, vanes), 0, fine, size))
        gap = pump["housing_radius"] - zone["vanes"]["tip_radius"]
        if gap > 0:
            across = gap / pump["gap_layers"]
            rules.append(_graded(field, _distance(gmsh, tips), gap, across, size))
    smallest = field.add("Min")
    field.setNumbers(smallest, "FieldsList", rules)
    field.setAsBackgroundMesh(smallest)


def _distance(gmsh: Any, faces: list[int]) -> int:
    """A field of the distance from faces."""
    field = gmsh.model.mesh.field
    around = gmsh.model.getBoundary([(2, tag) for tag in faces], combined=False, oriented=False)
    number = int(field.add("Distance"))
    field.setNumbers(number, "SurfacesList", faces)
    field.setNumbers(number, "CurvesList", sorted({tag for _, tag in around}))
    field.setNumber(number, "Sampling", _SAMPLES)
    return number


def _graded(field: Any, distance: int, begin: float, fine: float, coarse: float) -> int:
    """A field of sizes from fine, up to a distance, to coarse."""
    rule = int(field.add("Threshold"))
    fine = min(fine, coarse)
    field.setNumber(rule, "InField", distance)
    field.setNumber(rule, "SizeMin", fine)
    field.setNumber(rule, "SizeMax", coarse)
    field.setNumber(rule, "DistMin", begin)
    field.setNumber(rule, "DistMax", begin + max(coarse - fine, 1e-3 * coarse) / _GROWTH)
    return rule


def _faces(gmsh: Any, volumes: list[int]) -> list[int]:
    around = gmsh.model.getBoundary([(3, tag) for tag in volumes], combined=True, oriented=False)
    return sorted({tag for _, tag in around})


def _radii_within(gmsh: Any, row: dict[str, Any], tag: int) -> list[float]:
    """Radii of a face's corners; none, if it reaches beyond a row of vanes along the axis."""
    _, _, bottom, _, _, top = gmsh.model.getBoundingBox(2, tag)
    if bottom < row["low"] - _BOX_SLACK or top > row["high"] + _BOX_SLACK:
        return []
    ends = gmsh.model.getBoundary([(2, tag)], combined=False, oriented=False, recursive=True)
    return [math.hypot(*gmsh.model.getValue(0, point, [])[:2]) for _, point in ends]


def _all_at(radii: list[float], radius: float) -> bool:
    return all(abs(r - radius) < _ON_SURFACE for r in radii)


def _name(gmsh: Any, pump: dict[str, Any], zones: dict[str, list[int]]) -> None:
    """Put volumes and faces into groups by where their nodes lie."""
    groups: dict[str, list[int]] = {}
    planes = {zone["low"]: zone["low_name"] for zone in pump["zones"]}
    planes |= {zone["high"]: zone["high_name"] for zone in pump["zones"]}
    for zone in pump["zones"]:
        gmsh.model.addPhysicalGroup(3, zones[zone["name"]], name=zone["name"])
        for tag in _faces(gmsh, zones[zone["name"]]):
            name = _name_of(gmsh, pump, zone, planes, tag)
            if tag not in groups.setdefault(name, []):
                groups[name].append(tag)
    for name, tags in groups.items():
        gmsh.model.addPhysicalGroup(2, sorted(tags), name=name)


def _name_of(
    gmsh: Any, pump: dict[str, Any], zone: dict[str, Any], planes: dict[float, str], tag: int
) -> str:
    _, flat, _ = gmsh.model.mesh.getNodes(2, tag, includeBoundary=True)
    radii = [math.hypot(x, y) for x, y in zip(flat[0::3], flat[1::3], strict=True)]
    heights = flat[2::3]
    for height, name in planes.items():
        if all(abs(z - height) < _ON_SURFACE for z in heights):
            return name
    if _all_at(radii, pump["housing_radius"]):
        return "housing"
    (low, high), nose, tail = zone["hub"], zone["nose"], zone["tail"]

    def of_hub(z: float) -> float:
        over = max(low + nose - z, 0) / (nose or 1) + max(z - high + tail, 0) / (tail or 1)
        return float(pump["hub_radius"] * math.sqrt(max(1 - over * over, 0)))

    if all(abs(r - of_hub(z)) < 10 * _ON_SURFACE for r, z in zip(radii, heights, strict=True)):
        return str(zone["hub_name"])
    return str(zone["vanes"]["name"])


if __name__ == "__main__":
    sys.exit(main())
