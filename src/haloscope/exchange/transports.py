"""Transports: MPI between cores, through pinned memory and between GPUs; NCCL; stores into a neighbour's memory."""

from __future__ import annotations

import ctypes
import os
import platform
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from haloscope.device.interface import Array, Device
from haloscope.errors import MachineError, install_command
from haloscope.exchange.engine import Slot, Transport, buffer
from haloscope.exchange.plan import Message, Plan, cut
from haloscope.exchange.ranks.world import MpiWorld, World


class Requests:
    """Persistent sends and receives of a plan over two buffers, and the copy to self."""

    def __init__(self, world: World, plan: Plan, outgoing: Array, incoming: Array) -> None:
        sends = list(slices(plan.sends, outgoing))
        receives = list(slices(plan.receives, incoming))
        own_out = [part for rank, part in sends if rank == world.rank]
        own_in = [part for rank, part in receives if rank == world.rank]
        self._own = list(zip(own_out, own_in, strict=True))
        self._receives: list[Any] = []
        self._sends: list[Any] = []
        if isinstance(world, MpiWorld):
            self._mpi = world._mpi
            communicator = world.communicator
            self._receives = [
                communicator.Recv_init(part, source=rank)
                for rank, part in receives
                if rank != world.rank
            ]
            self._sends = [
                communicator.Send_init(part, dest=rank)
                for rank, part in sends
                if rank != world.rank
            ]
            # MPI does not give persistent requests back by itself; this runs before MPI ends.
            weakref.finalize(self, _free, self._receives + self._sends)

    def start(self) -> None:
        """Post receives, then sends."""
        if self._receives:
            self._mpi.Prequest.Startall(self._receives)
        if self._sends:
            self._mpi.Prequest.Startall(self._sends)
        for out, into in self._own:
            into[...] = out

    def test(self) -> bool:
        """Let MPI go on with them, and tell whether all are done."""
        if self._receives or self._sends:
            return bool(self._mpi.Request.Testall(self._receives + self._sends))
        return True

    def finish(self) -> None:
        """Wait for all of them."""
        if self._receives or self._sends:
            self._mpi.Request.Waitall(self._receives + self._sends)


def _free(requests: list[Any]) -> None:
    for request in requests:
        request.Free()


def slices(messages: Sequence[Message], array: Array) -> Iterator[tuple[int, Array]]:
    """The other rank of each message, and where it lies in an array that holds all of them."""
    start = 0
    for message in messages:
        yield message.rank, array[start : start + message.size]
        start += message.size


class HostTransport(Transport):
    """MPI between processor cores."""

    name = "host"

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._requests = Requests(world, plan, packed, arriving)

    def start(self) -> None:
        """Send what is packed."""
        self._requests.start()

    def progress(self) -> None:
        """Give MPI the processor for a moment."""
        self._requests.test()

    def finish(self) -> None:
        """Wait until all has come in and gone out."""
        self._requests.finish()


class StagedTransport(Transport):
    """Copy to pinned memory, MPI, copy back; the copies and the packing share one stream.

    The copy out is queued by `start`, so that kernels launched between `start` and `finish` run
    on the device while `finish` waits for the copy and for the messages.
    """

    name = "staged"

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        self._device, self._stream = device, stream
        self._packed, self.outgoing = buffer(device, plan.sends, dtype)
        self._arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._host_packed = device.staging(len(self._packed), dtype)
        self._host_arriving = device.staging(len(self._arriving), dtype)
        self._requests = Requests(world, plan, self._host_packed, self._host_arriving)
        self._copied: Any = None

    def start(self) -> None:
        """Queue the copy to pinned memory."""
        self._copied = self._device.copy_out(self._packed, self._host_packed, self._stream)

    def finish(self) -> None:
        """Send, wait for the messages, queue the copy to the device."""
        self._copied()
        self._requests.start()
        self._requests.finish()
        self._device.copy_in(self._arriving, self._host_arriving, self._stream)


