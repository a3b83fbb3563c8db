"""Values at the faces between elements for pictures: interpolated from both sides.

A discontinuous field has two values at a face, and its polynomials ring most there. Drawn as they
are, weak fields show the mesh as lines. In a picture the nodes of a face get the value that a cubic
through the next two nodes on either side has there, but no farther from the mean of the two values
than twice their difference: where the field is resolved nothing changes. Faces between different
regions, at which fields jump, stay as they are, and so does everything but pictures.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haloscope.exchange.ranks.world import World
from haloscope.mesh.hexes.hexes import FACES, face_nodes
from haloscope.mesh.hexes.mesh_parts import MeshPart

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Passes: nodes within faces, then those on edges, from nodes within faces, then corners.
_PASSES = 3
_LOWEST_CUBIC = 3  # order from which there are two nodes within an element between its faces
_REACH = 2.0  # largest distance of a new value from the mean of the two, over their difference
# Weight of a face without a jump where faces meet, over its values, and where these are 0.
_LITTLE, _TINY = 1e-9, 1e-200
_FACES_AT_ONCE = 1 << 12


class SharedFaces:
    """Faces between elements of one region that are both looked at; all ranks make one.

    `rows`: own elements that are looked at; `places`: their nodes (rows, N + 1, N + 1, N + 1, 3).
    """

    def __init__(self, world: World, part: MeshPart, rows: Integers, places: Floats) -> None:
        self._world = world
        order = places.shape[1] - 1
        self._count, self._nodes = len(rows), (order + 1) ** 3
        self._received = 0  # faces that other ranks have lent
        self._on_face = face_nodes(order)
        steps = (0, 1, 2) if order >= _LOWEST_CUBIC else (0,)
        self._layers = self._layer_nodes(order, steps)
        behind = part.behind[rows]
        own = part.elements[rows][:, None] * FACES + np.arange(FACES)
        flat = places.reshape(self._count, self._nodes, 3)
        # Faces that other ranks may ask for.
        self._lent = np.flatnonzero(part.partners[rows].ravel() >= 0)
        lent_numbers = self._gather(own.ravel()[self._lent])
        regions = part.mesh.regions[rows].astype(np.int64)
        elements, faces = np.divmod(self._lent, FACES)
        lent_regions = self._gather(regions[elements])
        lent_places = self._gather(self._of_faces(flat, elements, faces, self._on_face))
        lent_distances = self._gather(self._distances(flat, elements, faces))
        numbers = np.concatenate([own.ravel(), lent_numbers])
        sorting = np.argsort(numbers, kind="stable")
        at = np.minimum(
            np.searchsorted(numbers, behind.ravel(), sorter=sorting), max(0, len(numbers) - 1)
        )
        partner = sorting[at] if len(numbers) else at
        all_regions = np.concatenate([np.repeat(regions, FACES), lent_regions])
        known = numbers[partner] == behind.ravel() if len(numbers) else np.zeros(0, bool)
        same = (
            known & (all_regions[partner] == np.repeat(regions, FACES)) if len(numbers) else known
        )
        self._shared = np.flatnonzero(same)
        self._partner = partner[self._shared]
        self._match(flat, lent_places, lent_distances)

    def _layer_nodes(self, order: int, steps: tuple[int, ...]) -> Integers:
        """Nodes of each face and of the layers behind it, (6, layers, (N + 1)^2)."""
        layers = np.empty((FACES, len(steps), (order + 1) ** 2), np.int64)
        for face in range(FACES):
            axis, side = divmod(face, 2)
            stride = (order + 1) ** axis * (1 - 2 * side)
            for number, step in enumerate(steps):
                layers[face, number] = self._on_face[face] + step * stride
        return layers

    @staticmethod
    def _of_faces(
        values: NDArray[np.float64], elements: Integers, faces: Integers, chosen: Integers
    ) -> Floats:
        """Values (rows, nodes, ...) at the chosen nodes of faces."""
        index = chosen[faces]
        return values[elements.reshape(-1, *[1] * (index.ndim - 1)), index]

    def _distances(self, flat: Floats, elements: Integers, faces: Integers) -> Floats:
        """From nodes of faces to those of the layers behind them, (faces, layers - 1, nodes)."""
        layers = self._of_faces(flat, elements, faces, self._layers)
        return np.asarray(np.linalg.norm(layers[:, 1:] - layers[:, :1], axis=-1))

    def _gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Rows of all other ranks; all ranks call this."""
        world = self._world
        sent = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
        received = world.exchange(
            [sent[:0] if r == world.rank else sent for r in range(world.size)]
        )
        whole = np.frombuffer(b"".join(part.tobytes() for part in received), rows.dtype)
        width = math.prod(rows.shape[1:])
        self._received = len(whole) // width if width else self._received
        return whole.reshape(self._received, *rows.shape[1:])

    def _match(self, flat: Floats, lent_places: Floats, lent_distances: Floats) -> None:
        """How the partners' nodes run, and the weights of all values."""
        elements, faces = np.divmod(self._shared, FACES)
        nodes, layers = self._layers.shape[2], self._layers.shape[1]
        self._turn = np.empty((len(elements), nodes), np.int64)
        self._weights = np.empty((len(elements), 2 * (layers - 1), nodes))
        for begin in range(0, len(elements), _FACES_AT_ONCE):
            span = slice(begin, begin + _FACES_AT_ONCE)
            here = self._of_faces(flat, elements[span], faces[span], self._on_face)
            partner = self._partner[span]
            own = np.minimum(partner, FACES * self._count - 1)
            beyond = self._of_faces(flat, *np.divmod(own, FACES), self._on_face)
            far = self._distances(flat, *np.divmod(own, FACES))
            lent = partner >= FACES * self._count
            beyond[lent] = lent_places[partner[lent] - FACES * self._count]
            far[lent] = lent_distances[partner[lent] - FACES * self._count]
            # Behind a periodic side the partner lies elsewhere.
            here = here - here.mean(axis=1, keepdims=True)
            beyond = beyond - beyond.mean(axis=1, keepdims=True)
            apart = ((here[:, :, None] - beyond[:, None]) ** 2).sum(axis=-1)
            turn = apart.argmin(axis=2)
            self._turn[span] = turn
            near = self._distances(flat, elements[span], faces[span])
            far = np.take_along_axis(far, turn[:, None], axis=2)
            self._weights[span] = _weights(np.concatenate([-near, far], axis=1))

    def smooth(self, values: NDArray[np.floating]) -> Floats:
        """Values (rows, components, N + 1, N + 1, N + 1) with new ones at shared faces."""
        result = np.array(values, np.float64).reshape(self._count, values.shape[1], self._nodes)
        for component in range(result.shape[1]):
            one, other = self._sides(result[:, component])
            middle, jump = (one[:, 0] + other[:, 0]) / 2, np.abs(one[:, 0] - other[:, 0])
            reach = _REACH * jump
            # Where faces meet the one with the jump counts.
            weight = jump + _LITTLE * (np.abs(one[:, 0]) + np.abs(other[:, 0])) + _TINY
            for _ in range(_PASSES):
                sides = np.concatenate([one[:, 1:], other[:, 1:]], axis=1)
                at_face = middle
                if sides.shape[1]:
                    cubic = (self._weights * sides).sum(axis=1)
                    at_face = np.clip(cubic, middle - reach, middle + reach)
                result[:, component] = self._placed(result[:, component], at_face, weight)
                one, other = self._sides(result[:, component])
        return result.reshape(values.shape)

    def _sides(self, values: Floats) -> tuple[Floats, Floats]:
        """Values of the layers on either side of shared faces, each (faces, layers, nodes)."""
        elements, faces = np.divmod(self._shared, FACES)
        lent = self._gather(self._of_faces(values, *np.divmod(self._lent, FACES), self._layers))
        own = np.minimum(self._partner, FACES * self._count - 1)
        beyond = self._of_faces(values, *np.divmod(own, FACES), self._layers)
        foreign = self._partner >= FACES * self._count
        beyond[foreign] = lent[self._partner[foreign] - FACES * self._count]
        beyond = np.take_along_axis(beyond, self._turn[:, None], axis=2)
        return self._of_faces(values, elements, faces, self._layers), beyond

    def _placed(self, values: Floats, at_face: Floats, weight: Floats) -> Floats:
        """Values with those at shared faces put in; their weighted mean where faces meet."""
        elements, faces = np.divmod(self._shared, FACES)
        total, weights = np.zeros_like(values), np.zeros(values.shape)
        for face in range(FACES):
            chosen = np.flatnonzero(faces == face)
            index = elements[chosen][:, None], self._on_face[face]
            total[index] += weight[chosen] * at_face[chosen]
            weights[index] += weight[chosen]
        return np.where(weights > 0, total / np.maximum(weights, _TINY), values)


def _weights(positions: Floats) -> Floats:
    """Weights at 0 of the polynomial through values at positions (faces, values, nodes)."""
    count = positions.shape[1]
    weights = np.ones(positions.shape)
    for one in range(count):
        for other in range(count):
            if one != other:
                apart = positions[:, one] - positions[:, other]
                weights[:, one] *= -positions[:, other] / apart
    return weights
