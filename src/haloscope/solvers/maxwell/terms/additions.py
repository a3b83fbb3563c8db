"""Media, layers, currents and waves of a case: the elements that they concern, and their terms in the right-hand sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.device.interface import Array, Device, Launch
from haloscope.device.targets import KernelFile
from haloscope.errors import InputError
from haloscope.exchange.plan import all_rows, refuse_together
from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import HexMesh, elements_text
from haloscope.mesh.hexes.mesh_parts import MeshPart, take
from haloscope.mesh.hexes.shared_meshes import Surroundings, surroundings
from haloscope.numerics.time_integration import LSERK4
from haloscope.solvers.maxwell.elements import Material
from haloscope.solvers.maxwell.terms import layers, media, sources
from haloscope.solvers.maxwell.terms.layers import LOSSY, Layer, PlacedLayer, layer_terms
from haloscope.solvers.maxwell.terms.media import Medium, media_terms
from haloscope.solvers.maxwell.terms.sources import (
    Current,
    OwnElements,
    PlacedSource,
    PlaneWave,
    driven_terms,
    scaling_term,
)
from haloscope.solvers.maxwell.terms.terms import (
    Bound,
    Floats,
    Setting,
    SourceTerm,
    StatefulTerm,
    kernel_file,
)
from haloscope.solvers.maxwell.terms.waveforms import span_of


def sources_end(currents: Sequence[Current], waves: Sequence[PlaneWave], across: float) -> float:
    """Time after which nothing drives the fields; 0 without sources."""
    ends = [span_of(current.waveform).end for current in currents]
    ends += [span_of(wave.waveform).end + across for wave in waves]
    return max([0.0, *ends])


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
    drives: tuple[PlacedSource, ...]  # Currents and waves
    # Whether each element conducts, has memory or reaches into the layer, (elements,).
    damped: NDArray[np.bool_]
    concerned: NDArray[np.bool_]  # Whether anything is added in each element, (elements,)

    @property
    def lossy(self) -> NDArray[np.bool_]:
        """Whether each element conducts or has memory, (elements,)."""
        return np.isin(self.regions, [n for n, m in self.media.items() if not m.plain])

    @property
    def fastest(self) -> float:
        """Bound for the magnitude of the eigenvalues that come on top of those of the curl."""
        media = max((m.fastest for m in self.media.values() if not m.plain), default=0.0)
        return media + (self.layer.fastest if self.layer is not None else 0.0)


def place(mesh: HexMesh, order: int, **added: Any) -> PlacedAdditions:
    """As :func:`place_on_ranks` on one rank that has the whole mesh."""
    part = take(mesh, np.arange(mesh.count))
    around = surroundings(World(), part, np.zeros((mesh.count, 6), np.int64))
    return place_on_ranks(World(), around, order, **added)


def place_on_ranks(
    world: World,
    around: Surroundings,
    order: int,
    *,
    media: Sequence[Material] = (Material(),),
    layer: Layer | PlacedLayer | None = None,
    currents: Sequence[Current] = (),
    waves: Sequence[PlaneWave] = (),
) -> PlacedAdditions:
    """Find to which elements anything is added; all ranks call this."""
    mesh = around.mesh
    regions = mesh.regions if len(media) > 1 else np.zeros(mesh.count, np.int32)
    constants = np.array([[medium.permittivity, medium.permeability] for medium in media])[regions]
    permittivity, permeability = constants.T
    if isinstance(layer, Layer):
        # It matches where media meet if it is made for the largest speed in all of them.
        speed = world.largest(float(1 / np.sqrt((permittivity * permeability).min())))
        layer = layer.placed(_ends(world, mesh), speed)
    drives, through = (
        [_place(world, around, order, f"{key}[{n}]", source) for n, source in enumerate(all_of)]
        for key, all_of in (("maxwell.sources", currents), ("maxwell.waves", waves))
    )
    full = {number: m for number, m in enumerate(media) if isinstance(m, Medium)}
    axes = np.zeros((mesh.count, 3), bool) if layer is None else layer.reached(mesh)
    damped = axes.any(axis=1)
    damped |= np.isin(regions, [number for number, m in full.items() if not m.plain])
    concerned = np.any([damped, *(drive.concerned for drive in (*drives, *through))], axis=0)
    fault: InputError | None = None
    for wave in through:
        bad = np.flatnonzero(wave.concerned & damped)
        if len(bad) and fault is None:
            fault = InputError(
                "the surface of the plane wave runs through an absorbing layer, or a medium that conducts "
                "or has memory",
                location=elements_text(around.numbers[bad], mesh.centres[bad]),
                remedy="move the surface",
            )
    refuse_together(world, fault)
    for wave in through:
        for values in constants[wave.concerned].T:
            most = world.largest(values.max(initial=-np.inf))
            if most + world.largest(-values.min(initial=np.inf)) > 0:
                raise InputError(
                    "the surface of the plane wave runs through several media",
                    remedy="place the surface in one medium",
                )
    return PlacedAdditions(
        full,
        regions,
        permittivity,
        permeability,
        layer,
        axes,
        (*drives, *through),
        damped,
        concerned,
    )


def _place(
    world: World, around: Surroundings, order: int, key: str, source: Current | PlaneWave
) -> PlacedSource:
    """A source in its elements; errors have its key in front."""
    try:
        return source.placed(world, around, order)
    except InputError as error:
        raise error.within(key) from None


def _ends(world: World, mesh: HexMesh) -> list[Floats]:
    """Lowest and highest coordinate of all ranks' elements along x, y, z: each pair once."""
    flat = mesh.coordinates.reshape(mesh.count, -1, 3)
    ends = np.stack([flat.min(axis=1), flat.max(axis=1)], axis=1)
    # Elements that reach as far along an axis are alike there: of grids few are left.
    alike = (all_rows(world, np.unique(ends[:, :, axis], axis=0)) for axis in range(3))
    return [np.unique(pairs, axis=0) for pairs in alike]


