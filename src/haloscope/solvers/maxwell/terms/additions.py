"""Terms added pointwise to Maxwell's right-hand sides, and the end and highest frequency of their waveforms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.mesh.hexes.hexes import HexMesh, elements_text
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms.incident import PlacedWave, PlaneWave
from haloscope.solvers.maxwell.terms.layers import SOURCE as LAYERS_SOURCE
from haloscope.solvers.maxwell.terms.layers import Layer, LayerTerm, PlacedLayer, layer_terms
from haloscope.solvers.maxwell.terms.media import SOURCE as MEDIA_SOURCE
from haloscope.solvers.maxwell.terms.media import Medium, MediumTerm, media_terms
from haloscope.solvers.maxwell.terms.sources import (
    SOURCE,
    Current,
    Entries,
    OwnElements,
    driven_terms,
)
from haloscope.solvers.maxwell.terms.terms import (
    COMPONENTS,
    Bound,
    Floats,
    Integers,
    Setting,
    SourceTerm,
    kernel_file,
)
from haloscope.solvers.maxwell.terms.waveforms import (
    Gaussian,
    ModulatedGaussian,
    RampedSine,
    Ricker,
    Table,
    Waveform,
)

# exp(-s^2) is below 2e-11 from here on; its spectrum exp(-(pi f w)^2) at pi f w likewise.
_FADED = 5.0
# The same for (1 - 2 s^2) exp(-s^2).
_FADED_RICKER = 5.4
# Of a table's spectrum what is below this part of its largest value counts for nothing.
_LEAST = 1e-8
# Where a spectrum has fallen to 1 % of its peak: exp(-s^2) and, for Ricker's, s^2 exp(1 - s^2). The
# same of the pulses themselves in time.
_MAIN = 0.01
_MAIN_GAUSSIAN = math.sqrt(-math.log(_MAIN))
_MAIN_RICKER = 2.764
_MAIN_RICKER_TIME = 2.684
# Times at which a pulse is looked at for its largest value.
_LOOKS = 1000


def end(waveform: Waveform) -> float:
    """Time from which a waveform is 0; inf for one that goes on."""
    if isinstance(waveform, RampedSine):
        return math.inf
    if isinstance(waveform, Ricker):
        return waveform.centre + _FADED_RICKER / (math.pi * waveform.frequency)
    if isinstance(waveform, Gaussian | ModulatedGaussian):
        return waveform.centre + _FADED * waveform.width
    return waveform.start + waveform.spacing * (len(waveform.values) - 1)


def highest_frequency(waveform: Waveform) -> float:
    """Frequency above which a waveform has no content."""
    if isinstance(waveform, RampedSine):
        return waveform.frequency
    if isinstance(waveform, Ricker):
        return waveform.frequency * _FADED
    if isinstance(waveform, Gaussian):
        return _FADED / (math.pi * waveform.width)
    if isinstance(waveform, ModulatedGaussian):
        return waveform.frequency + _FADED / (math.pi * waveform.width)
    heights = np.abs(np.fft.rfft(waveform.values))
    last = np.flatnonzero(heights >= _LEAST * heights.max())
    return float(last[-1]) / (len(waveform.values) * waveform.spacing) if len(last) else 0.0


def main_frequency(waveform: Waveform) -> float:
    """Frequency at which a waveform's spectrum has fallen to 1 % of its peak."""
    if isinstance(waveform, RampedSine):
        return waveform.frequency
    if isinstance(waveform, Ricker):
        return waveform.frequency * _MAIN_RICKER
    if isinstance(waveform, Gaussian):
        return _MAIN_GAUSSIAN / (math.pi * waveform.width)
    if isinstance(waveform, ModulatedGaussian):
        return waveform.frequency + _MAIN_GAUSSIAN / (math.pi * waveform.width)
    heights = np.abs(np.fft.rfft(waveform.values))
    last = np.flatnonzero(heights >= _MAIN * heights.max())
    return float(last[-1]) / (len(waveform.values) * waveform.spacing) if heights.any() else 0.0


def main_end(waveform: Waveform) -> float:
    """Time from which a waveform stays below 1 % of its peak; inf for one that goes on."""
    if isinstance(waveform, RampedSine):
        return math.inf
    if isinstance(waveform, Ricker):
        return waveform.centre + _MAIN_RICKER_TIME / (math.pi * waveform.frequency)
    if isinstance(waveform, Gaussian | ModulatedGaussian):
        return waveform.centre + _MAIN_GAUSSIAN * waveform.width
    heights = np.abs(waveform.values)
    last = np.flatnonzero(heights > _MAIN * heights.max())
    return waveform.start + waveform.spacing * float(last[-1]) if len(last) else waveform.start


