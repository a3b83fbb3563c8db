"""Steps the flow in a pump, or past a cylinder, on the ranks that it is started with.

bench/xns.py starts it. Rank 0 prints one JSON object on a line of its own: seconds of the steps, time
by component, iterations, and a digest of the state, which is the same for all kinds of messages.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from haloscope.device.cpu import CpuDevice
from haloscope.exchange.ranks.world import MpiWorld, World
from haloscope.mesh.tets.node_parts import node_part_on_ranks
from haloscope.mesh.tets.tet_generators import cylinder_channel
from haloscope.mesh.tets.tets import TetMesh
from haloscope.numerics.krylov.block_rows import BlockRows, pattern_of
from haloscope.numerics.krylov.smoothers import BlockIlu
from haloscope.numerics.shared_nodes import SharedNodes, transport_of
from haloscope.regions import Region
from haloscope.solvers.flow.conditions import BoundaryValues, OutsidePressure, Velocity
from haloscope.solvers.flow.equations.equations import FlowEquations, Medium
from haloscope.solvers.flow.equations.newton import Newton, NewtonSettings
from haloscope.solvers.flow.equations.time_steps import BackwardDifferences
from haloscope.solvers.flow.meshes import PUMP_BOUNDARIES, Pump, pump_mesh
from haloscope.solvers.flow.steps import PhaseTimes

# The channel of DFG 3D-2Z: height, largest inflow, density, viscosity, time step, in SI units.
_HEIGHT, _LARGEST_INFLOW, _DENSITY, _VISCOSITY, _STEP_OF_CHANNEL = 0.41, 2.25, 1.0, 1e-3, 5e-3
# The pump: turns a second, inflow of 4 L/min, blood, and a step in which it turns by 6 degrees.
_TURNS, _FLOW_RATE, _BLOOD, _THICK, _STEP_OF_PUMP = 10000 / 60, 4e-3 / 60, 1050.0, 3.5e-3, 1e-4
_NAP = 0.01
_STEP = Region("time step")


class PatientWorld(MpiWorld):
    """Sleeps where ranks wait while they are set up: they may be many more than cores."""

    def gather_texts(self, text: str) -> list[str]:
        """The texts of all ranks, on every rank."""
        there = self.communicator.Ibarrier()
        while not there.Test():
            time.sleep(_NAP)
        return super().gather_texts(text)

    def receive(self, shape: tuple[int, ...], dtype: Any, source: int) -> np.ndarray:
        """Receive an array of known shape from another rank."""
        while not self.communicator.Iprobe(source=source):
            time.sleep(_NAP)
        return super().receive(shape, dtype, source)


@dataclass(frozen=True)
class Flow:
    """A mesh and what flows in it."""

    mesh: Callable[[], TetMesh]
    medium: Medium
    rotations: Mapping[str, tuple[float, float, float]]  # of zones, in rad/s
    conditions: Mapping[str, Velocity | OutsidePressure]
    time_step: float


def channel() -> Flow:
    """Water comes into the channel with the cylinder at once."""

    def inflow(places: np.ndarray, seconds: float) -> np.ndarray:
        y, z = places[:, 1], places[:, 2]
        velocities = np.zeros_like(places)
        velocities[:, 0] = 16 * _LARGEST_INFLOW * y * z * (_HEIGHT - y) * (_HEIGHT - z)
        return velocities / _HEIGHT**4

    walls = {"walls": Velocity(), "cylinder": Velocity()}
    return Flow(
        lambda: cylinder_channel(14, layers=15),
        Medium(_DENSITY, _DENSITY * _VISCOSITY),
        {},
        {"inlet": Velocity(inflow), "outlet": OutsidePressure(), **walls},
        _STEP_OF_CHANNEL,
    )


def pump() -> Flow:
    """The pump begins to turn at full speed, its rotor's zone seen from the rotor."""
    spec = Pump(mesh_size_mm=1.35, gap_layers=1)
    speed = 2 * np.pi * _TURNS

    def turning(places: np.ndarray, seconds: float) -> np.ndarray:
        return speed * np.stack([-places[:, 1], places[:, 0], 0 * places[:, 0]], axis=1)

    def inflow(places: np.ndarray, seconds: float) -> np.ndarray:
        velocities = np.zeros_like(places)
        velocities[:, 2] = _FLOW_RATE / (np.pi * (1e-3 * spec.housing_radius_mm) ** 2)
        return velocities

    conditions: dict[str, Velocity | OutsidePressure] = {
        name: Velocity() for name in PUMP_BOUNDARIES
    }
    conditions |= {name: Velocity(turning) for name in ("rotor_hub", "blades")}
    conditions |= {"inlet": Velocity(inflow), "outlet": OutsidePressure()}
    return Flow(
        lambda: pump_mesh(spec),
        Medium(_BLOOD, _THICK),
        {"rotor": (0.0, 0.0, speed)},
        conditions,
        _STEP_OF_PUMP,
    )


FLOWS = {"pump": pump, "channel": channel}


def by_component(world: World, mine: Mapping[str, float], steps: int) -> dict[str, float]:
    """Seconds of a step by component, each with all that is inside it; the mean of all ranks."""
    return {
        name: float(world.sum(np.array([seconds]))[0]) / (world.size * steps)
        for name, seconds in mine.items()
    }


def main() -> None:
    """Take the steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", default="neighbours")
    parser.add_argument("--mesh", default="pump", choices=FLOWS)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--most-iterations", type=int, default=300, help="of GMRES")
    parser.add_argument("--timed", action="store_true", help="after a step that is not counted")
    options = parser.parse_args()
    world, device = PatientWorld(), CpuDevice(threads=1)
    flow = FLOWS[options.mesh]()
    part, _ = node_part_on_ranks(world, flow.mesh, "graph")
    shared = SharedNodes(world, device, part.node_numbers, transport_of(options.messages))
    rows = BlockRows(device, pattern_of(device, part.tets, len(part.nodes)), 4)
    media = [
        replace(flow.medium, rotation=flow.rotations.get(name, (0.0, 0.0, 0.0)))
        for name in part.zone_names
    ]
    equations = FlowEquations(rows, part.nodes, media, part.zones)
    boundary_values = BoundaryValues(part, shared, flow.conditions)
    settings = NewtonSettings(iterations=4, linear_iterations=options.most_iterations)
    newton = Newton(equations, shared, BlockIlu(rows, shared), settings)
    steps = BackwardDifferences(newton, rows.vector(), flow.time_step)
    first = 1
    if options.timed:
        steps.step(boundary_values.numbers, boundary_values.values(flow.time_step))
        first = 2
    histories, seconds, phases = [], [], PhaseTimes()
    for number in range(first, first + options.steps):
        values = boundary_values.values(number * flow.time_step)
        world.barrier()
        begin = time.perf_counter()
        with _STEP, phases:
            histories.append(steps.step(boundary_values.numbers, values))
        seconds.append(world.largest(time.perf_counter() - begin))
    components = by_component(world, phases.seconds, options.steps)
    whole = np.zeros((part.whole_nodes, 4))
    whole[part.node_numbers[shared.owned]] = steps.state.reshape(-1, 4)[shared.owned]
    state = world.sum(whole.ravel())
    if world.is_root:
        report = {
            "seconds": seconds,
            "components": components,
            "iterations": [[one.iterations for one in history.linear] for history in histories],
            "residuals": [history.residuals for history in histories],
            "elements": part.whole_tets,
            "nodes": part.whole_nodes,
            "digest": f"{zlib.crc32(state.tobytes()):08x}",
            "load": os.getloadavg()[0],
        }
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