def kernel_files(
    order: int,
    real: np.dtype[Any],
    materials: Sequence[Material],
    layer: Layer | None,
    drives: Sequence[Current | PlaneWave],
) -> Iterator[KernelFile]:
    """All kernels that :class:`PointwiseAdditions` may need for what is added in a mesh."""
    lossy = [medium for medium in materials if isinstance(medium, Medium) and not medium.plain]
    if not (lossy or layer or drives):
        return
    yield kernel_file(sources.SOURCE, order, real, {})
    for medium in lossy:
        yield kernel_file(media.SOURCE, order, real, medium.constants)
    if layer is not None:
        yield kernel_file(layers.SOURCE, order, real, {})


class PointwiseAdditions:
    """Terms beyond a stage on this rank: media with memory, layers, currents, incident waves.

    Before each stage they set the increments of the elements that they concern to
    ``k = a k + dt * addition``; the stage then adds its part with a = 1.
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
        of_kinds = np.zeros(len(part.elements), bool)
        for group in part.ranges:
            of_kinds[group.first : group.first + group.count] = group.kind in self.kinds
        regions, lossy = placed.regions[part.elements], placed.lossy[part.elements]
        axes = placed.axes[part.elements]
        kept = (
            layer_terms(setting, placed.layer, axes, places, lossy)
            if placed.layer is not None
            else []
        )
        # What media in the layer answer to beside the fields, and its row for each element.
        beyond, beyond_at = None, np.full(len(part.elements), -1)
        for term in kept:
            if term.name == LOSSY:
                beyond = term.arguments["beyond"]
                beyond_at[term.elements] = np.arange(len(term.elements))
        kept = [*media_terms(setting, placed.media, regions, beyond, beyond_at), *kept]
        self._kept: list[StatefulTerm] = [term for term in kept if term.values]
        own = OwnElements(part, places, placed.permittivity, placed.permeability, upwind)
        entries = [entry for drive in placed.drives for entry in drive.entries(own)]
        # Media scale increments first, then layers; what is left is scaled here.
        left = np.flatnonzero(of_kinds & ~lossy & ~axes.any(axis=1))
        scaling = [scaling_term(setting, left)] if len(left) else []
        self._terms: list[SourceTerm] = [*kept, *scaling, *driven_terms(setting, entries)]
        self._clock = device.from_host(np.zeros(2))
        tick = setting.kernel(sources.SOURCE, "tick")
        self._tick = tick.bind(clock=self._clock, steps=1, extent=(1,), block=(1,))
        self._launches: list[list[tuple[str, Launch]]] = []
        self._dt = 0.0

    def bind(self, fields: Array, increments: Array, dt: float) -> None:
        """Take the arrays and a time step from now on."""
        if dt != self._dt:
            self.set_time(self.time)
            self._dt = dt
        to = Bound(fields, increments, self._clock, float(dt))
        bound = [[(term.name, launch) for launch in term.bind(to)] for term in self._terms]
        stages = zip(*bound, strict=True) if bound else ([] for _ in range(LSERK4.stages))
        self._launches = [*map(list, stages), [("Clock", self._tick)]]

    def before(self, stage: int) -> Sequence[tuple[str, Launch]]:
        """Launches before a stage, each with the name of its term; behind the last one time goes on."""
        return self._launches[stage]

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

    @property
    def widths(self) -> dict[str, int]:
        """Values at a node of an element's state, by the name of what has a state."""
        return {term.name: len(term.kept) * term.values for term in self._kept}

    def state(self, name: str) -> Floats:
        """The states of a name, (own elements, values, nodes); 0 in elements without."""
        shape = len(self._part.elements), self.widths.get(name, 0), self._setting.nodes
        result = np.zeros(shape)
        for term in self._kept:
            if term.name == name:
                result[term.elements] = term.states
        return result

    def restore(self, states: Mapping[str, Floats]) -> None:
        """Take over states, as :meth:`state` gives them, by their names."""
        for term in self._kept:
            term.states = states[term.name][term.elements]
