"""How a block's ghosts are filled: by messages, or by the update of the neighbours itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from haloscope.case.tables import Machine
from haloscope.errors import MachineError
from haloscope.exchange.ranks.progress import ProgressThread
from haloscope.exchange.ranks.world import World
from haloscope.mesh.grid.blocks import Blocks
from haloscope.mesh.grid.direct import DirectHalo
from haloscope.mesh.grid.ladder import open_halo
from haloscope.solvers.cavity.block_nodes import GHOSTS
from haloscope.solvers.cavity.operands import Operands
from haloscope.solvers.cavity.updates import Updates

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
            self.exchange.prepare(*operands.states)
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
            self._log(f"{error}; ghosts travel as messages")
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
