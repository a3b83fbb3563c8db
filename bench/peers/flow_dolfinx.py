"""Times a Newton iteration of DOLFINx and PETSc on the flow equations: the peer of Haloscope's flow.

The weak form is that of the flow solver's elements.hpp, written in UFL: P1/P1 elements with SUPG, PSPG
and LSIC, tau from the element's metric and the mean velocity and left out of the derivative. The mesh
and what is given on it come from a file that the driver writes. Choices in the peer's favour:

* one space of four unknowns a node, so that PETSc stores blocks of 4 (BAIJ) and its ILU(0) works on
  them; quadrature of degree 2, which is exact here; compiled with -O3 -march=native
* seconds are those of assembly, factorisation and solution alone, by the clock and of processors
* on several processes block Jacobi with ILU(0), PETSc's own default

    python flow_dolfinx.py --problem problem.npz --iterations 5 --serve

Each line `run` on stdin is answered by one JSON line, `info` by one with versions; `fields FILE` writes
the state after the iterations. Needs numpy, mpi4py, petsc4py and DOLFINx 0.5 (Debian: python3-dolfinx).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import dolfinx
import numpy as np
import ufl
from dolfinx import fem
from mpi4py import MPI
from petsc4py import PETSc

WORLD = MPI.COMM_WORLD
METRIC, VISCOUS_CONSTANT = 5.0 / 6.0, 36.0


# Between two looks at what comes.
_LOOK_SECONDS = 0.001


class Problem:
    """The discrete equations, their matrix and a solver."""

    def __init__(self, file: str, restart: int, tolerance: float) -> None:
        with np.load(file, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        first = WORLD.rank == 0
        cells = arrays["tets"].astype(np.int64) if first else np.zeros((0, 4), np.int64)
        nodes = arrays["nodes"] if first else np.zeros((0, 3))
        shape = ufl.Mesh(ufl.VectorElement("Lagrange", "tetrahedron", 1))
        mesh = dolfinx.mesh.create_mesh(WORLD, cells, nodes, shape)
        self.tets, self.nodes = len(arrays["tets"]), len(arrays["nodes"])
        space = fem.FunctionSpace(mesh, ufl.VectorElement("Lagrange", "tetrahedron", 1, dim=4))
        self.state = fem.Function(space)
        self.mean = fem.Function(
            fem.FunctionSpace(mesh, ufl.VectorElement("DG", "tetrahedron", 0, dim=4))
        )
        self.at_middle = fem.Expression(
            self.state, self.mean.function_space.element.interpolation_points()
        )
        self.original = _original_numbers(mesh, space)
        self._fix(space, arrays)
        options = {"cffi_extra_compile_args": ["-O3", "-march=native"]}
        residual, derivative = self._forms(
            space, float(arrays["density"]), float(arrays["viscosity"])
        )
        self.residual = fem.form(residual, jit_params=options)
        self.derivative = fem.form(derivative, jit_params=options)
        self.matrix = dolfinx.cpp.fem.petsc.create_matrix(self.derivative, "baij")
        self.right = fem.petsc.create_vector(self.residual)
        self.change = self.right.duplicate()
        solver = self.solver = PETSc.KSP().create(WORLD)
        solver.setOperators(self.matrix)
        solver.setType("fgmres")
        solver.setGMRESRestart(restart)
        solver.setTolerances(rtol=tolerance, max_it=600)
        pc = solver.getPC()
        pc.setType("ilu" if WORLD.size == 1 else "bjacobi")

    def _fix(self, space: Any, arrays: dict[str, np.ndarray]) -> None:
        """What is given: numbers 4 * node + unknown of the file, and their values."""
        values = np.full(4 * self.nodes, np.nan)
        values[arrays["fixed"]] = arrays["values"]
        own = values.reshape(-1, 4)[self.original]
        self.initial = np.nan_to_num(own).ravel()
        self.fixed = np.flatnonzero(np.isfinite(own.ravel())).astype(np.int32)
        boundary = fem.Function(space)
        boundary.x.array[:] = self.initial
        self.conditions = []
        for unknown in range(4):
            chosen = self.fixed[self.fixed % 4 == unknown]
            if WORLD.allreduce(len(chosen)):
                self.conditions.append(
                    fem.dirichletbc(PETSc.ScalarType(0), chosen, space.sub(unknown))
                )

    def _forms(self, space: Any, rho: float, mu: float) -> tuple[Any, Any]:
        w, test = self.state, ufl.TestFunction(space)
        u, p = ufl.as_vector([w[i] for i in range(3)]), w[3]
        v, q = ufl.as_vector([test[i] for i in range(3)]), test[3]
        c = ufl.as_vector([self.mean[i] for i in range(3)])
        K = ufl.inv(ufl.Jacobian(space.mesh))
        # The sum of the products of the four shape functions' gradients.
        G = METRIC * K.T * (ufl.Identity(3) + ufl.as_matrix([[1.0] * 3] * 3)) * K
        nu = mu / rho
        tau = 1 / ufl.sqrt(ufl.dot(c, G * c) + VISCOUS_CONSTANT * nu**2 * ufl.inner(G, G))
        tau_C = 1 / (tau * ufl.tr(G))
        inertia = rho * ufl.dot(ufl.grad(u), u)
        r = inertia + ufl.grad(p)
        eps = ufl.sym(ufl.grad(u))
        dx = ufl.Measure("dx", space.mesh, metadata={"quadrature_degree": 2})
        form = (
            ufl.inner(v, inertia)
            + 2 * mu * ufl.inner(eps, ufl.sym(ufl.grad(v)))
            - ufl.div(v) * p
            + q * ufl.div(u)
            + ufl.inner(tau * ufl.dot(ufl.grad(v), u) + tau / rho * ufl.grad(q), r)
            + rho * tau_C * ufl.div(v) * ufl.div(u)
        ) * dx
        return form, ufl.derivative(form, w)

    def iterate(self, iterations: int) -> dict[str, Any]:
        """Newton's iterations from the initial state."""
        self.state.x.array[:] = self.initial
        assembly, solution, lengths, counts = 0.0, 0.0, [], []
        worked = time.process_time()
        for _ in range(iterations):
            WORLD.barrier()
            begin = time.perf_counter()
            self.mean.interpolate(self.at_middle)
            with self.right.localForm() as local:
                local.set(0.0)
            fem.petsc.assemble_vector(self.right, self.residual)
            self.right.ghostUpdate(addv=PETSc.InsertMode.ADD, mode=PETSc.ScatterMode.REVERSE)
            owned = self.fixed[self.fixed < self.right.getLocalSize()]
            self.right.array[owned] = 0.0
            self.matrix.zeroEntries()
            fem.petsc.assemble_matrix(self.matrix, self.derivative, bcs=self.conditions)
            self.matrix.assemble()
            WORLD.barrier()
            middle = time.perf_counter()
            self.solver.setOperators(self.matrix)
            # As Haloscope does: kept after an iteration that shortened the residual tenfold.
            falls = bool(lengths) and 10 * self.right.norm() <= lengths[-1]
            self.solver.getPC().setReusePreconditioner(falls)
            self.solver.solve(self.right, self.change)
            WORLD.barrier()
            end = time.perf_counter()
            lengths.append(self.right.norm())
            counts.append(self.solver.getIterationNumber())
            self.state.vector.axpy(-1.0, self.change)
            self.state.x.scatter_forward()
            assembly, solution = assembly + middle - begin, solution + end - middle
        worked = WORLD.allreduce(time.process_time() - worked)
        return {
            "processor_seconds_per_iteration": worked / iterations,
            "seconds_per_iteration": (assembly + solution) / iterations,
            "assembly": assembly / iterations,
            "solution": solution / iterations,
            "residuals": lengths,
            "linear_iterations": counts,
        }

    def write(self, file: str) -> None:
        """The state in the file's numbering."""
        size = self.state.function_space.dofmap.index_map.size_local
        pairs = WORLD.gather((self.original[:size], self.state.x.array[: 4 * size].reshape(-1, 4)))
        if pairs is not None:
            whole = np.empty((self.nodes, 4))
            for numbers, values in pairs:
                whole[numbers] = values
            np.savez(file, state=whole)


