"""What drives the fields at single nodes: entries of currents and waves, and their launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from haloscope.device.interface import Launch
from haloscope.mesh.hexes.hexes import face_nodes
from haloscope.mesh.hexes.mesh_parts import MeshPart
from haloscope.numerics.elements.basis import gll_weights
from haloscope.numerics.elements.element_geometry import face_normals, jacobians
from haloscope.numerics.runge_kutta import LSERK4
from haloscope.solvers.maxwell.terms import COMPONENTS, Bound, Floats, Integers, Setting
from haloscope.solvers.maxwell.waveforms import NUMBERS, Table, Waveform

SOURCE = Path(__file__).with_name("driven.cpp")


@dataclass(frozen=True, eq=False)
class OwnElements:
    """Elements of this rank as sources see them."""

    part: MeshPart  # Them
    places: Floats  # Their nodes (elements, N + 1, N + 1, N + 1, 3)
    # Of all elements of the whole mesh.
    permittivity: Floats
    permeability: Floats
    upwind: bool = True  # Whether the flux is upwind

    @property
    def order(self) -> int:
        """Polynomial order N."""
        return int(self.places.shape[1]) - 1

    def local(self, element: int) -> int | None:
        """Number on this rank of an element of the whole mesh; None: it is not here."""
        rows = np.flatnonzero(self.part.elements == element)
        return int(rows[0]) if len(rows) else None

    def masses(self, elements: Integers) -> Floats:
        """Quadrature weight times Jacobian at the nodes of elements, (n, nodes)."""
        w = gll_weights(self.order)
        weights = w[:, None, None] * w[:, None] * w
        return np.asarray((weights * jacobians(self.places[elements])).reshape(len(elements), -1))

    def behind(self, faces: Integers) -> Integers:
        """Numbers in the whole mesh of what lies behind faces (n, 2) of own elements; -1: none."""
        element, face = faces.T
        near, far = self.part.mesh.neighbours[element, face], self.part.partners[element, face]
        here = np.where(near >= 0, self.part.elements[np.maximum(near, 0)], -1)
        return np.where(far >= 0, far // 6, here)


@dataclass(frozen=True, eq=False)
class Entries:
    """What goes with one waveform, at nodes."""

    # Of each entry: element of this rank, and node in it.
    elements: Integers
    nodes: Integers
    shape: Floats  # Rates of change of the six fields when the waveform is 1, (entries, 6)
    delays: Floats  # Of each entry
    waveform: Waveform  # How it goes with time


def across_faces(
    own: OwnElements,
    faces: Integers,
    electric: Floats,
    magnetic: Floats,
    delays: Floats,
    waveform: Waveform,
) -> Entries:
    """What a change of the trace behind faces adds to the right-hand sides of their own elements.

    `faces`: (n, 2): element of this rank, and face.
    """
    # The flux is linear in the jump, so that a change (e, h) of what lies behind adds lift / (Z- +
    # Z+) n x (Z+ h - n x e) to eps dE/dt and -lift / (Y- + Y+) n x (Y+ e + n x h) to mu dH/dt; the
    # second terms are those of upwind flux.
    element, face = faces.T
    order = own.order
    places = own.places[element]
    every = np.arange(len(faces))
    area = face_normals(places)[every, face]
    size = np.linalg.norm(area, axis=-1, keepdims=True)
    n = area / size
    on = face_nodes(order)[face]
    jacobian = np.take_along_axis(jacobians(places).reshape(len(faces), -1), on, axis=1)
    lift = size * (order * (order + 1) / 2) / jacobian[..., None]
    here = own.part.elements[element]
    behind = own.behind(faces)
    behind = np.where(behind >= 0, behind, here)

    def impedance(of: Integers) -> Floats:
        return np.asarray(np.sqrt(own.permeability[of] / own.permittivity[of])[:, None, None])

    z, z_behind = impedance(here), impedance(behind)
    eps, mu = (values[here][:, None, None] for values in (own.permittivity, own.permeability))
    alpha = float(own.upwind)
    e, h = electric, magnetic
    to_e = np.cross(n, z_behind * h - alpha * np.cross(n, e)) / (z + z_behind)
    to_h = np.cross(n, e / z_behind + alpha * np.cross(n, h)) / (1 / z + 1 / z_behind)
    shape = np.concatenate([lift * to_e / eps, -lift * to_h / mu], axis=-1)
    elements = np.broadcast_to(element[:, None], on.shape)
    return Entries(
        elements.ravel(), on.ravel(), shape.reshape(-1, COMPONENTS), delays.ravel(), waveform
    )


def _merged(all_of: Sequence[Entries], nodes: int) -> Iterator[tuple[Integers, Floats, Floats]]:
    """Entries of a waveform in sets without a node twice: places, shapes, delays."""
    elements, local, shape, delays = (
        np.concatenate([getattr(term, name) for term in all_of])
        for name in ("elements", "nodes", "shape", "delays")
    )
    nonzero = (shape != 0).any(axis=1)
    place = elements[nonzero] * (COMPONENTS * nodes) + local[nonzero]
    shape, delays = shape[nonzero], delays[nonzero]
    order = np.lexsort((delays, place))
    place, shape, delays = place[order], shape[order], delays[order]
    new = np.ones(len(place), bool)
    new[1:] = (place[1:] != place[:-1]) | (delays[1:] != delays[:-1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return
    shape = np.add.reduceat(shape, starts, axis=0)
    place, delays = place[starts], delays[starts]
    # The how-manieth of its place each is: two waves through a node go in two launches.
    first = np.ones(len(place), bool)
    first[1:] = place[1:] != place[:-1]
    begun = np.maximum.accumulate(np.where(first, np.arange(len(place)), 0))
    turn = np.arange(len(place)) - begun
    for number in range(int(turn.max()) + 1):
        at = turn == number
        yield place[at], shape[at], delays[at]


class DrivenTerm:
    """Entries with one waveform; no node twice.

    `shape`: (entries, 6); `delays`: (entries,).
    """

    def __init__(
        self,
        setting: Setting,
        places: Integers,
        shape: Floats,
        delays: Floats,
        waveform: Waveform,
    ) -> None:
        self._setting, self._count, self._kind = setting, len(places), waveform.kind
        self._places, self._shape = setting.put(places, np.int64), setting.put(shape.T)
        # A delay that all share goes into the waveform's first number, a time.
        alike = bool((delays == delays[0]).all())
        self._delays = None if alike else setting.put(delays, np.float64)
        numbers = np.array(waveform.numbers, np.float64)
        if alike:
            numbers[0] += delays[0]
        self._numbers = setting.put(numbers, np.float64)
        values = waveform.values if isinstance(waveform, Table) else np.zeros(NUMBERS)
        self._table = setting.put(np.asarray(values), np.float64)
        self._kernel = setting.kernel(SOURCE, "drive" if alike else "drive_delayed")

    def bind(self, to: Bound) -> list[list[Launch]]:
        """Launches for each stage."""
        listed = [self._places, self._shape]
        if self._delays is not None:
            listed.append(self._delays)
        time = (to.clock, self._numbers, self._table, self._kind, to.dt)
        return [
            [
                self._kernel.bind(
                    to.increments, *listed, self._count, *time, c, extent=(self._count,)
                )
            ]
            for c in LSERK4.c
        ]


def driven_terms(setting: Setting, entries: Sequence[Entries]) -> list[DrivenTerm]:
    """Terms for all entries: one for each waveform, as far as no node is met twice."""
    by_waveform: dict[Waveform, list[Entries]] = {}
    for entry in entries:
        by_waveform.setdefault(entry.waveform, []).append(entry)
    return [
        DrivenTerm(setting, *arrays, waveform)
        for waveform, all_of in by_waveform.items()
        for arrays in _merged(all_of, setting.nodes)
    ]
