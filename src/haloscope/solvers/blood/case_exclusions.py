"""Keys of a blood case that exclude each other, for the reference and its test."""

from __future__ import annotations

from haloscope.case.tables import Exclusion

_OPEN = 'blood.channel={size_um=[19.2, 12.0, 12.0], periodic=[], open=["x"]}'
_INLET = 'name="x_low", kind="velocity", value=1e-3'
_OUTLET = 'name="x_high", kind="pressure"'


def _openings(*tables: str) -> tuple[str, ...]:
    return (_OPEN, f"blood.openings=[{', '.join('{' + table + '}' for table in tables)}]")


EXCLUSIONS = (
    Exclusion(
        ("blood.channel", "blood.tube, bifurcation, tree or surface"),
        "a case has one vessel",
        ("blood.tube={radius_um=10.0, length_um=40.0}",),
    ),
    Exclusion(
        ("blood.relaxation_time", "blood.time_step_us"),
        "both set the time step",
        ("blood.time_step_us=0.05",),
    ),
    Exclusion(
        ("blood.end_time_ms", "run.steps"),
        "both set the end of the run",
        ("blood.end_time_ms=1.0", "run.steps=2000"),
    ),
    Exclusion(
        ("blood.drive", "blood.pressure_gradient_pa_m of 0"),
        "the factor has no effect",
        ("blood.drive=0.5", "blood.pressure_gradient_pa_m=[0.0, 0.0, 0.0]"),
    ),
    Exclusion(
        ("blood.magic", 'blood.collision = "bgk"'),
        "bgk has one relaxation time",
        ("blood.collision=bgk", "blood.magic=0.25"),
    ),
    Exclusion(
        ("blood.storage", 'blood.precision = "double"'),
        "half storage computes in single precision",
        ("blood.storage=half", "blood.precision=double"),
    ),
    Exclusion(
        ("blood.carreau", "blood.cells"),
        "the viscosity of whole blood includes the cells",
        ("blood.carreau={}",),
    ),
    Exclusion(
        ("blood.channel.periodic", "blood.channel.open"),
        "an axis is periodic or open",
        ('blood.channel.open=["x"]',),
    ),
    Exclusion(
        ("blood.walls.velocity_m_s", "an axis that is periodic or open, or another vessel"),
        "only walls of a channel move",
        ("blood.walls.velocity_m_s={x_low=[0.0, 1e-3, 0.0]}",),
    ),
    Exclusion(
        ("blood.walls.velocity_m_s", "the wall's normal"),
        "a wall moves only within its plane",
        ("blood.walls.velocity_m_s={y_low=[0.0, 1e-3, 0.0]}",),
    ),
    Exclusion(
        ("blood.openings.feeds", 'blood.openings.kind = "pressure"'),
        "cells enter with a prescribed velocity",
        _openings(_INLET, f"{_OUTLET}, feeds=true"),
    ),
    Exclusion(
        ("blood.openings.feeds", "a case without blood.cells"),
        "there are no cells that could enter",
        (*_openings(f"{_INLET}, feeds=true", _OUTLET), "blood.cells=[]"),
    ),
    Exclusion(
        ("blood.openings.profile", 'blood.openings.kind = "pressure"'),
        "profiles are for velocities",
        _openings(_INLET, f'{_OUTLET}, profile="uniform"'),
    ),
    Exclusion(
        ("blood.openings.period_s", "a blood.openings.signal that is a number"),
        "a number has no period",
        _openings(f"{_INLET}, period_s=0.1", _OUTLET),
    ),
    Exclusion(
        ("blood.openings.position_um", "blood.openings without a normal (or the other way round)"),
        "a plane needs both",
        _openings(f"{_INLET}, position_um=[0.0, 0.0, 0.0]", _OUTLET),
    ),
    Exclusion(
        ("blood.openings.position_um", "a vessel other than blood.surface"),
        "planes cut surfaces; other vessels are open at their own ends",
        _openings(f"{_INLET}, position_um=[0.0, 6.0, 6.0], normal=[-1.0, 0.0, 0.0]", _OUTLET),
    ),
    Exclusion(
        ("blood.cells.hematocrit", "blood.cells.placed"),
        "both set where cells start",
        ("blood.cells.0.hematocrit=0.1",),
    ),
    Exclusion(
        ("blood.cells.area_ratio", 'blood.cells.law = "neo-hookean"'),
        "it is a parameter of the Skalak law",
        ("blood.cells.0.law=neo-hookean", "blood.cells.0.area_ratio=5.0"),
    ),
    Exclusion(
        ("blood.cells.thickness", 'a blood.cells.shape other than "oblate"'),
        "the proportions of other shapes are fixed",
        ("blood.cells.0.thickness=0.5",),
    ),
)
