"""Claims about orthogonalisation by ranks on GPUs: sums meet on the devices, and have the bits of one rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from thread_gpus import ThreadGpu, on_ranks

from haloscope.device.cpu import CpuDevice
from haloscope.device.declarations import Constants
from haloscope.errors import MachineError
from haloscope.exchange.ranks.world import World
from haloscope.numerics.krylov import node_vectors
from haloscope.numerics.krylov.flexible_gmres import FlexibleGmres
from haloscope.numerics.krylov.node_vectors import NodeVectors

NODES, COUNT = 400, 6


class _Gpu(ThreadGpu):
    """Packs and unpacks as GPUs do; the vectors' own kernels are those of cores."""

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        if file.name in ("exchange.cpp", "rank_sums.cpp"):
            return super().kernel(file, name, constants)
        return CpuDevice.kernel(self, file, name, constants)


def _work(device: CpuDevice, nodes: np.ndarray, owned: np.ndarray, world: World | None) -> Any:
    """Columns of an orthogonalisation, the last vector by global numbers, and a solution's history."""
    vectors = np.random.default_rng(1).standard_normal((COUNT, NODES, 4))
    vectors[4] = vectors[3] + 1e-9 * vectors[4]  # the second turn has something to do
    space = NodeVectors(device, COUNT, 4, owned, world, "peer")
    for vector, values in zip(space.vectors, vectors[:, nodes], strict=True):
        vector[:] = values.ravel()
    numbers = [space.start()]
    for j in range(1, COUNT):
        numbers += space.extend(j)().tolist()
    gmres = FlexibleGmres(device, 4, owned, 8, world, "peer")
    scale = 1.0 + np.arange(4.0 * NODES).reshape(-1, 4)[nodes].ravel() % 7
    b, x = device.from_host(vectors[0, nodes].ravel()), device.zeros((4 * len(nodes),), "f8")

    class Scaling:
        capturable = True
        products = 0

        def apply(self, x: Any, y: Any) -> None:
            y[:] = x

        def __call__(self, x: Any, y: Any) -> None:
            self.products += 1
            y[:] = scale * x

    same = Scaling()
    # The second and the third time iterations are recorded and replayed.
    for _ in range(3):
        solved = gmres.solve(same, same, b, x, tolerance=1e-6, most_iterations=40)
    assert bool(gmres._graphs) == (device.kind != "cpu")
    # Where the last iteration was to be expected none is computed in vain; the residual takes one.
    same.products = 0
    near = gmres.solve(same, same, b, x, tolerance=3e-2, most_iterations=40)
    assert same.products == near.iterations + 1
    return numbers, np.array(space.vectors[-1]).reshape(-1, 4), solved, gmres.length(b)


@pytest.mark.parametrize(("ranks", "direct"), [(2, False), (3, True)])
def test_gpus_have_the_bits_of_one_rank(tmp_path, monkeypatch, ranks, direct):
    """Also where their kernels do not write into each other's memory by themselves."""

    def refuse(*unused: Any) -> None:
        raise MachineError("no")

    if not direct:
        monkeypatch.setattr(node_vectors, "DirectRows", refuse)
    wanted = _work(CpuDevice(threads=1), np.arange(NODES), np.ones(NODES, bool), None)
    bounds = [NODES * rank // ranks for rank in range(ranks + 1)]

    def nodes_of(rank: int) -> np.ndarray:
        return np.arange(max(0, bounds[rank] - 20), bounds[rank + 1])

    def on_rank(world: World) -> Any:
        nodes = nodes_of(world.rank)
        folder = tmp_path / str(world.rank)
        folder.mkdir()
        return _work(_Gpu(folder), nodes, nodes >= bounds[world.rank], world)

    for rank, outcome in enumerate(on_ranks(ranks, on_rank)):
        assert outcome[0] == wanted[0]
        assert np.array_equal(outcome[1], wanted[1][nodes_of(rank)])
        # What was under way when it ended is not counted.
        assert outcome[2].converged
        assert outcome[2].iterations == wanted[2].iterations
        assert outcome[2].history == wanted[2].history
        assert outcome[3] == wanted[3]
