"""The groups that the cells of a mesh file belong to: physical groups, references, sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int32]

# Names under which meshio hands on the tags of the formats it reads.
_TAGS = (
    *("gmsh:physical", "medit:ref", "cell_tags", "CellEntityIds", "nastran:ref"),
    *("avsucd:material", "su2:tag", "ugrid:ref", "region", "material"),
)
_FLAT = ("quad", "triangle", "polygon", "pixel", "VTK_LAGRANGE_QUAD", "VTK_LAGRANGE_TRI")
_BELOW_FLAT = ("vertex", "line", "VTK_LAGRANGE_CURVE", "empty")


def dimension(cell_type: str) -> int:
    """Topological dimension of a cell type by meshio's name; 0 also stands for lines."""
    if cell_type.startswith(_BELOW_FLAT):
        return 0
    return 2 if cell_type.startswith(_FLAT) else 3


class CellGroups:
    """Group of each cell of a file.

    Tags count first, with names from the file's table of them where it has one; otherwise sets.
    Of several sets that hold a cell the smallest counts: others may be "all".

    Parameters
    ----------
    file
        A mesh as meshio gives it.

    Attributes
    ----------
    names
        Names of the groups; a group without one goes by its number.
    numbers
        For each block of cells an index into `names` a cell, or -1.
    """

    def __init__(self, file: Any) -> None:
        self.names: list[str] = []
        self.numbers: list[Numbers] = [
            np.full(len(block.data), -1, np.int32) for block in file.cells
        ]
        tag = next((name for name in _TAGS if self._is_tag(file, name)), None)
        if tag is None:
            self._take_sets(file.cell_sets)
        else:
            self._take_tags(file, tag)

    def _is_tag(self, file: Any, name: str) -> bool:
        parts = file.cell_data.get(name, ())
        return len(parts) == len(self.numbers) and all(
            np.size(part) == len(numbers) and np.issubdtype(np.asarray(part).dtype, np.number)
            for part, numbers in zip(parts, self.numbers, strict=True)
        )

    def _number(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _take_tags(self, file: Any, tag: str) -> None:
        table = _tag_names(file, tag)
        parts = zip(self.numbers, file.cells, file.cell_data[tag], strict=True)
        for numbers, block, part in parts:
            tags = np.nan_to_num(np.asarray(part).ravel()).astype(np.int64)
            for value in np.unique(tags[tags != 0]):
                name = table.get((int(value), dimension(block.type)), str(value))
                numbers[tags == value] = self._number(name)

    def _take_sets(self, cell_sets: dict[str, Any]) -> None:
        sets = {
            name: [np.asarray([] if part is None else part, np.int64) for part in parts]
            for name, parts in cell_sets.items()
            if not name.startswith("gmsh:") and len(parts) == len(self.numbers)
        }
        for name in sorted(sets, key=lambda name: -sum(len(part) for part in sets[name])):
            for numbers, part in zip(self.numbers, sets[name], strict=True):
                numbers[part[(part >= 0) & (part < len(numbers))]] = self._number(name)

    def chosen(
        self, blocks: list[int], otherwise: str | None = None
    ) -> tuple[Numbers, tuple[str, ...]]:
        """Groups of the cells of some blocks, one after the other, numbered anew.

        Parameters
        ----------
        blocks
            Numbers of the blocks.
        otherwise
            Name for cells without a group; None leaves them at -1.
        """
        numbers = np.concatenate([np.empty(0, np.int32), *(self.numbers[b] for b in blocks)])
        names = list(self.names)
        if otherwise is not None and (numbers < 0).any():
            if otherwise not in names:
                names.append(otherwise)
            numbers[numbers < 0] = names.index(otherwise)
        used = np.unique(numbers[numbers >= 0])
        renumbered = np.full(len(names) + 1, -1, np.int32)
        renumbered[used] = np.arange(len(used))
        return renumbered[numbers], tuple(names[number] for number in used)


def _tag_names(file: Any, tag: str) -> dict[tuple[int, int], str]:
    """Names of tags by number and dimension."""
    names = {}
    if tag == "gmsh:physical":
        for name, entry in file.field_data.items():
            number = np.asarray(entry).ravel()
            if len(number) == 2 and np.issubdtype(number.dtype, np.integer):
                names[int(number[0]), int(number[1])] = str(name)
    elif tag == "cell_tags":
        for value, given in getattr(file, "cell_tags", {}).items():
            for size in (2, 3):
                names[int(value), size] = ", ".join(given)
    return names
