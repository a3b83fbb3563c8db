"""The update of boxes of nodes, bound to its arrays on cores and GPUs, and how ghosts are filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from haloscope.case.tables import Machine
from haloscope.device.interface import Kernel
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import ProgressThread, World
from haloscope.mesh.blocks import Blocks, Side, Triple
from haloscope.mesh.halo import PACKED_AXES, DirectHalo, open_halo
from haloscope.solvers.cavity import block_nodes
from haloscope.solvers.cavity.block_nodes import GHOSTS, PARTS, BlockNodes, Operands

_CACHE_BYTES = 1 << 20
# Parts of a state that the update of a part reads and writes.
_READ = {"core": ("core", "rim", "core walls", "rim walls"), "rim": PARTS, None: PARTS}
# An update that fills ghosts itself stores them beside its own values.
_WRITTEN = {"core": ("core", "core walls"), "rim": ("rim", "rim walls"), None: PARTS}
_CUT = ("base", "plane", "mine", "theirs", "columns")  # members of struct Cut
_SECTOR = 32  # bytes of a GPU's memory that are written as one


class Updates:
    """Binds the update of boxes."""

    def __init__(self, operands: Operands, packing: str) -> None:
        self._operands = operands
        rows = operands.nodes.layout.axes[0]
        self._packs_rows = rows in PACKED_AXES[packing]
        self._plain = operands.kernel("update")
        self._tiled: dict[block_nodes.Tile, Kernel] = {}
        nodes = operands.nodes
        for tile in block_nodes.tiles_for(operands.device, nodes.real, nodes.dimensions):
            constants = block_nodes.tile_constants(tile)
            self._tiled[tile] = operands.kernel("update_tiles", constants)

    def fits_tiles(self, start: Triple, stop: Triple) -> bool:
        """Whether a box is one for the tiled kernel of GPUs, which alone can fill others' ghosts."""
        nodes = self._operands.nodes
        fits = block_nodes.fit(nodes, start, nodes.box(start, stop)[0])
        return bool(self._tiled) and fits

    def calls(
        self,
        start: Triple,
        stop: Triple,
        *,
        part: str | None = None,
        direct: DirectHalo | None = None,
    ) -> tuple[Kernel, list[dict[str, Any]]]:
        """The kernel that updates a box, and its call from the first state to the second and back.

        `part`: ``core`` or ``rim`` where the rest is updated at the same time; None: it is not.
        """
        operands = self._operands
        device, nodes, states = operands.device, operands.nodes, operands.fields
        shape = nodes.box(start, stop)
        kernel, rows, chunk = self._plain, 1, 1
        options: dict[str, Any] = {}
        # Arguments of the tiled kernel alone, by turn.
        tiled: list[dict[str, Any]] = [{}, {}]
        if device.kind == "cpu":
            rows, chunk = core_tiles(nodes, shape, getattr(device, "threads", 1))
            options["extent"] = shape
        elif self.fits_tiles(start, stop):
            tile = block_nodes.choose(shape, nodes.real, device.multiprocessors)
            tile = tile if tile in self._tiled else block_nodes.TILES[nodes.real]
            kernel, threads = self._tiled[tile], tile.threads
            marches = block_nodes.plan_marches(shape, tile, device.multiprocessors)
            chunk, blocks = marches.chunk, min(marches.columns, device.multiprocessors)
            options["block"] = threads
            options["shared"] = block_nodes.shared_bytes(tile, nodes.dtype.itemsize)
            options["extent"] = (threads[0] * blocks, *threads[1:])
            counters = marches.lines(blocks)
            progress = [device.zeros((counters,), np.int64) for _ in range(2)]
            low, high = self._fills(start, stop, tile)
            for turn in range(2):
                tiled[turn] = {
                    "fill_low": low,
                    "fill_high": high,
                    "whole": marches.whole,
                    "progress": progress[turn],
                    "other": progress[1 - turn],
                    "counters": counters,
                    "cuts": self._cuts(start, stop, tile, marches, 1 - turn, direct),
                    "epochs": None if direct is None else direct.epoch,
                    "arrivals": None if direct is None else direct.arrivals,
                }
        else:
            chunk = block_nodes.plain_chunk(shape, device.multiprocessors)
            block = block_nodes.PLAIN_BLOCK
            options |= {"block": block, "extent": (*shape[:2], -(-shape[2] // chunk))}
        read, written = _READ[part], _WRITTEN[part]
        common = {
            "physics": operands.physics,
            "step": operands.step_size,
            "reference_p": operands.reference,
            "rows": rows,
            "chunk": chunk,
            **nodes.loop(start, stop),
            **options,
        }
        return kernel, [
            {"old": old[read], "fresh": fresh[written], **common, **tiled[turn]}
            for turn, (old, fresh) in enumerate((states, states[::-1]))
        ]

    def _cuts(
        self,
        start: Triple,
        stop: Triple,
        tile: block_nodes.Tile,
        marches: block_nodes.TileSchedule,
        turn: int,
        direct: DirectHalo | None,
    ) -> dict[str, dict[str, int]]:
        """Struct Cuts of update_tiles, for ghosts that it fills itself."""
        nodes = self._operands.nodes
        shape = nodes.box(start, stop)
        axes = nodes.layout.axes
        tiles_x, _ = tile.across(shape)
        high = max(0, shape[1] - GHOSTS) // tile.y * tiles_x
        # A side's two layers may lie in two tiles or marches.
        at_side = {
            "y_low": (Side(axes[1], -1), marches.of_tiles(0, tiles_x)),
            "y_high": (Side(axes[1], 1), marches.of_tiles(high, marches.tiles)),
            "z_low": (Side(axes[2], -1), marches.at_low_end(GHOSTS)),
            "z_high": (Side(axes[2], 1), marches.at_high_end(GHOSTS)),
        }
        if direct is None:
            return {name: dict.fromkeys(_CUT, 0) for name in at_side}
        cuts = {}
        for name, (side, columns) in at_side.items():
            base, plane, mine, theirs = direct.cut(side, turn)
            # The box begins at its first updated node, not at the block's first.
            strides = (1, nodes.distances[0], plane)
            offset = sum(start[a] * stride for a, stride in zip(axes, strides, strict=True))
            base += offset * nodes.dtype.itemsize if base else 0
            cuts[name] = dict(zip(_CUT, (base, plane, mine, theirs, columns), strict=True))
        return cuts

    def _fills(self, start: Triple, stop: Triple, tile: block_nodes.Tile) -> tuple[int, int]:
        """Values before and behind each row of a box that the update stores too, see cavity_gpu.hpp."""
        # They belong to walls or ghosts, whose values come later, or to nobody. In a box that ends
        # inside of the block they are other nodes, and ghosts that travel unpacked may come
        # earlier. It pays where rows end within a sector, in double precision: 10 %. Elsewhere it
        # costs 2 to 5.
        nodes = self._operands.nodes
        sector = _SECTOR // nodes.dtype.itemsize
        low, high = nodes.index(*start) % sector, -nodes.index(*stop) % sector
        rows = nodes.layout.axes[0]
        begin, end = start[rows], stop[rows]
        own = tuple(ends[rows] for ends in nodes.updated())
        free = self._packs_rows or all(side.axis != rows for side in nodes.block.neighbours)
        # Behind the last node there is a wall with its ghost, or two ghosts, then padding.
        room = nodes.layout.field_stride - GHOSTS - (end - own[0])
        last_tile = (end - begin - 1) % tile.x + 1
        if end < own[1] or not free or high > min(room, last_tile) or nodes.real == "float":
            return 0, 0
        if begin > own[0] or low > GHOSTS or high == 0:
            low = 0
        return low, high


def core_tiles(nodes: BlockNodes, shape: Triple, threads: int) -> tuple[int, int]:
    """Rows of a tile and planes of a chunk on cores: equal shares, planes that stay in the cache."""
    nx, ny, nz = shape
    layers = 5 + 3 * (nodes.field_count - 1)
    fitting = max(4, _CACHE_BYTES // (layers * (nx + 4) * nodes.dtype.itemsize))
    cuts = 1
    while ny * cuts < 8 * threads and nz // (2 * cuts) >= 4:
        cuts *= 2
    shares = max(1, threads // cuts)
    tiles = shares
    while -(-ny // tiles) > fitting and tiles < ny:
        tiles += shares
    return max(1, -(-ny // tiles)), max(1, -(-nz // cuts))


# Planes of a block beyond which messages between planes, hidden behind the interior, beat ghosts that
# the update stores itself: 220 against 224 us with 128 planes, 424 against 435 with 256 (two H200).
_PLANES_TO_HIDE_BEHIND = 128


class Ghosts:
    """The way of a block's ghosts; all ranks make one."""

    def __init__(
        self,
        machine: Machine,
        operands: Operands,
        blocks: Blocks,
        world: World,
        log: Callable[[str], None],
    ) -> None:
        self._operands, self._world, self._log = operands, world, log
        device, nodes = operands.device, operands.nodes
        self._packing = machine.packing
        axes = nodes.layout.axes
        parts = [blocks.parts[axis] for axis in axes]
        # Whether work and messages may overlap.
        self.overlap = _may_overlap(machine, parts, nodes.dimensions, device.kind)
        # Sends messages; None where no rank has a neighbour.
        self.exchange = open_halo(
            world,
            device,
            nodes.block,
            nodes.layout,
            [GHOSTS] + [1] * (nodes.field_count - 1),
            operands.states,
            machine,
            stream=device.side if self.overlap else None,
            log=log,
        )
        self.transport = "none"  # What summaries call the way
        if self.exchange is not None:
            self.transport = self.exchange.transport
        # Keeps messages going meanwhile; None: nothing, or tests between parts of the interior.
        self.progress = None
        if self.exchange and self.overlap and machine.progress == "thread":
            self.progress = ProgressThread(world, self.exchange.progress)
        # Where the update fills ghosts itself, without messages; see :meth:`open_direct`.
        self.direct: DirectHalo | None = None
        planes = blocks.nodes[axes[2]] // parts[2]
        self._hidden = _hides_messages(parts, planes, nodes.dimensions)

    def open_direct(self, updates: Updates) -> None:
        """Let the update of the whole block fill the neighbours' ghosts, where all ranks can."""
        if self.exchange is None or not self.overlap or self._packing != "auto" or self._hidden:
            return
        operands = self._operands
        # A pressure that each step subtracts goes from rank to rank through the host.
        rescaled = bool(operands.constants["RESCALE"])
        if self.exchange.transport != "peer" or rescaled:
            return
        if self._world.any(not updates.fits_tiles(*operands.nodes.updated())):
            return
        block, layout = operands.nodes.block, operands.nodes.layout
        try:
            self.direct = DirectHalo(self._world, operands.device, block, layout, operands.states)
        except MachineError as error:
            self._log(f"{error}; ghost layers are sent as messages")
            return
        self.transport += ", direct"


def _hides_messages(parts: Sequence[int], planes: int, dimensions: int) -> bool:
    """Whether only planes are shared, and so many that messages hide behind the interior.

    `parts` are blocks along rows, across them, and in planes.
    """
    return dimensions == 3 and max(parts[:2]) == 1 and planes >= _PLANES_TO_HIDE_BEHIND


def _may_overlap(machine: Machine, parts: Sequence[int], dimensions: int, device_kind: str) -> bool:
    """Whether work and exchange may overlap; `parts` as for :func:`_hides_messages`.

    On a GPU a block whose rows are cut is faster in one piece (5 to 20 %): a rim at their ends is
    thin, and ghosts beyond it are faster packed than stored one by one.
    """
    in_one_piece = device_kind != "cpu" and machine.packing == "auto"
    if parts[0] > 1 and dimensions == 3 and in_one_piece:
        return False
    return machine.overlap and max(parts) > 1
