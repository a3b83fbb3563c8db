"""Writes the result of an analysis as a Cube report (``.cubex``), for Cube's own browser and tools.

The file is a tar archive of ``anchor.xml``, which names metrics, call paths and locations, and for
each metric of two binary files: the rows that are there, and their values. Values are exclusive
along the call tree and inclusive along the tree of metrics, in Cube as here.
"""

from __future__ import annotations

import re
import struct
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError
from haloscope.io.atomic import atomic_path
from haloscope.scope.analysis.metrics import BY_NAME, METRICS, Metric
from haloscope.scope.analysis.result import Result
from haloscope.scope.export import check_call_tree
from haloscope.scope.trace.measurement import Communicator, Location, Region

_BLOCK = 512  # of a tar archive
_MOST_MEMBER = 1 << 33  # bytes that the size field of a tar header can say
_LARGEST_EXACT = float(1 << 53)  # whole numbers up to here are exact in double precision
_UNITS = {"s": "sec", "#": "occ", "B": "bytes"}
# Versions of the format: with streams of GPUs, and without.
_VERSION, _VERSION_WITH_GPUS = "4.4", "4.7"
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PARADIGMS = {"function": "compiler", "unwound": "sampling", "program": "measurement"}


def write_cubex(result: Result, path: Path, hosts: Mapping[int, str] | None = None) -> None:
    """Write a result as a Cube report, under a temporary name first."""
    check_call_tree(result)
    metrics = _with_parents(result)
    if not metrics:
        raise InputError(
            "the analysis holds no values for a Cube report",
            remedy="run haloscope analyze on the measurement again",
        )
    if 8 * len(result.nodes) * len(result.locations) >= _MOST_MEMBER:
        raise InputError(
            f"a Cube report would have {len(result.nodes)} call paths on "
            f"{len(result.locations)} locations",
            allowed=f"at most {_MOST_MEMBER // 8} values a metric",
            remedy="filter functions in the measurement (haloscope measure --score suggests a filter)",
        )
    groups = _groups(result, hosts or {})
    columns = np.array([column for _, ranks in groups for _, _, of in ranks for column in of])
    order = _preorder(result)
    with atomic_path(path) as part, part.open("wb") as file:
        anchor = "\n".join(_anchor(result, metrics, groups, columns))
        text = anchor.encode("utf-8") + b"\n"
        if len(text) % _BLOCK == 0:
            # Cube wants a further block after such a member, at which others end reading.
            text += b"\n"
        _add(file, "anchor.xml", [text])
        for metric in metrics:
            rows, values = _table(result.value(metric.name), metric, order, columns)
            number = METRICS.index(metric)
            index = b"CUBEX.INDEX" + struct.pack("<IHBI", 1, 0, 1, len(rows))
            _add(file, f"{number}.index", [index, rows.astype("<u4").tobytes()])
            _add(file, f"{number}.data", [b"CUBEX.DATA", values.tobytes()])
        file.write(bytes(2 * _BLOCK))


def _with_parents(result: Result) -> list[Metric]:
    """Metrics that have values, and those above them."""
    names: set[str] = set()
    for name, values in result.values.items():
        while name and name not in names and np.any(values):
            names.add(name)
            name = BY_NAME[name].parent
    return [metric for metric in METRICS if metric.name in names]


def _add(file: BinaryIO, name: str, pieces: Sequence[bytes]) -> None:
    about = tarfile.TarInfo(name)
    about.size = sum(len(piece) for piece in pieces)
    file.write(about.tobuf(tarfile.USTAR_FORMAT))
    file.writelines(pieces)
    file.write(bytes(-about.size % _BLOCK))


def _is_whole(values: NDArray[np.float64], metric: Metric) -> bool:
    """Whether a metric can be told in whole numbers."""
    if metric.unit == "s":
        return False
    return bool(np.all((values >= 0) & (values < _LARGEST_EXACT) & (values == np.floor(values))))


def _table(
    values: NDArray[np.float64],
    metric: Metric,
    order: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.generic]]:
    """Rows that are not zero, by their places in the call tree, and their values."""
    rows = np.flatnonzero(np.any(values[order] != 0, axis=1))
    if len(rows) == 0:
        rows = np.zeros(1, np.int64)
    table = values[order[rows]][:, columns]
    return rows, table.astype("<u8" if _is_whole(values, metric) else "<f8")


def _children(result: Result) -> list[list[int]]:
    """Nodes below each node. Whatever else has no parent is put below the root."""
    below: list[list[int]] = [[] for _ in result.nodes]
    for number, node in enumerate(result.nodes):
        if number:
            below[max(node.parent, 0)].append(number)
    return below


def _preorder(result: Result) -> NDArray[np.int64]:
    """Nodes in the order of a walk that visits a node before those below it."""
    below = _children(result)
    order: list[int] = []
    stack = [0]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(below[node]))
    return np.array(order, np.int64)


_Group = tuple[str, list[tuple[int, str, list[int]]]]


def _groups(result: Result, hosts: Mapping[int, str]) -> list[_Group]:
    """By host: (name, [(rank, process or accelerator, indices of its locations)])."""
    named: dict[str, dict[tuple[int, str], list[int]]] = {}
    for index, place in enumerate(result.locations):
        group = "accelerator" if place.kind == "stream" else "process"
        host = hosts.get(place.rank) or "host"
        named.setdefault(host, {}).setdefault((place.rank, group), []).append(index)
    return [
        (host, [(rank, group, of) for (rank, group), of in sorted(ranks.items(), key=_by_rank)])
        for host, ranks in named.items()
    ]


