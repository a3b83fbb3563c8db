"""What the kernels of a cavity work on, on one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from haloscope.device.interface import Array, ByValue, Device, Kernel
from haloscope.device.jit import Constants
from haloscope.solvers.cavity.block_nodes import BlockNodes
from haloscope.solvers.cavity.case import Flow
from haloscope.solvers.cavity.physics import PHYSICS, SOURCE, kernel_constants, physics_values


@dataclass(frozen=True)
class Operands:
    """What kernels are compiled with, and what they are handed."""

    # Where values lie.
    device: Device
    nodes: BlockNodes
    constants: Constants  # Compile-time constants of cavity.cpp
    states: tuple[Array, Array]  # Two arrays of all fields; a step reads one and writes the other
    values: dict[str, float]  # Those of struct Physics, by name
    physics: ByValue  # The same as kernels take them
    step_size: Array  # The global time step in s, one value on the device
    # Pressure at the centre in Pa, which a step may subtract; one value on the device.
    reference: Array

    def kernel(self, name: str, others: Constants | None = None) -> Kernel:
        """A kernel of cavity.cpp, with other values of some constants where these are given."""
        return self.device.kernel(SOURCE, name, {**self.constants, **(others or {})})


def allocate(flow: Flow, device: Device, nodes: BlockNodes, *, shared: bool) -> Operands:
    """Operands of a case; other processes of this host can map shared states."""
    values, dtype = physics_values(flow), nodes.dtype
    cut = {side.axis for side in nodes.block.neighbours}
    return Operands(
        device=device,
        nodes=nodes,
        constants=kernel_constants(flow, device.kind, nodes.layout.axes, cut),
        states=(nodes.allocate(device, shared=shared), nodes.allocate(device, shared=shared)),
        values=values,
        physics=ByValue(np.array([values[name] for name in PHYSICS], dtype)),
        step_size=device.zeros((1,), dtype),
        reference=device.zeros((1,), dtype),
    )