def _original_numbers(mesh: Any, space: Any) -> np.ndarray:
    """Of each node of this process, copies included, its number in the file."""
    nodes = space.dofmap.index_map.size_local + space.dofmap.index_map.num_ghosts
    original = np.full(nodes, -1)
    numbers = np.asarray(mesh.geometry.input_global_indices)
    at = mesh.geometry.dofmap.array.reshape(-1, 4)
    original[np.asarray(space.dofmap.list.array).reshape(-1, 4)] = numbers[at]
    return original


def next_line() -> str:
    """What the driver asks for next; meanwhile the cores are free.

    In a collective call ranks would take a core each while they wait, from whoever has the turn.
    """
    if WORLD.rank == 0:
        line = sys.stdin.readline()
        for rank in range(1, WORLD.size):
            WORLD.send(line, rank)
        return line
    while not WORLD.iprobe(source=0):
        time.sleep(_LOOK_SECONDS)
    received_line: str = WORLD.recv(source=0)
    return received_line


def main() -> None:
    """Answer the driver, or run once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", required=True)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--restart", type=int, default=100)
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    problem = Problem(options.problem, options.restart, options.tolerance)
    while True:
        line = next_line() if options.serve else "run"
        word, _, file = line.strip().partition(" ")
        answer: dict[str, Any] = {}
        if word == "run":
            answer = problem.iterate(options.iterations)
        elif word == "fields":
            problem.write(file)
        elif word == "info":
            version = ".".join(map(str, PETSc.Sys.getVersion()))
            answer = {"dolfinx": dolfinx.__version__, "petsc": version, "processes": WORLD.size}
        else:
            break
        if WORLD.rank == 0:
            print(json.dumps(answer), flush=True)
        if not options.serve:
            break


if __name__ == "__main__":
    main()
