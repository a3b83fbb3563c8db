"""Mean profiles of a run: velocity and cells across a vessel, viscosity, the cell-free layer, and steadiness of the flow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import SolutionError, counted
from haloscope.exchange.plan import to_root
from haloscope.numerics.reduce import exact_bin_sums, exact_sum, total
from haloscope.solvers.blood.case import Profile
from haloscope.solvers.blood.cells.ownership import raise_together
from haloscope.solvers.blood.cells.suspension import Suspension
from haloscope.solvers.blood.coupling.inside import moved_volumes, outermost
from haloscope.solvers.blood.fluid_with_cells import FluidWithCells
from haloscope.solvers.blood.units import SOUND_SPEED
from haloscope.solvers.blood.vessels.straight_vessels import straight_vessel
from haloscope.solvers.blood.vessels.vessels import Vessel
from haloscope.solvers.interface import saved_counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

STRETCHES = 64
"""Sums that are kept; even."""
MOST_CHANGE = 0.01
"""Of flow, pressure gradient and drive, relative, in a flow that is called steady."""
_PARTS = 4
# Parts of the samples whose means are compared.
_STARTUPS = 5.0
# Of start-up times: less than exp(-5) = 0.7 % is left of the slowest part of the start-up.
_DIAMETERS = 25.0
# Way in which cells that were spread evenly come to their places across a vessel: D. Katanov,
# G. Gompper, D. A. Fedosov, Microvasc. Res. 99 (2015) 57.


def stretch_length(samples: int) -> int:
    """How many samples make a stretch: the least power of 2 with which there is room for all."""
    return 1 << max(0, -(-samples // STRETCHES) - 1).bit_length()


def add_sample(sums: Integers, taken: int, added: Integers) -> None:
    """Add a sample to sums over stretches, in place; samples come in their order.

    `sums`: (2, STRETCHES), as :func:`haloscope.numerics.reduce.exact_sum` gives them; `added`:
    the sample, (2,).
    """
    length = stretch_length(taken + 1)
    if length > stretch_length(taken):
        half = STRETCHES // 2
        sums[:, :half] = sums[:, ::2] + sums[:, 1::2]
        sums[:, half:] = 0
    sums[:, taken // length] += added


def means_of_parts(sums: Integers, samples: int) -> tuple[Floats, Floats]:
    """Means over quarters of the samples, or over fewer parts of fewer samples.

    `sums`: over stretches of all ranks, (2, STRETCHES); `samples`: how many they hold, at least 1;
    Returns: (parts,) each; a middle is the mean number, from 0, of a part's samples.
    """
    length = stretch_length(samples)
    filled = -(-samples // length)
    parts = np.array_split(np.arange(filled), min(_PARTS, filled))
    begins = np.array([part[0] for part in parts]) * length
    ends = np.append(begins[1:], samples)
    values = total(sums)
    means = np.array([values[part].sum() for part in parts]) / (ends - begins)
    return means, (begins + ends - 1) / 2


def largest_change(means: Floats, times: Floats, startup_time: float) -> tuple[float, float]:
    """How much the means of parts change, and within which time.

    `means`, `times`: of parts of the samples, (parts,), times in s; `startup_time`: in s. Where the
    parts lie within less, the fastest change goes on for so long.
    """
    if len(means) < 2:
        return math.nan, startup_time
    span = float(times[-1] - times[0])
    if span < startup_time:
        rates = np.diff(means) / np.diff(times)
        return float(rates[np.abs(rates).argmax()]) * startup_time, startup_time
    low, high = int(means.argmin()), int(means.argmax())
    return float(means[max(low, high)] - means[min(low, high)]), span


@dataclass(frozen=True)
class Steadiness:
    """How far a flow is from being steady."""

    # Relative changes of flow and pressure gradient between quarters of the samples, or within the
    # start-up time where that is longer; nan where they cannot be told.
    flow_change: float
    gradient_change: float
    change_time: float  # Within which these changes come about, in s
    drive_change: float  # Relative change over the samples of what the case drives the flow with
    # In s; see
    # :meth:`haloscope.solvers.blood.vessels.straight_vessels.StraightVessel.startup_time`.
    startup_time: float
    age: float  # From step 0 to the last sample, in s
    # Way of the mean flow in that time over the diameter; None without cells.
    diameters: float | None = None
    # Of a vessel with open ends over its diameter: blood that has gone so far is new.
    length: float = math.inf

    @property
    def steady(self) -> bool | None:
        """Whether the flow is steady; None: the samples do not tell."""
        if self.reasons():
            return False
        return None if math.isnan(self.flow_change) else True

    def reasons(self) -> list[str]:
        """Reasons why the flow is not steady, in words; empty where nothing shows that."""
        reasons = []
        if self.drive_change > MOST_CHANGE:
            reasons.append(
                f"its driving force changes by {100 * self.drive_change:.3g} % meanwhile"
            )
        for subject, change in (
            ("it", self.flow_change),
            ("its pressure gradient", self.gradient_change),
        ):
            if abs(change) > MOST_CHANGE:
                reasons.append(
                    f"{subject} changes by {_percent(change)} in {_time(self.change_time)}"
                )
        needed = _STARTUPS * self.startup_time
        if self.age < needed:
            reasons.append(f"its age is {_time(self.age)} and its start-up takes {_time(needed)}")
        way = min(_DIAMETERS, self.length)
        if self.diameters is not None and not self.diameters >= way:
            reasons.append(
                f"blood has travelled {self.diameters:.3g} of the {way:.3g} diameters in which the distribution "
                "of cells develops"
            )
        return reasons

    def describe(self) -> str:
        """Whether the flow is steady, for people."""
        reasons = self.reasons()
        if reasons:
            line = "the flow is not steady: " + ", ".join(reasons)
            if self.drive_change > MOST_CHANGE:
                return line
            return f"{line}; run longer or raise blood.profile.start"
        if self.steady is None:
            return (
                "whether the flow is steady is unknown from one sample; lower blood.profile.start or "
                "blood.profile.interval"
            )
        changes = f"{_percent(self.flow_change)} in {_time(self.change_time)}"
        return f"the flow is steady: it changes by {changes}"


def _percent(change: float) -> str:
    """A relative change of 3 digits, or of more in whole numbers."""
    return f"{100 * change:+.3g} %" if abs(change) < 9.99 else f"{100 * change:+.0f} %"


def _time(seconds: float) -> str:
    """A time of 3 digits in a unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