def main_begin(waveform: Waveform) -> float:
    """Time up to which a waveform stays below 1 % of its peak; inf for one that is 0 throughout."""
    if isinstance(waveform, RampedSine):
        return 0.0
    if isinstance(waveform, Ricker):
        return waveform.centre - _MAIN_RICKER_TIME / (math.pi * waveform.frequency)
    if isinstance(waveform, Gaussian | ModulatedGaussian):
        return waveform.centre - _MAIN_GAUSSIAN * waveform.width
    heights = np.abs(waveform.values)
    first = np.flatnonzero(heights > _MAIN * heights.max())
    return waveform.start + waveform.spacing * float(first[0]) if len(first) else math.inf


def largest_cut(waveform: Waveform) -> float:
    """Part of its peak at which a waveform jumps: where time 0 cuts it, or where its table ends."""
    if isinstance(waveform, RampedSine) or math.isinf(main_begin(waveform)):
        return 0.0
    if isinstance(waveform, Table):
        heights = np.abs(waveform.values)
        ends = [heights[0], heights[-1]]
        times = waveform.start + waveform.spacing * np.arange(len(heights))
        return float(max(*ends, heights[times <= 0].max(initial=0.0)) / heights.max())
    before = np.linspace(min(main_begin(waveform), 0.0), 0.0, _LOOKS)
    heights = np.abs(waveform(np.linspace(main_begin(waveform), main_end(waveform), _LOOKS)))
    return float(np.abs(waveform(before)).max() / heights.max())


def sources_end(currents: Sequence[Current], waves: Sequence[PlaneWave], across: float) -> float:
    """Time after which nothing drives the fields; 0 without sources."""
    ends = [end(current.waveform) for current in currents]
    ends += [end(wave.waveform) + across for wave in waves]
    return max([0.0, *ends])


SEVERAL_MEDIA = "the surface of the plane wave runs through several media"
IN_ONE_MEDIUM = "place the surface in one medium"
_AXES = ("x", "y", "z")


class PlacedDrive(Protocol):
    """A current or a wave whose elements are known."""

    @property
    def concerned(self) -> NDArray[np.bool_]:
        """Whether it drives each element of the mesh."""

    def entries(self, own: OwnElements) -> list[Entries]:
        """Entries added on this rank."""


@dataclass(frozen=True, eq=False)
class PlacedAdditions:
    """Media, layers, currents and waves, and which elements of a mesh they concern.

    The mesh is the whole, or a rank's elements and what lies behind their faces on other ranks.
    """

    media: Mapping[int, Medium]  # By region of the mesh
    regions: NDArray[np.integer]  # Of each element
    # Of each element.
    permittivity: Floats
    permeability: Floats
    # The absorbing layer, and whether each element reaches into it, by axis (elements, 3).
    layer: PlacedLayer | None
    axes: NDArray[np.bool_]
    drives: tuple[PlacedDrive, ...]  # Currents and waves
    # Whether each element conducts, has memory or reaches into the layer, (elements,).
    damped: NDArray[np.bool_]
    concerned: NDArray[np.bool_]  # Whether anything is added in each element, (elements,)

    @property
    def fastest(self) -> float:
        """Bound for the magnitude of the eigenvalues that come on top of those of the curl."""
        media = max((m.fastest for m in self.media.values() if not m.plain), default=0.0)
        return media + (self.layer.fastest if self.layer is not None else 0.0)


def place(
    mesh: HexMesh,
    order: int,
    *,
    media: Sequence[Material] = (Material(),),
    layer: Layer | None = None,
    currents: Sequence[Current] = (),
    waves: Sequence[PlaneWave] = (),
) -> PlacedAdditions:
    """Find the elements of a whole mesh to which anything is added."""
    placed = None
    if layer is not None:
        placed = layer.placed(mesh, fastest_wave(mesh, media))
    placed_currents = [current.placed(mesh, order) for current in currents]
    through = [wave.placed(mesh, order) for wave in waves]
    result = combine(mesh, media, placed, [*placed_currents, *through])
    check_waves(result, through, mesh)
    return result


def fastest_wave(mesh: HexMesh, media: Sequence[Material]) -> float:
    """Largest speed in all media of some elements: an absorbing layer matches where they meet."""
    permittivity, permeability = _constants(mesh, media)
    return float(1 / np.sqrt((permittivity * permeability).min()))


def _constants(mesh: HexMesh, media: Sequence[Material]) -> tuple[Floats, Floats]:
    regions = _regions(mesh, media)
    of = np.array([[medium.permittivity, medium.permeability] for medium in media])[regions]
    return of[:, 0], of[:, 1]


def _regions(mesh: HexMesh, media: Sequence[Material]) -> NDArray[np.integer]:
    return mesh.regions if len(media) > 1 else np.zeros(mesh.count, np.int32)


