"""Keys of a Maxwell case that contradict each other: the list for the reference, and the refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from haloscope.case.tables import CaseFault, Exclusion
from haloscope.solvers.maxwell.terms.media import Medium

if TYPE_CHECKING:
    from haloscope.solvers.maxwell.case import MaxwellCase, MaxwellTable

_SOURCE = (
    "maxwell.sources=[{kind='dipole', position=[0.1, 0.1, 0.1], moment=[0.0, 0.0, 1e-3], "
    "waveform={kind='ricker', centre=2e-9, frequency=1e9}}]"
)
_WAVE = (
    "maxwell.waves=[{{direction=[1.0, 0.0, 0.0], polarisation=[0.0, 0.0, 1.0], "
    "waveform={{kind='gaussian', centre=1e-9, width=2e-10}}, {}}}]"
)

EXCLUSIONS = (
    Exclusion(
        ("maxwell.box", "maxwell.cylinder, maxwell.sphere or maxwell.mesh"),
        "a case has one mesh",
        ("maxwell.cylinder.radius=0.1", "maxwell.cylinder.top=0.3"),
    ),
    Exclusion(
        ("maxwell.initial", "maxwell.exact"),
        "both set the fields at step 0",
        ("maxwell.exact.solution=cavity-te101",),
    ),
    Exclusion(
        ("maxwell.exact", "sources, waves, a layer or materials"),
        "the known solutions are fields in vacuum without sources",
        ("maxwell.initial.Ez=0.0", "maxwell.exact.solution=cavity-te101", _SOURCE),
    ),
    Exclusion(
        ("maxwell.end_time", "run.steps"),
        "both set the end of the run",
        ("run.steps=500",),
    ),
    Exclusion(
        ("maxwell.time_step", "maxwell.cfl"),
        "cfl only affects the automatic step",
        ("maxwell.time_step=1e-12", "maxwell.cfl=0.5"),
    ),
    Exclusion(
        ("maxwell.cfl", 'maxwell.integrator = "exponential"'),
        "steps of the exponential integrator have no stability bound",
        ("maxwell.integrator=exponential", "maxwell.cfl=0.5"),
    ),
    Exclusion(
        ("maxwell.krylov", 'maxwell.integrator = "runge-kutta"'),
        "krylov holds settings of the exponential integrator",
        ("maxwell.krylov.dimension=10",),
    ),
    Exclusion(
        (
            'maxwell.integrator = "exponential"',
            "sources, waves, a layer, or materials that conduct or have poles",
        ),
        "the exponential integrator does not support them",
        ("maxwell.integrator=exponential", _SOURCE),
    ),
    Exclusion(
        ("maxwell.far_field.box", "maxwell.far_field.regions"),
        "both choose the surface",
        (
            _SOURCE,
            "maxwell.far_field={frequencies=[1e9], regions=['volume'], "
            "box=[[0.05, 0.05, 0.05], [0.25, 0.15, 0.15]]}",
        ),
    ),
    Exclusion(
        ("maxwell.waves.inside", "maxwell.waves.box", "maxwell.waves.boundaries"),
        "each sets where a wave enters",
        (_WAVE.format("inside=['volume'], boundaries=['x-']"),),
    ),
    Exclusion(
        ("maxwell.waves.boundaries", "a boundary there that does not absorb"),
        "a wave enters only through absorbing boundaries",
        (_WAVE.format("boundaries=['x-']"),),
    ),
    Exclusion(
        ("maxwell.sphere.outer_radius", "maxwell.sphere.box_half_width"),
        "a sphere or a cube surrounds the sphere",
        ("maxwell.sphere={radius=0.1, outer_radius=0.2, box_half_width=0.2}",),
    ),
)


def require_no_contradiction(table: MaxwellTable) -> None:
    """Refuse keys that contradict each other within [maxwell]."""
    additions = {
        "maxwell.sources": bool(table.sources),
        "maxwell.waves": bool(table.waves),
        "maxwell.layer": table.layer is not None,
    }
    media = [material.material(table.unit_system) for material in table.materials]
    lossy = any(isinstance(medium, Medium) and not medium.plain for medium in media)
    other = any(medium.permittivity != 1 or medium.permeability != 1 for medium in media)
    if table.exact is not None:
        driven = additions | {"maxwell.materials": lossy or other}
        for name, present in driven.items():
            if present:
                raise CaseFault(
                    f"it is a solution without sources in vacuum, but {name} is set",
                    location="exact",
                    remedy=f"remove it or {name} (maxwell.initial sets fields at step 0)",
                )
    default = type(table).model_fields["cfl"].default
    if table.cfl != default and table.time_step != "auto":
        raise CaseFault(
            f"maxwell.time_step = {table.time_step:g} and maxwell.cfl = {table.cfl:g} are both set, but "
            "cfl only affects the automatic step",
            allowed="one of them",
            remedy="remove one",
        )
    if table.integrator == "exponential":
        if table.cfl != default:
            raise CaseFault(
                'it has no effect with maxwell.integrator = "exponential", whose steps have no stability bound',
                location=f"cfl = {table.cfl:g}",
                remedy="remove it, or set maxwell.time_step",
            )
        for name, present in (additions | {"maxwell.materials": lossy}).items():
            if present:
                raise CaseFault(
                    "the exponential integrator does not support conducting or dispersive media, layers, "
                    f"sources or waves, but {name} is set",
                    location='integrator = "exponential"',
                    remedy='set maxwell.integrator = "runge-kutta"',
                )
    for number, wave in enumerate(table.waves):
        for name in wave.boundaries:
            kind = table.boundaries.get(name, "absorbing")
            if kind != "absorbing":
                raise CaseFault(
                    f"a wave cannot enter at {name!r}, which is "
                    f"{kind if isinstance(kind, str) else 'a lossy wall'!r}",
                    location=f"waves.{number}.boundaries",
                    allowed="absorbing boundaries",
                    remedy=f'set maxwell.boundaries."{name}" = "absorbing"',
                )


def require_one_end(case: MaxwellCase) -> None:
    """Refuse a number of steps beside an end time; as it is by default it is no mistake."""
    default = type(case.run).model_fields["steps"].default
    if case.maxwell.end_time is not None and case.run.steps != default:
        raise CaseFault(
            f"maxwell.end_time = {case.maxwell.end_time:g} and run.steps = {case.run.steps} both set "
            "the end of the run",
            allowed="one of them",
            remedy="remove one (--steps N ends one run after N steps)",
        )