# All sums are whole numbers, so that they do not depend on ranks or restarts; only a lattice point
# within rounding of a cell's surface may count as inside on some ranks and not on others.


_PREFIX = "profile "
_NOT_FINITE = "the velocities of the fluid are not finite"


@dataclass(frozen=True, eq=False)
class MeanProfiles:
    """Mean profiles from the samples of a run, in SI units."""

    # How many there are, and from when to when.
    samples: int
    first_step: int
    last_step: int
    edges: Floats  # Of the bins, (bins + 1,), distances as :class:`StraightVessel` has them
    points: Integers  # Lattice points in each bin, (bins,)
    # Means over the points of each bin; nan where there are none. The hematocrit is the share of
    # points inside cells; None: there are no cells.
    distances: Floats
    velocity: Floats
    hematocrit: Floats | None
    # Mean speed along the vessel, the flow over the area of its cross-section; and mean pressure
    # gradient that drives it.
    speed: float
    gradient: float
    tube_hematocrit: float  # Volume of cells over that of the vessel
    # Volume of cells that passes over all volume that does: the sum of the cells' volumes times
    # their centroids' velocities over the sum of all points' velocities; nan without a flow.
    discharge_hematocrit: float
    discharge_by_points: float  # The same from the velocities of the points inside cells
    # Mean thickness of the layer free of cells, as :meth:`Profiles` has it; nan without cells.
    free_layer: float
    steadiness: Steadiness  # How far the flow is from being steady


def samples_left_out(
    extras: Mapping[str, NDArray[np.generic]], wanted: Integers | None = None
) -> str:
    """Notice of samples in a checkpoint that a restart does not take over."""
    if _PREFIX + "steps" not in extras or _PREFIX + "settings" not in extras:
        return ""
    samples = int(saved_counts(extras, _PREFIX + "steps", (3,))[0])
    settings = saved_counts(extras, _PREFIX + "settings", (3,))
    if not samples:
        return ""
    held = f"{counted(samples, 'sample')} of profiles in the checkpoint"
    before = _in_words(settings)
    if wanted is None:
        return f"{held} left out: the case has no blood.profile; set blood.profile = {before} to keep them"
    if np.array_equal(settings, wanted):
        return (
            f"profiles begin anew: {held} come from another version of Haloscope or another vessel"
        )
    return (
        f"profiles begin anew with blood.profile = {_in_words(wanted)}: {held} were taken with {before}; "
        "set blood.profile to these to keep them"
    )


