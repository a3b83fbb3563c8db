"""Pairs of cells that are near enough to touch, found in bins; periodic images count."""

from __future__ import annotations

import itertools
import math

import numpy as np

from haloscope.solvers.blood.filling.lumen import Lumen


def neighbour_pairs(
    positions: np.ndarray, reaches: np.ndarray, lumen: Lumen
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells near enough to touch, each pair in both orders, periodic images included.

    `positions`: centres in the box, (n, 3); `reaches`: how far each cell reaches, (n,).
    """
    # Returns: numbers of the cells, (pairs,), and what is added to the second's centre, (pairs, 3);
    # ordered by the first.
    n, most = len(positions), 2.0 * float(reaches.max(initial=0.0))
    images, owners, moves = [positions], [np.arange(n)], [np.zeros((n, 3))]
    around = [
        range(-math.ceil(most / side), math.ceil(most / side) + 1) if closed else range(1)
        for side, closed in zip(lumen.sides, lumen.periodic, strict=True)
    ]
    for turns in itertools.product(*around):
        if any(turns):
            move = np.array(turns) * lumen.sides
            image = positions + move
            near = ((image > lumen.lower - most) & (image < lumen.upper + most)).all(axis=1)
            images.append(image[near])
            owners.append(np.flatnonzero(near))
            moves.append(np.broadcast_to(move, (len(owners[-1]), 3)))
    places, owner, move = np.concatenate(images), np.concatenate(owners), np.concatenate(moves)
    # Bins as wide as the longest contact: neighbours lie in 27 of them, in 9 runs along x.
    low = places.min(axis=0, initial=math.inf) - most
    bins = ((places - low) / most).astype(np.int64)
    nx, ny, _ = bins.max(axis=0, initial=0) + 2
    number = bins[:, 0] + nx * (bins[:, 1] + ny * bins[:, 2])
    order = np.argsort(number, kind="stable")
    number = number[order]
    firsts, seconds = [], []
    for dz, dy in itertools.product((-1, 0, 1), repeat=2):
        centre = bins[:n, 0] + nx * (bins[:n, 1] + dy + ny * (bins[:n, 2] + dz))
        begin = np.searchsorted(number, centre - 1, "left")
        length = np.searchsorted(number, centre + 1, "right") - begin
        first = np.repeat(np.arange(n), length)
        within = np.arange(len(first)) - np.repeat(np.cumsum(length) - length, length)
        firsts.append(first)
        seconds.append(order[np.repeat(begin, length) + within])
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    away = places[second] - positions[first]
    limit = reaches[first] + reaches[owner[second]]
    touching = ((away * away).sum(axis=1) < limit * limit) & (first != second)
    first, second = first[touching], second[touching]
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    return first, owner[second], np.ascontiguousarray(move[second])