_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA


def gpu_aware(world: World) -> str:
    """Why this MPI does not accept GPU memory; an empty text where it does.

    Open MPI and MPICH are asked through their own extensions of MPI, others tell by the
    environment variables with which their users switch it on.
    """
    library = _loaded_library()
    if library is not None and hasattr(library, "MPIX_Query_cuda_support"):
        if library.MPIX_Query_cuda_support():
            return ""
    elif library is not None and hasattr(library, "MPIX_GPU_query_support"):
        answer = ctypes.c_int(0)
        if library.MPIX_GPU_query_support(_MPICH_CUDA, ctypes.byref(answer)) == 0 and answer.value:
            return ""
    for name in ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "MVP_USE_CUDA"):
        if os.environ.get(name) == "1":
            return ""
    return f"this MPI ({world.library}) does not accept GPU memory"


def _loaded_library() -> ctypes.CDLL | None:
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        path = line.rpartition(" ")[2]
        if Path(path).name.startswith(("libmpi.so", "libmpich.so", "libmpi_cray", "libmpi_gnu")):
            return ctypes.CDLL(path)
    return None


class MpiTransport(Transport):
    """Persistent MPI requests on GPU memory."""

    name = "mpi"

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        fault = gpu_aware(world)
        if fault:
            raise MachineError(
                fault, remedy="install an MPI built with CUDA, or use another transport"
            )
        self._device, self._stream = device, stream
        packed, self.outgoing = buffer(device, plan.sends, dtype)
        arriving, self.incoming = buffer(device, plan.receives, dtype)
        self._requests = Requests(world, plan, packed, arriving)
        self._packed: Any = None

    def start(self) -> None:
        """Note when the packing is done."""
        self._packed = self._device.note(self._stream)

    def finish(self) -> None:
        """Send and wait for the messages."""
        self._packed()
        self._requests.start()
        self._requests.finish()


_communicators: weakref.WeakKeyDictionary[World, Any] = weakref.WeakKeyDictionary()


def _communicator(world: World, device: Device) -> Any:
    """NCCL's communicator of all ranks, made once: that takes a second or more."""
    if world in _communicators:
        return _communicators[world]
    try:
        from cupy.cuda import nccl

        fault = "" if nccl.available else "this CuPy was built without NCCL"
    except ImportError as error:
        fault = f"NCCL cannot be loaded ({error})"
    places = world.gather_texts(f"missing: {fault}" if fault else device.identity)
    for rank, place in enumerate(places):
        if place.startswith("missing: "):
            raise MachineError(
                f"{place.removeprefix('missing: ')} on rank {rank}",
                remedy=f"run {install_command('cuda13')} (or with the extra cuda12), or use another transport",
            )
    if len(set(places)) < len(places):
        raise MachineError(
            "several ranks share a GPU, which NCCL does not allow",
            remedy="start one rank a GPU or use another transport",
        )
    # CuPy gives it as bytes, or, before version 14, as a tuple of signed numbers.
    identifier = nccl.get_unique_id()
    plain = isinstance(identifier, bytes)
    identity = np.frombuffer(identifier, np.int8) if plain else np.array(identifier, np.int8)
    shared = world.broadcast(identity)
    key = shared.tobytes() if plain else tuple(int(b) for b in shared)
    try:
        made = nccl.NcclCommunicator(world.size, key, world.rank)
    except nccl.NcclError as error:
        raise MachineError(f"NCCL cannot connect the ranks ({error})") from error
    _communicators[world] = made
    return made


