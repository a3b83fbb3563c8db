"""An axial blood pump given by a few numbers, and its mesh, made once by Gmsh and then kept.

A pipe holds a hub with a nose and a tail. Along it come straight vanes, the rotor's blades with a gap
to the housing, and vanes that take the swirl out again. Each row stands in a zone of its own, so that
the rotor's zone can be seen from a turning frame; flat annuli part the zones. The axis is z, along
which the fluid is to flow, and the rotor turns about it by the right-hand rule.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from haloscope.case.tables import CaseFault, Table
from haloscope.device.jit import Cache, default_folder
from haloscope.errors import InputError, MachineError, counted, install_command
from haloscope.mesh.tets.tet_files import check_quality, read_tets
from haloscope.mesh.tets.tets import TetMesh

ZONES = ("straightener", "rotor", "diffuser")
BOUNDARIES = (
    "inlet",
    "outlet",
    "housing",
    "straightener_hub",
    "straightener_vanes",
    "rotor_hub",
    "blades",
    "diffuser_hub",
    "diffuser_vanes",
)
INTERFACES = ("straightener_to_rotor", "rotor_to_diffuser")
"""Surfaces inside the mesh, between zones."""

_PROGRAM = Path(__file__).with_name("pump_gmsh.py")
_NO_GMSH = 3  # what the program ends with where Gmsh cannot be loaded
_LONGEST_REASON = 300
# Elements along blades are smaller than others by this, unless it is said otherwise.
_BY_BLADES = 0.6
# Shares of the hub's circumference that vanes may take, and of its radius that half of one may.
_CROWDED, _BROAD = 0.7, 0.6
_FINEST, _COARSEST = 1 / 40, 1 / 2  # element sizes over the housing's radius

Length = Annotated[float, Field(gt=0.0, le=1000.0)]
Angle = Annotated[float, Field(ge=-75.0, le=75.0)]


class Vanes(Table):
    """A row of vanes or blades. The tangent of their angle changes linearly along the axis."""

    count: Annotated[int, Field(ge=1, le=12)]
    """Number of vanes."""
    length_mm: Length
    """Length along the axis."""
    thickness_mm: Length
    """Thickness of a vane at the mean radius."""
    leading_angle: Angle
    """Angle from the axis at the mean radius and the upstream end, in degrees. Blades lean against the
    rotation, other vanes with it. The pitch is 2 pi mean radius / tan(angle)."""
    trailing_angle: Angle
    """Angle from the axis at the mean radius and the downstream end, in degrees."""


def _row(count: int, length: float, leading: float, trailing: float) -> Vanes:
    return Vanes(
        count=count,
        length_mm=length,
        thickness_mm=0.5,
        leading_angle=leading,
        trailing_angle=trailing,
    )


class Pump(Table):
    """An axial pump.

    Its boundaries are inlet, outlet, housing, straightener_hub, straightener_vanes, rotor_hub, blades,
    diffuser_hub and diffuser_vanes, its zones straightener, rotor and diffuser, and the surfaces between
    them straightener_to_rotor and rotor_to_diffuser.
    """

    housing_radius_mm: Length = 6.0
    """Inner radius of the pipe."""
    hub_radius_mm: Length = 3.0
    """Radius of the hub between nose and tail."""
    tip_gap_mm: Length = 0.3
    """Gap between the tips of the rotor's blades and the housing."""
    straightener: Vanes = _row(4, 8.0, 0.0, 0.0)
    """Fixed vanes before the rotor, from hub to housing."""
    rotor: Vanes = _row(3, 10.0, 65.0, 48.0)
    """Blades on the rotating part of the hub."""
    diffuser: Vanes = _row(3, 10.0, 60.0, 0.0)
    """Fixed vanes behind the rotor, from hub to housing."""
    inlet_length_mm: Length = 8.0
    """Length of the empty pipe before the nose."""
    nose_length_mm: Length = 4.0
    """Length of the hub's nose, half an ellipsoid."""
    clearance_mm: Length = 1.0
    """Distance along the axis between a row of vanes and the next zone."""
    tail_length_mm: Length = 8.0
    """Length of the hub's tail, half an ellipsoid."""
    outlet_length_mm: Length = 12.0
    """Length of the empty pipe behind the tail."""
    mesh_size_mm: Length = 1.0
    """Edge length of elements away from vanes."""
    blade_mesh_size_mm: Length | None = None
    """Edge length of elements along vanes; 0.6 of mesh_size_mm by default."""
    gap_layers: Annotated[int, Field(ge=1, le=10)] = 2
    """Layers of elements between the tip of a blade and the housing."""

    @model_validator(mode="after")
    def _fits(self) -> Pump:
        housing, hub = self.housing_radius_mm, self.hub_radius_mm
        _require("hub_radius_mm", hub, 0.1 * housing, 0.9 * housing)
        _require("tip_gap_mm", self.tip_gap_mm, 0.01 * (housing - hub), 0.3 * (housing - hub))
        _require("mesh_size_mm", self.mesh_size_mm, _FINEST * housing, _COARSEST * housing)
        if self.blade_mesh_size_mm is not None:
            low = _BY_BLADES * _FINEST * housing
            _require("blade_mesh_size_mm", self.blade_mesh_size_mm, low, self.mesh_size_mm)
        for name in ZONES:
            vanes: Vanes = getattr(self, name)
            steepest = max(abs(vanes.leading_angle), abs(vanes.trailing_angle))
            broad = vanes.thickness_mm / math.cos(math.radians(steepest))
            most = min(2 * math.pi * hub * _CROWDED / vanes.count, 2 * hub * _BROAD)
            if broad > most:
                raise CaseFault(
                    f"{counted(vanes.count, 'vane')} of {broad:.3g} mm around the hub, where the "
                    "angle is steepest, are too wide",
                    location=name,
                    allowed=f"at most {most:.3g} mm",
                    remedy="take fewer or thinner vanes, or smaller angles",
                )
        return self

    @property
    def mean_radius_mm(self) -> float:
        """Of hub and housing."""
        return (self.hub_radius_mm + self.housing_radius_mm) / 2

    @property
    def ends_mm(self) -> tuple[float, float, float, float]:
        """Where the zones begin and end along the axis; the inlet is at 0."""
        gap = self.clearance_mm
        first = self.inlet_length_mm + self.nose_length_mm + self.straightener.length_mm + gap
        second = first + self.rotor.length_mm + 2 * gap
        hub = second + gap + self.diffuser.length_mm + self.tail_length_mm
        return 0.0, first, second, hub + self.outlet_length_mm