def _by_rank(entry: tuple[tuple[int, str], list[int]]) -> tuple[int, bool]:
    (rank, group), _ = entry
    return rank, group != "process"


def _text(text: str) -> str:
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("\ufffd", text))


def _anchor(
    result: Result, metrics: list[Metric], groups: list[_Group], columns: NDArray[np.int64]
) -> Iterator[str]:
    has_gpus = any(place.kind == "stream" for place in result.locations)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f'<cube version="{_VERSION_WITH_GPUS if has_gpus else _VERSION}">'
    yield '<attr key="Creator" value="Haloscope"/>'
    command = result.about.get("command")
    if isinstance(command, list):
        yield f'<attr key="Command" value={_attribute(" ".join(map(str, command)))}/>'
    if result.about.get("partial"):
        yield '<attr key="Partial" value="the measurement is incomplete"/>'
    yield "<doc><mirrors/></doc>"
    yield "<metrics>"
    yield from _metric_tree(result, metrics, "")
    yield "</metrics>"
    yield "<program>"
    for number, region in enumerate(result.regions):
        yield from _region(number, region)
    yield from _call_tree(result)
    yield "</program>"
    yield "<system>"
    yield from _system_tree(result.locations, groups)
    yield "</system>"
    place_of = {
        result.locations[int(index)].rank: identity
        for identity, index in reversed(list(enumerate(columns)))
        if result.locations[int(index)].kind != "stream"
    }
    yield "<topologies>"
    for number, comm in enumerate(result.comms):
        yield from _topology(number, comm, place_of)
    yield "</topologies>"
    yield "</cube>"


def _metric_tree(result: Result, metrics: list[Metric], parent: str) -> Iterator[str]:
    for metric in metrics:
        if metric.parent != parent:
            continue
        kind = "UINT64" if _is_whole(result.value(metric.name), metric) else "DOUBLE"
        meaning = f"{metric.meaning} {metric.remedy}".strip()
        yield f'<metric id="{METRICS.index(metric)}" type="EXCLUSIVE">'
        yield f"<disp_name>{_text(metric.title)}</disp_name>"
        yield f"<uniq_name>{metric.name}</uniq_name>"
        yield f"<dtype>{kind}</dtype>"
        yield f"<uom>{_UNITS[metric.unit]}</uom>"
        yield "<val></val><url></url>"
        yield f"<descr>{_text(meaning)}</descr>"
        yield from _metric_tree(result, metrics, metric.name)
        yield "</metric>"


def _region(number: int, region: Region) -> Iterator[str]:
    line = region.line if region.line > 0 else -1
    yield f'<region id="{number}" mod={_attribute(region.file)} begin="{line}" end="-1">'
    name = _text(region.name)
    yield f"<name>{name}</name><mangled_name>{name}</mangled_name>"
    paradigm = _PARADIGMS.get(region.paradigm, region.paradigm)
    yield f"<paradigm>{_text(paradigm)}</paradigm><role>{_text(region.role)}</role>"
    yield "<url></url><descr></descr></region>"


def _call_tree(result: Result) -> Iterator[str]:
    below = _children(result)
    # None stands for the end of a node.
    stack: list[int | None] = [0]
    while stack:
        number = stack.pop()
        if number is None:
            yield "</cnode>"
            continue
        node = result.nodes[number]
        yield f'<cnode id="{number}" calleeId="{node.region}">'
        if node.site:
            site = _attribute(node.site)
            yield f'<parameter partype="string" parkey="call site" parvalue={site}/>'
        stack.append(None)
        stack.extend(reversed(below[number]))


def _system_tree(locations: list[Location], groups: list[_Group]) -> Iterator[str]:
    identity, group_number = 0, 0
    yield '<systemtreenode Id="0"><name>machine</name><class>machine</class>'
    for number, (host, ranks) in enumerate(groups, 1):
        yield f'<systemtreenode Id="{number}"><name>{_text(host)}</name><class>node</class>'
        for rank, kind, indices in ranks:
            name = f"rank {rank}" if kind == "process" else f"GPUs of rank {rank}"
            yield f'<locationgroup Id="{group_number}"><name>{name}</name>'
            yield f"<rank>{rank}</rank><type>{kind}</type>"
            for index in indices:
                place = locations[index]
                of = "accelerator stream" if place.kind == "stream" else "thread"
                title = place.name or f"{of} {place.number}"
                yield f'<location Id="{identity}"><name>{_text(title)}</name>'
                yield f"<rank>{place.number}</rank><type>{of}</type></location>"
                identity += 1
            yield "</locationgroup>"
            group_number += 1
        yield "</systemtreenode>"
    yield "</systemtreenode>"


def _topology(number: int, comm: Communicator, place_of: dict[int, int]) -> Iterator[str]:
    """A Cartesian communicator; its ranks are counted with the last dimension fastest."""
    dims = comm.dims
    if not comm.has_grid:
        return
    name = comm.name or f"communicator {number}"
    yield f'<cart name={_attribute(name)} ndims="{len(dims)}">'
    for axis, size in enumerate(dims):
        periodic = "true" if axis < len(comm.periods) and comm.periods[axis] else "false"
        yield f'<dim size="{size}" periodic="{periodic}"/>'
    for rank, at in zip(comm.members, np.ndindex(*dims), strict=False):
        if rank in place_of:
            place = " ".join(map(str, at))
            yield f'<coord locId="{place_of[rank]}">{place}</coord>'
    yield "</cart>"
