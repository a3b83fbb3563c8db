"""The command `haloscope surface`: the openings of a surface, its mended file and a picture of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from haloscope.commands.options import Json
from haloscope.errors import InputError

# Units in which a file may be, in um, and the widths of vessels that are plausible, in um.
_UNITS = {"micrometres": 1.0, "millimetres": 1e3, "centimetres": 1e4, "metres": 1e6}
_NARROWEST, _WIDEST = 5.0, 4e4
_MICRO = 1e-6


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command(short_help="Show, name and mend the openings of a vessel's surface.")(surface)


def surface(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Surface of triangles: STL, OBJ, PLY or VTP, or a folder with a VTP file for each face.",
        ),
    ],
    scale_um: Annotated[
        float | None,
        typer.Option(metavar="UM", help="Unit of length of the file in micrometres (mm: 1000)."),
    ] = None,
    extend_radii: Annotated[
        float, typer.Option(metavar="N", help="Extend each flat end by so many of its radii.")
    ] = 0.0,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="NAME",
            help="Begin of the names of the files written, NAME-mended.stl and NAME-openings.png "
            "(default: the name of FILE, in the current folder).",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List a surface's openings and repairs; write the mended surface and a picture with its openings."""
    from haloscope.mesh.files.meshio_files import MICROMETRE, LengthUnit
    from haloscope.mesh.surfaces.intersections import require_uncrossed
    from haloscope.mesh.surfaces.mending import extended, mended
    from haloscope.mesh.surfaces.surface_files import read_surface, write_stl
    from haloscope.mesh.surfaces.surfaces import require_closed

    if not 0.0 <= extend_radii <= 100.0:
        raise InputError(
            "out of range", location=f"--extend-radii {extend_radii:g}", allowed="0 to 100"
        )
    unit = LengthUnit("units", 1.0) if scale_um is None else MICROMETRE
    factor = 1.0 if scale_um is None else scale_um * _MICRO
    whole = extended(mended(read_surface(file, factor, unit=unit)), extend_radii)
    require_closed(whole)
    require_uncrossed(whole)
    stem = out or Path(file.stem)
    stl, picture = (Path(f"{stem}{end}") for end in ("-mended.stl", "-openings.png"))
    result = _described(whole, file, scale_um)
    write_stl(stl, whole, factor)
    _draw(whole, picture, file.name)
    result |= {"mended": str(stl), "picture": str(picture)}
    warnings = _implausible(result)
    if as_json:
        for line in warnings:
            print(line, file=sys.stderr)
        print(json.dumps(result))
        return
    for line in (*whole.notices, *warnings):
        print(line, file=sys.stderr)
    for row in _rows(result, unit.name):
        print(row)


def _described(surface: Any, file: Path, scale_um: float | None) -> dict[str, Any]:
    """The openings of a surface as they stand in JSON, lengths in um or in units of the file."""
    from haloscope.mesh.surfaces.mending import surface_ends

    length = surface.unit.metres
    ends = [
        {
            "name": end.group,
            "diameter": end.diameter / length,
            "position": (end.middle / length).tolist(),
            "normal": end.normal.tolist(),
            "is_group": end.is_group(surface),
        }
        for end in surface_ends(surface)
    ]
    width = max((end["diameter"] for end in ends), default=0.0)
    plausible = scale_um is not None and _NARROWEST <= width <= _WIDEST
    raw = width / (scale_um or 1.0)
    fitting = {
        name: scale for name, scale in _UNITS.items() if _NARROWEST <= raw * scale <= _WIDEST
    }
    return {
        "file": str(file),
        "scale_um": scale_um,
        "triangles": len(surface.triangles),
        "groups": list(surface.names),
        "volume": surface.volume / length**3,
        "openings": ends,
        "fitting_scales_um": {} if plausible else fitting,
        "repairs": list(surface.notices),
    }


def _implausible(result: dict[str, Any]) -> list[str]:
    """A warning of a scale with which the widest end is no vessel's."""
    width = max((end["diameter"] for end in result["openings"]), default=0.0)
    if result["scale_um"] is None or not width or _NARROWEST <= width <= _WIDEST:
        return []
    texts = [f"{scale:g} for {name}" for name, scale in result["fitting_scales_um"].items()]
    remedy = f"give --scale-um {' or '.join(texts)}" if texts else "check the unit of the file"
    return [
        f"warning: --scale-um {result['scale_um']:g}: the widest end is {width:.2g} um wide, which is implausible "
        f"(vessels: {_NARROWEST:g} to {_WIDEST:g} um); {remedy}"
    ]


def _rows(result: dict[str, Any], unit: str) -> list[str]:
    """The table for people."""
    rows = [
        f"{result['file']}: {result['triangles']:,} triangles, groups {', '.join(result['groups'])}, "
        f"volume {result['volume']:.6g} {unit}^3"
    ]
    ends = result["openings"]
    if not ends:
        rows.append("no flat end; open the vessel with planes (position_um and normal) that cut it")
    else:
        longest = max(8, *(len(end["name"]) for end in ends))
        rows.append(
            f"  {'':>3} {'name':<{longest}} {f'width/{unit}':>12}  {f'position/{unit}':<34} direction out"
        )
    for number, end in enumerate(ends, 1):
        size = max(abs(part) for part in (*end["position"], end["diameter"]))
        place = ", ".join(f"{_rounded(part, size):.6g}" for part in end["position"])
        way = ", ".join(f"{_rounded(part, 1.0):.3f}" for part in end["normal"])
        rows.append(
            f"  {number:>3} {end['name']:<{longest}} {end['diameter']:>12.4g}  {f'({place})':<34} ({way})"
        )
    if ends and result["scale_um"] is None:
        width = max(end["diameter"] for end in ends)
        texts = [
            f"{scale:g} (in {name} the widest end is {width * scale:.3g} um)"
            for name, scale in result["fitting_scales_um"].items()
        ]
        rows.append(
            f"unit: give --scale-um, {' or '.join(texts)}"
            if texts
            else f"unit: none of micrometres to metres makes ends of {_NARROWEST:g} to {_WIDEST:g} um"
        )
    rows.append(f"written: {result['mended']}, {result['picture']}")
    return rows


def _rounded(value: float, size: float) -> float:
    """A number without what rounding makes of 0."""
    return 0.0 if abs(value) < 1e-6 * size else value


def _draw(surface: Any, path: Path, title: str) -> None:
    """The walls, and the openings with their numbers, in colour."""
    import numpy as np

    from haloscope.io.figures.figure import save
    from haloscope.io.figures.geometry_pictures import geometry_picture
    from haloscope.io.figures.geometry_views import Geometry, Part, draw_views
    from haloscope.mesh.surfaces.mending import surface_ends

    ends = surface_ends(surface)
    at_end = np.zeros(len(surface.triangles), bool)
    for end in ends:
        at_end[end.triangles] = True
    unit = surface.unit
    parts = [
        Part(
            end.group,
            f"{end.diameter / unit.metres:.4g} {unit.name}",
            surface.corners[end.triangles],
        )
        for end in ends
    ]
    parts.append(Part("wall", "", surface.corners[~at_end], kind="wall"))
    geometry = Geometry(tuple(parts), unit=unit.name)
    views = draw_views(geometry, *geometry.bounds())
    save(path, geometry_picture(geometry, views, title, f"{len(ends)} openings"))