class NcclTransport(Transport):
    """Messages as grouped sends and receives on the stream; no host is needed to go on."""

    name = "nccl"
    capturable = True

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        self._communicator = _communicator(world, device)
        from cupy.cuda import nccl

        self._nccl = nccl
        self._stream = (stream or device.stream).ptr
        # By size: values are moved, whatever they stand for.
        types = {2: nccl.NCCL_FLOAT16, 4: nccl.NCCL_FLOAT32, 8: nccl.NCCL_FLOAT64}
        self._type = types[np.dtype(dtype).itemsize]
        self._arrays = [buffer(device, m, dtype) for m in (plan.sends, plan.receives)]
        self.outgoing, self.incoming = (slots for _, slots in self._arrays)
        self._sends, self._receives = (
            [(slot.even, message.size, message.rank) for slot, message in zip(s, m, strict=True)]
            for s, m in ((self.outgoing, plan.sends), (self.incoming, plan.receives))
        )

    def start(self) -> None:
        """Queue all messages on the stream."""
        self._nccl.groupStart()
        for address, count, rank in self._sends:
            self._communicator.send(address, count, self._type, rank, self._stream)
        for address, count, rank in self._receives:
            self._communicator.recv(address, count, self._type, rank, self._stream)
        self._nccl.groupEnd()


_HANDLE = 64
_LINE = 128


class PeerTransport(Transport):
    """CUDA IPC: the pack kernel writes into the neighbour's receive buffer and raises its flags."""

    # Each rank has one region that the others map: flags, and twice the room for what comes in. The
    # kernels that pack and unpack do all the rest, see exchange.cpp. Two places for a message are
    # enough because messages go both ways between two ranks: what has come from a rank in one
    # exchange says that it has read what went to it in the one before.

    name = "peer"
    capturable = True

    def __init__(
        self, world: World, device: Device, plan: Plan, dtype: Any, stream: Any = None
    ) -> None:
        size = np.dtype(dtype).itemsize
        rooms, total = _rooms(plan.receives, size)
        self._region = device.shared_zeros((max(total, _LINE),), np.uint8)
        handle, fault = device.share(self._region)
        # To each rank: how to map this region, and where its message has its flags and places.
        offers = np.zeros((world.size, _HANDLE + 5 * 8), np.uint8)
        for message, room in zip(plan.receives, rooms, strict=True):
            row = np.array([len(handle), *room, message.size], np.int64)
            offers[message.rank, :_HANDLE] = np.frombuffer(handle.ljust(_HANDLE, b"\0"), np.uint8)
            offers[message.rank, _HANDLE:] = row.view(np.uint8)
        answers = world.alltoall(offers)
        hosts = world.gather_texts(platform.node())
        self.outgoing: list[Slot] = []
        if {m.rank for m in plan.sends} != {m.rank for m in plan.receives}:
            fault = "it needs messages in both directions between two ranks"
        for message in plan.sends:
            there = answers[message.rank]
            usable, flags, even, odd, _ = (int(n) for n in there[_HANDLE:].view(np.int64))
            if hosts[message.rank] != hosts[world.rank]:
                fault = fault or f"rank {message.rank} is on another host ({hosts[message.rank]})"
            if fault or not usable:
                continue
            if message.rank == world.rank:
                base = device.address(self._region)
            else:
                try:
                    base = device.map_region(there[:_HANDLE].tobytes())
                    # At the end of the process the driver does it.
                    weakref.finalize(self, device.unmap_region, base).atexit = False
                except MachineError as error:
                    fault = error.problem
                    continue
            self.outgoing.append(Slot(base + even, base + odd, base + flags))
        if fault:
            raise MachineError(fault)
        base = device.address(self._region)
        self.incoming = [Slot(base + even, base + odd, base + f) for f, even, odd in rooms]


def _rooms(messages: tuple[Message, ...], size: int) -> tuple[list[tuple[int, int, int]], int]:
    """Offsets of each message's flags and two places in a region, and the region's bytes."""
    rooms, at = [], 0
    for message in messages:
        flags = at
        even = flags + _lines(8 * len(cut(message)))
        odd = even + _lines(message.size * size)
        at = odd + _lines(message.size * size)
        rooms.append((flags, even, odd))
    return rooms, at


def _lines(count: int) -> int:
    """Bytes, rounded up to whole cache lines of a GPU."""
    return -(-count // _LINE) * _LINE
