"""Refuses files of results that do not fit together.

A result may come from anywhere. What would take more memory than the file has bytes for, or lead
to other files, is refused; so are names of another kind and numbers that lead nowhere.
"""

from __future__ import annotations

import re
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from haloscope.scope.trace.measurement import MOST_NUMBER, MOST_RANKS

_LARGEST = 1e30  # what is measured is less, and sums of it are finite
_MOST_PACKED = 1100  # bytes that gzip can make of one
_GROUPS = re.compile(r"/(values|sums|sums/[^/]+|subtrees|subtrees/values)?")


def check_file(file: h5py.File) -> None:
    """Refuse what is no plain file of tables of the size that it takes."""
    _check_group(file)
    for name in ("names", "pairs", "sizes", "waits"):
        if not isinstance(file[name], h5py.Dataset):
            raise ValueError(f"{name} is not a table")
    for name in {"sums", "subtrees"} & set(file) | {"values"}:
        if not isinstance(file[name], h5py.Group):
            raise ValueError(f"{name} is not a group of tables")


def _check_group(group: h5py.Group) -> None:
    if not _GROUPS.fullmatch(group.name):
        raise ValueError(f"{group.name} is not a table")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError("it links to other files")
        item = group[name]
        if isinstance(item, h5py.Group):
            _check_group(item)
            continue
        if not isinstance(item, h5py.Dataset) or _GROUPS.fullmatch(item.name):
            raise ValueError(f"{item.name} is not a group of tables")
        if item.external is not None or item.is_virtual:
            raise ValueError("it links to data in other files")
        stored = item.id.get_storage_size()
        if item.nbytes > stored * (_MOST_PACKED if item.chunks else 1):
            raise ValueError(f"{item.name} is longer than the file")


def check_names(names: Any) -> None:
    """Refuse names of another kind, and numbers of regions, parents and ranks that lead nowhere."""
    about, size = names["about"], names["size"]
    if not isinstance(about, dict) or not _is_time(about.get("span", 0.0)):
        raise ValueError("the description of the run is invalid")
    if not _is(size, int) or not 0 < size <= MOST_RANKS:
        raise ValueError(f"{size!r:.40} is not a number of ranks")
    regions, nodes, places = names["regions"], names["nodes"], names["locations"]
    if not all(
        _are(region, name=str, paradigm=str, role=str, file=str, line=int) for region in regions
    ):
        raise ValueError("a region is invalid")
    for number, (parent, region, site) in enumerate(nodes):
        fits = _is(parent, int) and _is(region, int) and _is(site, str)
        if not (fits and -1 <= parent < number and 0 <= region < len(regions)):
            raise ValueError("a node of the call tree has no valid parent or region")
    for place in places:
        fits = _are(place, rank=int, number=int, kind=str, name=str, device=int)
        if not (fits and 0 <= place["rank"] < size and 0 <= place["number"] < MOST_NUMBER):
            raise ValueError("a location is invalid")
        if place["events"] is not None and not _is(place["events"], str):
            raise ValueError("the name of an event file is not text")
    if not nodes or not places:
        raise ValueError("it holds no call path or no location")
    for comm in names["comms"]:
        ranks = (comm["members"], comm["remote"], comm["dims"], comm["periods"])
        if not _are(comm, key=str, name=str) or not all(_are_numbers(of) for of in ranks):
            raise ValueError("a communicator is invalid")


def _is(value: Any, kind: type) -> bool:
    return type(value) is kind  # which a bool, for JSON's numbers, is not


def _are(fields: Any, **kinds: type) -> bool:
    return isinstance(fields, dict) and all(_is(fields[name], kind) for name, kind in kinds.items())


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(_is(value, int) for value in values)


def _is_time(value: Any) -> bool:
    return (_is(value, int) or _is(value, float)) and abs(value) < _LARGEST


def measured(values: Any) -> NDArray[np.float64]:
    """Values of a file as numbers; what cannot have been measured counts as zero."""
    numbers = np.asarray(values, np.float64)
    good = np.abs(numbers) < _LARGEST
    return numbers if good.all() else np.where(good, numbers, 0.0)


def fitting_pairs(pairs: NDArray[Any], nodes: int, ranks: int) -> NDArray[np.bool_]:
    """Which pairs name call paths and ranks that are there, with times that can be."""
    return np.asarray(
        _within(pairs["node"], nodes)
        & _within(pairs["sender"], ranks)
        & _within(pairs["receiver"], ranks)
        & (np.abs(pairs["seconds"]) < _LARGEST)
        & (np.abs(pairs["receive_seconds"]) < _LARGEST)
    )


def fitting_waits(
    waits: NDArray[Any], metrics: int, nodes: int, locations: int
) -> NDArray[np.bool_]:
    """Which waits name call paths and locations that are there, with times that can be."""
    return np.asarray(
        _within(waits["metric"], metrics)
        & _within(waits["node"], nodes)
        & _within(waits["location"], locations)
        & (waits["cause"] < locations)
        & (waits["cause_node"] < nodes)
        & (waits["delay_node"] < nodes)
        & (np.abs(waits["begin"]) < _LARGEST)
        & (np.abs(waits["end"]) < _LARGEST)
    )


def _within(numbers: NDArray[Any], limit: int) -> NDArray[np.bool_]:
    return np.asarray((numbers >= 0) & (numbers < limit))