def _in_words(settings: NDArray[np.generic]) -> str:
    named = zip(("start", "interval", "bins"), settings.tolist(), strict=True)
    return "{" + ", ".join(f"{name} = {value}" for name, value in named) + "}"


class Profiles:
    """Sums over samples of a run in a straight vessel."""

    # The layer free of cells is measured as it is under a microscope: the vessel is cut into slices
    # of one spacing, looked at from all around (a channel: along its walls), and in each view the
    # distance from the wall to the outermost point of any cell is taken. Its mean runs over views,
    # slices that hold a cell, and samples (S. Kim et al., Am. J. Physiol. Heart Circ. Physiol. 293
    # (2007) H1526; in simulations D. A. Fedosov et al., Microcirculation 17 (2010) 615). If there
    # are red cells only they count.

    def __init__(self, medium: FluidWithCells, vessel: Vessel) -> None:
        table, part, units = medium.table, medium.part, medium.table.units
        assert table.profile is not None
        self._table, self._profile = table, table.profile
        self._part, self._fluid, self._suspension = part, medium.fluid, medium.suspension
        self._lattice, self._units, self._world = vessel.lattice, units, medium.world
        self.vessel = straight = straight_vessel(table, vessel)
        self._drive = table.drive_signal()
        self._signals = [opening.time_signal() for opening in table.openings if opening.value]
        self._force = table.pressure_gradient_pa_m[straight.axis] / units.force_density
        coordinates = part.coordinates[: part.owned]
        first, stop = straight.planes
        plane = coordinates[:, straight.axis]
        self._chosen = np.flatnonzero((plane >= first) & (plane < stop))
        self._planes = plane[self._chosen] - first
        positions = vessel.lattice.origin + vessel.lattice.spacing * coordinates[self._chosen]
        distances = straight.distances(positions)
        bins = self._profile.bins
        self.edges = np.linspace(0.0, straight.wall, bins + 1)
        self._bins = np.clip(np.searchsorted(self.edges, distances, "right") - 1, 0, bins - 1)
        self._points = np.bincount(self._bins, minlength=bins).astype(np.int64)
        self._distances = exact_bin_sums(self._bins, distances / units.spacing, bins)
        planes = stop - first
        # On every rank, which the sums are not.
        self._taken = 0
        self._sums = {
            "steps": np.zeros(3, np.int64),
            "drive": np.zeros(2, np.int64),
            "speed": np.zeros((2, bins), np.int64),
            "pressure": np.zeros((2, planes), np.int64),
            "inside": np.zeros(bins, np.int64),
            "inside speed": np.zeros((2, bins), np.int64),
            "cells": np.zeros((2, 2), np.int64),
            "layer": np.zeros(2, np.int64),
            "views": np.zeros(1, np.int64),
            "flows": np.zeros((2, STRETCHES), np.int64),
            "slopes": np.zeros((2, STRETCHES), np.int64),
        }

    # Samples

    def is_due(self, step: int) -> bool:
        """Whether the state after a step is a sample."""
        since = step - self._profile.start
        return since >= 0 and since % self._profile.interval == 0

    def sample(self, step: int) -> None:
        """Add the state after a step; all ranks call this."""
        sums, bins, axis = self._sums, self._profile.bins, self.vessel.axis
        density, velocity = self._fluid.moments()
        speed = velocity[axis][self._chosen]
        if self._suspension is not None:
            self._suspension.require_sound()
        # Whole numbers, as sums are made of, have no infinity.
        finite = bool(np.isfinite(velocity).all())
        raise_together(self._world, None if finite else SolutionError(_NOT_FINITE))
        speeds = exact_bin_sums(self._bins, speed, bins)
        sums["speed"] += speeds
        add_sample(sums["flows"], self._taken, speeds.sum(axis=1))
        if not self.vessel.closed:
            pressure = (density[self._chosen] - 1) * SOUND_SPEED**2
            planes = sums["pressure"].shape[1]
            sums["pressure"] += exact_bin_sums(self._planes, pressure, planes)
            moment = exact_sum(pressure * (2 * self._planes - (planes - 1)))
            add_sample(sums["slopes"], self._taken, moment)
        self._taken += 1
        if self._world.is_root:
            sums["steps"] += [1, step if sums["steps"][0] == 0 else 0, 0]
            sums["steps"][2] = step
            # That of the step that led here.
            factor = self._drive((step - 1) * self._units.time_step)
            sums["drive"] += exact_sum([factor])
        if self._suspension is not None:
            self._sample_cells(self._suspension, speed)

    def _sample_cells(self, suspension: Suspension, speed: Floats) -> None:
        sums, bins = self._sums, self._profile.bins
        first, stop = self.vessel.planes
        outline = np.full((stop - first, len(self.vessel.views[0])), -np.inf)
        for number, local in enumerate(suspension.kinds):
            m, mesh = local.membranes, local.kind.mesh
            own, velocities = (
                m.on_host(array, local.count)[local.own] for array in (m.positions, m.velocities)
            )
            sums["cells"] += self._moved(own, velocities, mesh.triangles)
            if self._edges_count(number):
                outline = np.maximum(outline, self._outline(own, mesh.edges))
        inside = np.flatnonzero(suspension.flags_inside(self._part.owned)[self._chosen])
        at = self._bins[inside]
        sums["inside"] += np.bincount(at, minlength=bins)
        sums["inside speed"] += exact_bin_sums(at, speed[inside], bins)
        self._add_layer(outline)

    def _moved(self, own: Floats, velocities: Floats, triangles: NDArray[np.integer]) -> Integers:
        """Sums over own cells of volume times velocity, and of volume."""
        volume, centre, moved = moved_volumes(own, velocities, triangles, self.vessel.axis)
        if not self.vessel.closed:
            first, stop = self.vessel.planes
            there = (centre >= first - 0.5) & (centre < stop - 0.5)
            volume, moved = volume[there], moved[there]
        return np.stack([exact_sum(moved), exact_sum(volume)], axis=1)

    def _edges_count(self, kind: int) -> bool:
        shapes = [table.shape for table in self._table.cells]
        return shapes[kind] == "biconcave" or "biconcave" not in shapes

    def _outline(self, own: Floats, edges: NDArray[np.integer]) -> Floats:
        """How far own cells reach toward the walls in each slice and view, in m."""
        straight, lattice = self.vessel, self._lattice
        first, stop = straight.planes
        return outermost(
            lattice.origin + lattice.spacing * own,
            own[..., straight.axis] - (first - 0.5),
            edges,
            straight.views[0],
            stop - first,
            straight.closed,
        )

    def _add_layer(self, outline: Floats) -> None:
        """Add, on rank 0, distances of the outermost cells of all ranks from the walls."""
        outlines = to_root(self._world, outline[None])
        if not self._world.is_root:
            return
        reach = outlines.max(axis=0)
        gaps = (self.vessel.views[1] - reach)[np.isfinite(reach)]
        self._sums["layer"] += exact_sum(gaps / self._units.spacing)
        self._sums["views"] += len(gaps)

    # Restarts

    def _settings(self) -> Integers:
        asked: Profile = self._profile
        return np.array([asked.start, asked.interval, asked.bins], np.int64)

    def extras(self) -> dict[str, NDArray[np.generic]]:
        """Sums so far, whole on rank 0; all ranks call this."""
        extras: dict[str, NDArray[np.generic]] = {
            _PREFIX + name: self._world.sum(values).copy() for name, values in self._sums.items()
        }
        return extras | {_PREFIX + "settings": self._settings()}

    def restore(self, extras: Mapping[str, NDArray[np.generic]]) -> str:
        """Go on from a checkpoint, or from nothing if the case asks for other samples now."""
        nothing = np.empty(0, np.int64)
        alike = np.array_equal(extras.get(_PREFIX + "settings", nothing), self._settings())
        kept = {name: extras.get(_PREFIX + name, nothing) for name in self._sums}
        for name, values in self._sums.items():
            alike = alike and kept[name].shape == values.shape
        if alike:
            for name, values in self._sums.items():
                # They take all 64 bits.
                if kept[name].dtype != values.dtype:
                    saved_counts(kept, name, values.shape, least=-math.inf)
            for name in ("steps", "views"):
                saved_counts(kept, name, self._sums[name].shape)
        for name, values in self._sums.items():
            # Rank 0 has them for all.
            values[...] = kept[name] if alike and self._world.is_root else 0
        self._taken = int(kept["steps"][0]) if alike else 0
        return "" if alike else samples_left_out(extras, self._settings())

    # Means

    def means(self) -> MeanProfiles | None:
        """Means of all samples, the same on every rank; None: there are none."""
        world, units, straight = self._world, self._units, self.vessel
        sums = {name: world.sum(values).copy() for name, values in self._sums.items()}
        points = world.sum(self._points).copy()
        distances = total(world.sum(self._distances).copy()) * units.spacing
        samples, first, last = (int(n) for n in sums["steps"])
        if not samples:
            return None
        speed, inside = total(sums["speed"]), sums["inside"]
        flow = float(speed.sum())
        first_plane, stop = straight.planes
        # Where walls lie between points their volume is not that of the points.
        volume_of_all = (stop - first_plane) * straight.area / units.spacing**2
        drive = self._force * float(total(sums["drive"])) / samples
        if not straight.closed:
            fluid_volume = points.sum() / (stop - first_plane) * samples
            pressure = total(sums["pressure"]) / fluid_volume
            drive -= float(np.polyfit(np.arange(len(pressure)), pressure, 1)[0])
        gradient = drive * units.force_density
        mean_speed = flow / volume_of_all / samples * units.velocity
        moved, volume = total(sums["cells"])
        views = int(sums["views"][0])
        with np.errstate(divide="ignore", invalid="ignore"):
            by_cells, by_points = np.divide([moved, total(sums["inside speed"]).sum()], flow)
            return MeanProfiles(
                samples,
                first,
                last,
                self.edges,
                points,
                distances / points,
                speed / points / samples * units.velocity,
                None if self._suspension is None else inside / points / samples,
                mean_speed,
                gradient,
                float(volume) / volume_of_all / samples,
                float(by_cells),
                float(by_points),
                float(total(sums["layer"])) / views * units.spacing if views else float("nan"),
                self._steadiness(sums, int(points.sum()), mean_speed, gradient),
            )

    def _steadiness(
        self, sums: Mapping[str, Integers], points: int, speed: float, gradient: float
    ) -> Steadiness:
        """Judged from sums of all ranks over so many points.

        `speed`, `gradient`: means over all samples in m/s and Pa/m.
        """
        table, straight, step = self._table, self.vessel, self._units.time_step
        samples, first, last = (int(n) for n in sums["steps"])
        viscosity = table.viscosity
        if table.carreau is not None:
            viscosity = min(viscosity, table.carreau.infinite_shear_mpa_s * 1e-3)
        startup = straight.startup_time(viscosity / table.density_kg_m3)
        flows, middles = means_of_parts(sums["flows"], samples)
        times = middles * self._profile.interval * step
        change, seconds = largest_change(flows, times, startup)
        flow = float(total(sums["flows"]).sum()) / samples
        steeper = 0.0
        pressed = straight.has_gradient(gradient, speed, table.viscosity)
        if pressed and not straight.closed:
            # The slope of the line through means of planes, by least squares.
            planes = sums["pressure"].shape[1]
            moments = planes * (planes**2 - 1) / 6 * (points / planes)
            slopes, _ = means_of_parts(sums["slopes"], samples)
            slope = largest_change(slopes, times, startup)[0] / moments
            steeper = -slope * self._units.force_density / gradient
        signals = [*self._signals, *([self._drive] if self._force else [])]
        driven = [signal.change((first - 1) * step, (last - 1) * step) for signal in signals]
        open_length = math.inf
        if not straight.closed:
            open_length = self._lattice.shape[straight.axis] * self._units.spacing
        age = last * step
        gone = None if self._suspension is None else abs(speed) * age / straight.diameter
        return Steadiness(
            change / flow if flow else math.nan,
            steeper,
            seconds,
            max(driven, default=0.0),
            startup,
            age,
            gone,
            open_length / straight.diameter,
        )