def _require(name: str, size: float, low: float, high: float) -> None:
    if not low <= size <= high:
        raise CaseFault(
            "out of range",
            location=f"{name} = {size:g}",
            allowed=f"{low:.3g} to {high:.3g} with the other dimensions",
        )


def pump_mesh(pump: Pump, folder: Path | None = None, seconds: float = 7200.0) -> TetMesh:
    """Give the mesh of a pump: a kept one, or a new one made by Gmsh.

    `folder`: where meshes are kept; ``meshes`` in the cache folder by default.
    """
    # The same dimensions give the same mesh with the same version of Gmsh on the same machine: it
    # runs on one thread with nobody's settings. A kept mesh stays when Gmsh changes;
    # `TetMesh.notes` says which version made it.
    cache = Cache(folder or default_folder() / "meshes")
    plan = json.dumps(_plan(pump), sort_keys=True)
    made: list[TetMesh] = []

    def build(path: Path) -> None:
        _run_gmsh(plan, path, seconds)
        made.append(_read(path))
        check_quality(made[0])

    kept = cache.get(f"pump\n{plan}\n{_PROGRAM.read_text()}", ".msh", build)
    if made:
        return made[0]
    with tempfile.TemporaryDirectory() as place:
        # Readers of meshes would stumble over the digest behind the mesh.
        plain = Path(place) / "pump.msh"
        plain.write_bytes(cache.read(kept))
        return _read(plain)


