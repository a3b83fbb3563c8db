"""Writes the folder maps/: pictures and tables of who sends what to whom, and host files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from haloscope.errors import InputError, MachineError
from haloscope.io.atomic import atomic_folder
from haloscope.scope import maps
from haloscope.scope.diagnosis import wording
from haloscope.scope.maps import Traffic
from haloscope.scope.maps.pictures import save_map, save_receivers
from haloscope.scope.maps.placement import Placement

NAME = "maps"
MOST_ROUTINES = 4  # with pictures of their own
MOST_LINES = 1_000_000  # of a table of pairs


def write_maps(
    folder: Path, traffic: Traffic, routines: list[Traffic], placement: Placement | None
) -> list[tuple[str, str, str]]:
    """Write all maps into ``folder/maps``, in place of those of an earlier analysis.

    The folder is made under another name and put in place when it is complete.
    """
    target = folder / NAME
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(f"{target} is no folder; move it away")
    try:
        with atomic_folder(target) as made:
            pictures = _fill(made, traffic, routines, placement)
    except OSError as error:
        raise MachineError(
            f"{target} cannot be written ({error.strerror or error}); free some space or copy the "
            "measurement to a folder that can be written"
        ) from error
    return [(title, kind, f"{NAME}/{name}") for title, kind, name in pictures]


def _fill(
    folder: Path, traffic: Traffic, routines: list[Traffic], placement: Placement | None
) -> list[tuple[str, str, str]]:
    pictures = _one(folder, "", traffic.title, traffic)
    (folder / "routines.csv").write_text(maps.routines_csv(routines), encoding="utf-8")
    for number, one in enumerate(routines[:MOST_ROUTINES] if len(routines) > 1 else [], 1):
        pictures += _one(folder, f"routine-{number}-", wording.path(one.path), one)
    if placement is not None:
        (folder / "placement-hosts.txt").write_text(placement.host_list, encoding="utf-8")
        (folder / "placement-rankfile.txt").write_text(placement.rankfile, encoding="utf-8")
    return pictures


def _one(folder: Path, prefix: str, title: str, traffic: Traffic) -> list[tuple[str, str, str]]:
    (folder / f"{prefix}pairs.csv").write_text(maps.links_csv(_largest(traffic)), encoding="utf-8")
    text = maps.receivers_csv(traffic)
    (folder / f"{prefix}receivers.csv").write_text(text, encoding="utf-8")
    if not len(traffic.links):
        return []
    save_map(folder / f"{prefix}map.png", traffic)
    save_receivers(folder / f"{prefix}receivers.png", traffic)
    return [
        (title, "map", f"{prefix}map.png"),
        (title, "receivers", f"{prefix}receivers.png"),
    ]


def _largest(traffic: Traffic) -> Traffic:
    """The pairs that cost most where there are more than a table should hold."""
    links = traffic.links
    if len(links) <= MOST_LINES:
        return traffic
    order = np.lexsort((links["messages"], links["bytes"], links["receive_seconds"]))
    kept = links[np.sort(order[-MOST_LINES:])]
    return Traffic(traffic.title, traffic.size, kept, traffic.path, traffic.nodes)