def combine(
    mesh: HexMesh,
    media: Sequence[Material],
    layer: PlacedLayer | None,
    drives: Sequence[PlacedDrive],
) -> PlacedAdditions:
    """All that is added in some elements, where each of it is known."""
    regions, (permittivity, permeability) = _regions(mesh, media), _constants(mesh, media)
    full = {number: m for number, m in enumerate(media) if isinstance(m, Medium)}
    axes = np.zeros((mesh.count, 3), bool) if layer is None else layer.reached(mesh)
    lossy = np.isin(regions, [number for number, m in full.items() if not m.plain])
    damped = lossy | axes.any(axis=1)
    concerned = damped.copy()
    for drive in drives:
        concerned |= drive.concerned
    return PlacedAdditions(
        full, regions, permittivity, permeability, layer, axes, tuple(drives), damped, concerned
    )


def check_waves(
    placed: PlacedAdditions,
    waves: Sequence[PlacedWave],
    mesh: HexMesh,
    numbers: Integers | None = None,
) -> None:
    """Refuse waves that come in through layers, lossy media or several media."""
    for wave in waves:
        bad = np.flatnonzero(wave.concerned & placed.damped)
        if len(bad):
            raise InputError(
                "the surface of the plane wave runs through an absorbing layer, or a medium that conducts "
                "or has memory",
                location=elements_text(bad if numbers is None else numbers[bad], mesh.centres[bad]),
                remedy="move the surface",
            )
        of = (values[wave.concerned] for values in (placed.permittivity, placed.permeability))
        if any(len(values) and np.ptp(values) > 0 for values in of):
            raise InputError(SEVERAL_MEDIA, remedy=IN_ONE_MEDIUM)


def kernel_files(
    order: int,
    real: np.dtype[Any],
    media: Sequence[Material],
    layer: Layer | None,
    drives: Sequence[Current | PlaneWave],
) -> Iterator[KernelFile]:
    """All kernels that :class:`PointwiseAdditions` may need for what is added in a mesh."""
    lossy = [medium for medium in media if isinstance(medium, Medium) and not medium.plain]
    if not (lossy or layer or drives):
        return
    yield kernel_file(SOURCE, order, real, {})
    for medium in lossy:
        yield kernel_file(MEDIA_SOURCE, order, real, medium.constants)
    if layer is not None:
        yield kernel_file(LAYERS_SOURCE, order, real, {})