def _plan(pump: Pump) -> dict[str, Any]:
    """Input of the program that calls Gmsh; lengths in mm, twists in radians per mm."""
    ends, gap, housing = pump.ends_mm, pump.clearance_mm, pump.housing_radius_mm
    starts = (pump.inlet_length_mm + pump.nose_length_mm, ends[1] + gap, ends[2] + gap)
    tips = (housing, housing - pump.tip_gap_mm, housing)
    names = ("straightener_vanes", "blades", "diffuser_vanes")
    faces = ("inlet", *INTERFACES, "outlet")
    hubs = (
        (pump.inlet_length_mm, ends[1]),
        (ends[1], ends[2]),
        (ends[2], ends[3] - pump.outlet_length_mm),
    )
    zones = []
    for number, zone in enumerate(ZONES):
        vanes: Vanes = getattr(pump, zone)
        lean = -1 if zone == "rotor" else 1
        angles = (vanes.leading_angle, vanes.trailing_angle)
        zones.append(
            {
                "name": zone,
                "low": ends[number],
                "high": ends[number + 1],
                "low_name": faces[number],
                "high_name": faces[number + 1],
                "hub": hubs[number],
                "hub_name": f"{zone}_hub",
                "nose": pump.nose_length_mm if number == 0 else 0.0,
                "tail": pump.tail_length_mm if number == 2 else 0.0,
                "vanes": {
                    "name": names[number],
                    "count": vanes.count,
                    "low": starts[number],
                    "high": starts[number] + vanes.length_mm,
                    "thickness": vanes.thickness_mm,
                    "tip_radius": tips[number],
                    "twists": [
                        lean * math.tan(math.radians(angle)) / pump.mean_radius_mm
                        for angle in angles
                    ],
                },
            }
        )
    return {
        "housing_radius": housing,
        "hub_radius": pump.hub_radius_mm,
        "mesh_size": pump.mesh_size_mm,
        "blade_mesh_size": pump.blade_mesh_size_mm or _BY_BLADES * pump.mesh_size_mm,
        "gap_layers": pump.gap_layers,
        "zones": zones,
    }


def _run_gmsh(plan: str, path: Path, seconds: float) -> None:
    try:
        # -P: no module comes from the folder of the program, whose neighbours have plain names.
        done = subprocess.run(
            [sys.executable, "-P", str(_PROGRAM), str(path)],
            input=plan,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"Gmsh has not finished the pump's mesh in {seconds:g} s",
            location="flow.pump",
            remedy="raise mesh_size_mm or lower gap_layers",
        ) from None
    if done.returncode == 0:
        return
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:_LONGEST_REASON]
    if done.returncode == _NO_GMSH:
        raise MachineError(
            f"the pump's mesh needs Gmsh ({reason})",
            location="flow.pump",
            remedy=f"run {install_command('pump')}",
        )
    if done.returncode < 0:
        raise MachineError(
            f"Gmsh was ended by signal {-done.returncode} while it made the pump's mesh",
            location="flow.pump",
            remedy="if memory is short, raise mesh_size_mm",
        )
    raise InputError(
        f"Gmsh cannot make the pump's mesh: {reason}",
        location="flow.pump",
        remedy="change the dimensions or mesh_size_mm",
    )


def _read(path: Path) -> TetMesh:
    """Read a mesh and see that it is a pump's."""
    mesh = read_tets(path, 1e-3)
    for kind, names, wanted in (
        ("zones", mesh.zone_names, ZONES),
        ("boundaries", tuple(mesh.boundaries), BOUNDARIES),
        ("inner surfaces", tuple(mesh.surfaces), INTERFACES),
    ):
        if sorted(names) != sorted(wanted):
            raise InputError(
                f"the pump's mesh has the {kind} {', '.join(sorted(names))}",
                location="flow.pump",
                allowed=", ".join(sorted(wanted)),
                remedy="change the dimensions or mesh_size_mm",
            )
    maker = _maker(path)
    return dataclasses.replace(mesh, notes=(*mesh.notes, f"the pump's mesh was made by {maker}"))


def _maker(path: Path) -> str:
    """Name of the program that made the file, as the file states it."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 200, 0))
        match = re.search(rb"\$Comments\n([\w. ]{1,80})\n\$EndComments", file.read())
    return match[1].decode("ascii", "replace") if match else "an unknown program"
