"""Checks the sizes in HDF5 and legacy VTK files before memory is allocated."""

from __future__ import annotations

import mmap
import re
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from haloscope.errors import InputError
from haloscope.mesh.files.vtk_xml import SMALL, largest_unpacked, parsed_xml, unpacked_size

_LONGEST_LABEL = 60
# HDF5's numbers of filters that are read: deflate, shuffle, fletcher32.
_DEFLATE, _SHUFFLE, _FLETCHER = 1, 2, 3


def check_hdf5(path: Path, owner: Path | None = None) -> None:
    """Refuse an HDF5 file that is damaged, or whose data would unfold to far more than its size."""
    name = f"mesh file {path if owner is None else owner}"
    if owner is not None:
        name += f": heavy data file {path}"
        if not path.is_file():
            raise InputError(
                "it does not exist", location=name, remedy="put it beside the mesh file"
            )
    try:
        with h5py.File(path, "r") as file:
            items: list[Any] = [file]
            file.visititems(lambda _, item: items.append(item))
            for group in items:
                if isinstance(group, h5py.Group):
                    _refuse_other_files(group, name)
            datasets = [item for item in items if isinstance(item, h5py.Dataset)]
            _check_datasets(datasets, name, path.stat().st_size)
    except (OSError, RuntimeError, KeyError, ValueError, zlib.error):
        raise InputError(
            "it is cut off or damaged, or no HDF5 file", location=name, remedy="save the mesh anew"
        ) from None


def _refuse_other_files(group: Any, name: str) -> None:
    for key in group:
        if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
            raise InputError(
                f"{group.name.rstrip('/')}/{key} lies in another file, which is not read",
                location=name,
                remedy="save it in this one",
            )


def _check_datasets(datasets: list[Any], name: str, size: int) -> None:
    whole = 0
    for dataset in datasets:
        location = f"{name}, data set {dataset.name}"
        if dataset.shape is None:
            continue
        if dataset.is_virtual or dataset.external:
            raise InputError(
                "it lies in another file, which is not read",
                location=location,
                remedy="save it in this one",
            )
        stated = (
            int(np.prod([int(n) for n in dataset.shape], dtype=object)) * dataset.dtype.itemsize
        )
        stored = dataset.id.get_storage_size()
        whole += stated
        if whole > largest_unpacked(size) or stated > max(SMALL, largest_unpacked(stored)):
            raise InputError(
                f"it states {stated} bytes, far more than its {stored} stored bytes unpack to",
                location=location,
                remedy="save the mesh anew; this file is damaged",
            )
        if dataset.chunks is not None:
            _check_chunks(dataset, location)


def _check_chunks(dataset: Any, location: str) -> None:
    """Refuse chunks that unfold to more than a chunk; the library would make room for all of it."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(n)[0] for n in range(properties.get_nfilters())]
    if unknown := set(filters) - {_DEFLATE, _SHUFFLE, _FLETCHER}:
        raise InputError(
            f"it is packed by HDF5's filter {min(unknown)}, which is not read",
            location=location,
            remedy="save it with gzip or without packing",
        )
    if _DEFLATE not in filters:
        return
    # Fletcher32 adds four bytes to a chunk that is packed after it.
    most = int(np.prod([int(n) for n in dataset.chunks], dtype=object)) * dataset.dtype.itemsize + 4
    for number in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(number)
        _, packed = dataset.id.read_direct_chunk(info.chunk_offset)
        if info.filter_mask == 0 and unpacked_size(bytes(packed), most) > most:
            raise InputError(
                f"a chunk unpacks to more than the {most} bytes of a chunk",
                location=location,
                remedy="save the mesh anew; this file is damaged",
            )


def check_xdmf(path: Path) -> None:
    """Refuse an .xdmf file whose dimensions do not fit its data."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if text.find(b"<!ENTITY") >= 0:
            raise InputError(
                "it holds declarations of XML, which are not read", remedy="save it without them"
            )
        root = parsed_xml(text[:])
    checked: set[Path] = set()
    for item in root.iter("DataItem"):
        content = (item.text or "").strip()
        form = item.get("Format")
        label = item.get("Dimensions") if form == "XML" else content[:_LONGEST_LABEL]
        place = f"data item '{label}'"
        try:
            dimensions = [int(n) for n in (item.get("Dimensions") or "").split()]
            precision = int(item.get("Precision") or 4)
        except ValueError:
            raise InputError(
                "its dimensions are no numbers", location=place, remedy="save the mesh anew"
            ) from None
        values = int(np.prod(dimensions, dtype=object)) if dimensions else 0
        if form == "XML" and values > len(content):
            raise InputError(
                f"it states {values} values and holds {len(content)} characters",
                location=place,
                remedy="save the mesh anew; this file is damaged",
            )
        if form == "Binary":
            heavy = Path(content)
            if not heavy.is_file() or heavy.stat().st_size != values * precision:
                raise InputError(
                    f"its file does not exist or does not hold {values * precision} bytes",
                    location=place,
                    remedy="save the mesh anew, with heavy data as HDF5",
                )
        if form == "HDF":
            heavy = path.resolve().parent / content.split(":", 1)[0]
            if heavy not in checked:
                check_hdf5(heavy, path)
                checked.add(heavy)


# Bytes at the beginning of a legacy file that hold the kind of its grid.
_HEAD = 1024
_COUNTED = re.compile(
    rb"^[ \t]*(POINTS|CELLS|CELL_TYPES|OFFSETS|CONNECTIVITY|POINT_DATA|CELL_DATA|FIELD)"
    rb"[ \t]+([^\r\n]{0,120})",
    re.MULTILINE,
)
_NUMBER = re.compile(rb"-?\d+")


def check_vtk(path: Path) -> None:
    """Refuse a legacy VTK file with counts that it cannot hold."""
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        if b"UNSTRUCTURED_GRID" not in text[:_HEAD].upper():
            raise InputError(
                "it holds no unstructured grid",
                remedy="save the elements and the named faces as one",
            )
        for match in _COUNTED.finditer(text):
            for number in _NUMBER.findall(match[2]):
                if not 0 <= int(number) <= size:
                    raise InputError(
                        f"{match[1].decode()} states a count of {int(number)}, and a file of {size} bytes "
                        "cannot hold it",
                        remedy="save it anew; it is damaged",
                    )