class PointwiseAdditions:
    """Terms added on this rank; see :class:`haloscope.solvers.maxwell.stepping.SourceTerms`.

    `places`: their nodes (elements, N + 1, N + 1, N + 1, 3).
    """

    def __init__(
        self,
        placed: PlacedAdditions,
        part: MeshPart,
        places: Floats,
        kinds: Sequence[int],
        device: Device,
        *,
        dtype: type = np.float64,
        upwind: bool = True,
    ) -> None:
        self.kinds: Sequence[int] = tuple(kinds)
        self.fastest = placed.fastest
        self._part = part
        order = places.shape[1] - 1
        self._setting = setting = Setting(device, order, np.dtype(dtype))
        of_kinds = _elements_of(part, self.kinds)
        concerned = placed.concerned[part.elements]
        if not of_kinds[concerned].all():
            raise ValueError("an element with added terms belongs to no kind")
        regions = placed.regions[part.elements]
        lossy = np.isin(regions, [n for n, m in placed.media.items() if not m.plain])
        axes = placed.axes[part.elements]
        self._layers = (
            layer_terms(setting, placed.layer, axes, places, lossy)
            if placed.layer is not None
            else []
        )
        beyond, beyond_at = self._beyond()
        self._media = media_terms(setting, placed.media, regions, beyond, beyond_at)
        own = OwnElements(part, places, placed.permittivity, placed.permeability, upwind)
        entries = [entry for drive in placed.drives for entry in drive.entries(own)]
        driven = driven_terms(setting, entries)
        # Media scale increments first, then layers; what is left is scaled here.
        left = np.flatnonzero(of_kinds & ~lossy & ~axes.any(axis=1))
        scaling = [_Scaling(setting, left)] if len(left) else []
        self._terms: list[SourceTerm] = [*self._media, *self._layers, *scaling, *driven]
        self._clock = device.from_host(np.zeros(2))
        tick = setting.kernel(SOURCE, "tick")
        self._tick = tick.bind(clock=self._clock, steps=1, extent=(1,), block=(1,))
        self._launches: list[list[tuple[str, Launch]]] = [[] for _ in range(LSERK4.stages)]
        self._dt = 0.0

    def _beyond(self) -> tuple[Array, Integers]:
        at = np.full(len(self._part.elements), -1)
        for term in self._layers:
            if term.lossy:
                at[term.elements] = np.arange(len(term.elements))
                return term.beyond, at
        return None, at

    def bind(self, fields: Array, increments: Array, dt: float) -> None:
        """Take the arrays and a time step from now on."""
        if dt != self._dt:
            self.set_time(self.time)
            self._dt = dt
        to = Bound(fields, increments, self._clock, float(dt))
        bound = [term.bind(to) for term in self._terms]
        names = [type(term).__name__ for term in self._terms]
        self._launches = [
            [
                (name, one)
                for name, launches in zip(names, bound, strict=True)
                for one in launches[stage]
            ]
            for stage in range(LSERK4.stages)
        ]

    def before(self, stage: int) -> Sequence[tuple[str, Launch]]:
        """Launches before a stage, each with the name of its term."""
        return self._launches[stage]

    def after_step(self) -> Sequence[tuple[str, Launch]]:
        """Launches at the end of a step: time goes on."""
        return [("Clock", self._tick)]

    @property
    def time(self) -> float:
        """The time that sources have come to."""
        origin, steps = self._setting.device.to_host(self._clock)
        return float(origin + steps * self._dt)

    def set_time(self, t: float) -> None:
        """Let sources go on from a time."""
        self._clock[:] = self._setting.device.from_host(np.array([t, 0.0]))

    def set_steps(self, steps: int) -> None:
        """Let sources go on as after that many steps from time 0, to the last bit."""
        self._clock[:] = self._setting.device.from_host(np.array([0.0, float(steps)]))

    # Checkpoints

    def _kept(self) -> Iterator[tuple[str, MediumTerm | LayerTerm]]:
        """Terms with states, by what their states are; several may have one name."""
        for medium in self._media:
            if medium.width:
                yield f"medium_{medium.width}", medium
        for layer in self._layers:
            part = "lossy" if layer.lossy else "corner" if layer.axis is None else _AXES[layer.axis]
            yield f"layer_{part}", layer

    def state(self) -> dict[str, NDArray[Any]]:
        """State of this rank for a checkpoint.

        Returns: ``time``, and in pairs NAME (n, values, nodes) with NAME_elements (n,), the
        elements' numbers in the part. Rows of a name may be joined in any order.
        """
        rows: dict[str, list[tuple[Integers, Floats]]] = {}
        for name, term in self._kept():
            rows.setdefault(name, []).append((self._part.elements[term.elements], term.states))
        result: dict[str, NDArray[Any]] = {"time": np.array([self.time])}
        for name, parts in rows.items():
            result[f"{name}_elements"] = np.concatenate([elements for elements, _ in parts])
            result[name] = np.concatenate([values for _, values in parts])
        return result

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take over a state; rows of elements that are not here are passed over."""
        for name, term in self._kept():
            numbers = state.get(f"{name}_elements", np.zeros(0, np.int64))
            wanted = self._part.elements[term.elements]
            order = np.argsort(numbers)
            at = np.searchsorted(numbers, wanted, sorter=order)
            there = at < len(numbers)
            rows = order[np.where(there, at, 0)] if len(numbers) else np.zeros(0, np.int64)
            if not (there.all() and (numbers[rows] == wanted).all()):
                raise InputError(
                    f"it lacks {name} of some elements, since it was written for other media or layers",
                    location="checkpoint",
                    remedy="restart with the case that wrote it, or start again",
                )
            values = state[name][rows]
            if values.shape[1:] != (*term.states.shape[1:],):
                raise InputError(
                    f"it holds {name} of shape {values.shape[1:]}, but this case needs {term.states.shape[1:]}",
                    location="checkpoint",
                    remedy="restart with the case that wrote it",
                )
            term.states = values
        self.set_time(float(state["time"][0]))


class _Scaling:
    """The stage's factor for elements to which nothing else has applied it."""

    def __init__(self, setting: Setting, elements: Integers) -> None:
        self._setting, self._count = setting, len(elements)
        self._elements = setting.put(elements, np.int64)
        self._kernel = setting.kernel(SOURCE, "scale")

    def bind(self, to: Bound) -> list[list[Launch]]:
        """Launches for each stage."""
        grid = self._setting.blocks(self._count, COMPONENTS * self._setting.nodes)
        return [
            [
                self._kernel.bind(
                    increments=to.increments,
                    elements=self._elements,
                    count=self._count,
                    rka=a,
                    **grid,
                )
            ]
            for a in LSERK4.a
        ]


def _elements_of(part: MeshPart, kinds: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each element of a part is of one of the kinds."""
    result = np.zeros(len(part.elements), bool)
    for group in part.ranges:
        if group.kind in kinds:
            result[group.first : group.first + group.count] = True
    return result
