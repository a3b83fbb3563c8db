"""Times Devito on the buoyancy-driven cavity's interior: the peer that Haloscope is held against.

One explicit Euler step of the equations below is built as one Devito Operator, with all five
fields in one loop nest, on n*n*n collocated nodes.  h = L/(n-1), gravity along -y, and

    V2       = u^2 + v^2 + w^2,   beta2 = max(V2, kappa*Vref^2)
    lambda_i = (|u_i| + sqrt(u_i^2 + 4*beta2))/2
    dp/dt    = -beta2*rho*div V - C4*sum_i lambda_i*d4_i(p)/h
    du_j/dt  = -V.grad u_j - (1/rho)*dp/dx_j + nu*lap u_j - betaT*(T - Tref)*g_j
    dT/dt    = -V.grad T + alpha*lap T

with central second-order differences; d4_i is the undivided fourth difference.  Only the nodes
1..n-2 change.  Wall nodes keep what they were given, and p reads as zero one node beyond a wall.
The time step is one fixed number.  Like every other constant it is compiled in as a literal,
which is the kindest case for Devito.

Choices made in Devito's favour:

* Every run first times a short list of Devito's own options and block shapes, in turns, and keeps
  the fastest (see CANDIDATES); `--blocks 32x16 --collapse 1` skips the search, and
  `--blocks devito` leaves it to Devito's own `autotune='aggressive'`, which times each shape once.
* The seconds are those of the timers inside the compiled code; the cost of calling the operator
  from Python is left out (`wall_seconds_per_step_median` has it in).
* Devito's compiler flags are left as they are: -O3 -march=native -ffast-math, denormals flushed
  and, where the processor has AVX-512, -mprefer-vector-width=512.

The differences are spelt out by hand because two of Devito's shorthands mean something else:
`u.dx` of a field of space order 2 is a one-sided first-order difference (`u.dxc` is the central
one), and a fourth derivative asked for with `fd_order=2` is silently zero (it takes `fd_order=4`).
With those two put right, the shorthands make the same loop at the same speed.

    python cavity_devito.py --nodes 258 --steps 20 --threads 2 --repeats 5
    python cavity_devito.py --check
    python cavity_devito.py --nodes 258 --steps 20 --threads 2 --serve

One JSON object goes to stdout, everything else to stderr.  With `--serve` each line `run` on stdin
is answered by one JSON line with `seconds_per_step`, `info` by one with the set-up, and `quit` or
the end of the input ends the program, so that a driver can take turns between two programs.
The operator waits for all threads once a step, so on a machine whose cores have other work a small
grid measures the scheduler (some milliseconds a step): time 258 nodes, with the cores free.
OpenMP's own variables pass through, but for OMP_NUM_THREADS, which is `--threads`.

`--fields` writes the first and the last state and the parameters, for another program to compare.
"""

from __future__ import annotations

import argparse
import atexit
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np

NAMES = ("p", "u", "v", "w", "T")

# What the search tries: whether the two outer block loops are collapsed into one for the threads
# (Devito does so by itself only with more than four cores), and the shape of a block in x and y.
CANDIDATES = tuple(
    (collapse, block)
    for collapse in (False, True)
    for block in ((16, 16), (16, 32), (24, 24), (32, 16), (32, 24), (32, 32), (48, 48))
)
SEARCH_ROUNDS = 4
SEARCH_STEPS = 4


def parameters(nodes: int) -> dict[str, float]:
    """The constants of the cavity, the spacing and the fixed time step."""
    length, nu, alpha, gravity = 0.05, 1.589e-5, 2.25e-5, 9.81
    expansion, rayleigh, kappa = 1.0 / 300.0, 1.0e5, 0.1
    difference = rayleigh * nu * alpha / (gravity * expansion * length**3)
    speed = math.sqrt(gravity * expansion * difference * length)
    spacing = length / (nodes - 1)
    fastest = (0.5 + math.sqrt(0.25 + 0.4)) * speed
    return {
        "L": length,
        "nu": nu,
        "alpha": alpha,
        "g": gravity,
        "betaT": expansion,
        "rho": 1.177,
        "Tref": 300.0,
        "Ra": rayleigh,
        "kappa": kappa,
        "C4": 0.01,
        "dT": difference,
        "Vref": speed,
        "h": spacing,
        "dt": 0.5 * min(spacing / fastest, spacing**2 / (6.0 * alpha)),
    }


def initial_fields(nodes: int, par: dict[str, float]) -> dict[str, np.ndarray]:
    """Smooth fields, without slip on the walls, in which no term of the equations vanishes."""
    line = np.linspace(0.0, 1.0, nodes)
    x, y, z = np.meshgrid(line, line, line, indexing="ij", sparse=True)

    def wave(a: int, b: int, c: int) -> np.ndarray:
        product = np.sin(a * np.pi * x) * np.sin(b * np.pi * y) * np.sin(c * np.pi * z)
        # sin(pi) is not quite zero in floating point; the walls are.
        for axis in range(3):
            for side in (0, -1):
                product[(slice(None),) * axis + (side,)] = 0.0
        return product

    speed, difference = par["Vref"], par["dT"]
    return {
        "p": 0.1 * par["rho"] * speed**2 * (wave(1, 1, 1) + 0.4 * wave(2, 3, 1)),
        "u": 0.5 * speed * (wave(1, 2, 1) + 0.2 * wave(1, 1, 2)),
        "v": -0.4 * speed * (wave(2, 1, 1) + 0.3 * wave(1, 1, 1)),
        "w": 0.3 * speed * (wave(1, 1, 3) + 0.2 * wave(1, 1, 1)),
        "T": par["Tref"] + difference * (0.5 - x) + 0.05 * difference * wave(1, 2, 1),
    }


def reference(
    start: dict[str, np.ndarray], par: dict[str, float], steps: int
) -> dict[str, np.ndarray]:
    """The same steps in plain numpy, written straight from the equations."""
    h, dt, rho = par["h"], par["dt"], par["rho"]
    fields = {name: values.astype(np.float64) for name, values in start.items()}
    nodes = fields["p"].shape[0]
    inside = (slice(1, -1),) * 3

    def at(values: np.ndarray, axis: int, shift: int, margin: int = 1) -> np.ndarray:
        low = [margin] * 3
        low[axis] += shift
        return values[tuple(slice(i, i + nodes - 2) for i in low)]

    def gradient(values: np.ndarray, axis: int) -> np.ndarray:
        return (at(values, axis, 1) - at(values, axis, -1)) / (2.0 * h)

    def laplacian(values: np.ndarray) -> np.ndarray:
        return sum(
            (at(values, i, 1) - 2.0 * at(values, i, 0) + at(values, i, -1)) / h**2 for i in range(3)
        )

    for _ in range(steps):
        p, temperature = fields["p"], fields["T"]
        padded = np.pad(p, 1)
        velocity = [fields[name][inside] for name in "uvw"]
        beta2 = np.maximum(sum(q * q for q in velocity), par["kappa"] * par["Vref"] ** 2)

        def advection(values: np.ndarray, velocity: list[np.ndarray] = velocity) -> np.ndarray:
            return sum(velocity[i] * gradient(values, i) for i in range(3))

        divergence = sum(gradient(fields[name], i) for i, name in enumerate("uvw"))
        rate = {"p": -beta2 * rho * divergence}
        for i in range(3):
            wave_speed = (np.abs(velocity[i]) + np.sqrt(velocity[i] ** 2 + 4.0 * beta2)) / 2.0
            fourth = sum(
                weight * at(padded, i, shift, margin=2)
                for shift, weight in ((-2, 1.0), (-1, -4.0), (0, 6.0), (1, -4.0), (2, 1.0))
            )
            rate["p"] = rate["p"] - par["C4"] * wave_speed * fourth / h
        for i, name in enumerate("uvw"):
            rate[name] = (
                -advection(fields[name])
                - gradient(p, i) / rho
                + par["nu"] * laplacian(fields[name])
            )
        # g = (0, -g, 0): a node warmer than Tref rises.
        rate["v"] = rate["v"] + par["betaT"] * (temperature[inside] - par["Tref"]) * par["g"]
        rate["T"] = -advection(temperature) + par["alpha"] * laplacian(temperature)
        new = {name: values.copy() for name, values in fields.items()}
        for name in NAMES:
            new[name][inside] += dt * rate[name]
        fields = new
    return fields


class Cavity:
    """The Devito side: fields, operators and the timing of one repeat."""

    def __init__(self, nodes: int, steps: int, threads: int, precision: str) -> None:
        self.nodes, self.steps, self.threads = nodes, steps, threads
        self.par = parameters(nodes)
        self.dtype = np.float64 if precision == "double" else np.float32
        self.devito = import_devito(threads)
        grid = self.devito.Grid(shape=(nodes,) * 3, extent=(self.par["L"],) * 3, dtype=self.dtype)
        self.grid = grid
        self.fields = {
            name: self.devito.TimeFunction(
                name=name, grid=grid, time_order=1, space_order=4 if name == "p" else 2
            )
            for name in NAMES
        }
        self.start = {
            name: values.astype(self.dtype)
            for name, values in initial_fields(nodes, self.par).items()
        }
        for name, field in self.fields.items():
            field.data_with_halo[:] = 0
            field.data[0] = self.start[name]
            field.data[1] = self.start[name]
        self.operators: dict[bool, Any] = {}
        self.collapse, self.block = False, (16, 16)
        self.chosen_by = "the command line"

    def operator(self, collapse: bool) -> Any:
        """The operator with or without collapsed block loops, built when first asked for."""
        if collapse not in self.operators:
            options: dict[str, Any] = {"openmp": True}
            if collapse:
                options["par-collapse-ncores"] = 1
            self.operators[collapse] = self.devito.Operator(
                self.equations(), opt=("advanced", options), name="CavityStep"
            )
        return self.operators[collapse]

    def equations(self) -> list[Any]:
        """One Euler step, each constant folded into one literal per term."""
        par, largest = self.par, self.devito.Max
        h, dt, rho = par["h"], par["dt"], par["rho"]
        p, u, v, w, temperature = (self.fields[name] for name in NAMES)
        velocity, axes = (u, v, w), self.grid.dimensions

        def at(field: Any, axis: Any, shift: int) -> Any:
            return field.subs(axis, axis + shift * axis.spacing)

        def difference(field: Any, axis: Any) -> Any:
            return at(field, axis, 1) - at(field, axis, -1)

        def neighbours(field: Any) -> Any:
            return sum(at(field, axis, shift) for axis in axes for shift in (1, -1)) - 6 * field

        def fourth(field: Any, axis: Any) -> Any:
            near = at(field, axis, 1) + at(field, axis, -1)
            return at(field, axis, 2) + at(field, axis, -2) - 4 * near + 6 * field

        half = dt / (2.0 * h)

        def advection(field: Any) -> Any:
            return half * sum(q * difference(field, d) for q, d in zip(velocity, axes, strict=True))

        beta2 = largest(u * u + v * v + w * w, par["kappa"] * par["Vref"] ** 2)
        twice_lambda = [self.devito.Abs(q) + self.devito.sqrt(q * q + 4 * beta2) for q in velocity]
        divergence = sum(difference(q, d) for q, d in zip(velocity, axes, strict=True))
        damping = sum(s * fourth(p, d) for s, d in zip(twice_lambda, axes, strict=True))
        new = {"p": p - half * rho * beta2 * divergence - 0.5 * dt * par["C4"] / h * damping}
        for name, q, d in zip("uvw", velocity, axes, strict=True):
            new[name] = (
                q
                - advection(q)
                - half / rho * difference(p, d)
                + dt * par["nu"] / h**2 * neighbours(q)
            )
        new["v"] = new["v"] + dt * par["betaT"] * par["g"] * (temperature - par["Tref"])
        new["T"] = (
            temperature
            - advection(temperature)
            + dt * par["alpha"] / h**2 * neighbours(temperature)
        )
        return [
            self.devito.Eq(self.fields[name].forward, new[name], subdomain=self.grid.interior)
            for name in NAMES
        ]

    def reset(self) -> None:
        """Back to the first state; the other buffer needs nothing, for its walls never change."""
        for name, field in self.fields.items():
            field.data[0] = self.start[name]

    def advance(self, steps: int, collapse: bool, block: tuple[int, int], **more: Any) -> Any:
        """Run the compiled steps and return Devito's own record of them."""
        sizes = {}
        if not more:
            sizes = {
                f"{axis}0_blk0_size": min(size, self.nodes - 2)
                for axis, size in zip("xy", block, strict=True)
            }
        return self.operator(collapse).apply(
            time_m=0, time_M=steps - 1, nthreads=self.threads, **sizes, **more
        )

    def search(self) -> None:
        """Choose the fastest of CANDIDATES, timed in turns so that a busy moment hits them all."""
        best: dict[tuple[bool, tuple[int, int]], float] = {}
        for turn in range(SEARCH_ROUNDS + 1):
            self.reset()
            for collapse, block in CANDIDATES:
                summary = self.advance(SEARCH_STEPS, collapse, block)
                taken = sum(entry.time for entry in summary.values()) / SEARCH_STEPS
                if turn > 0:  # the first turn warms up
                    key = (collapse, block)
                    best[key] = min(taken, best.get(key, math.inf))
        ranking = sorted(best, key=lambda key: best[key])
        for key in ranking:
            note(f"collapse={int(key[0])} block={key[1][0]}x{key[1][1]}: {best[key]:.6f} s/step")
        self.collapse, self.block = ranking[0]
        self.chosen_by = "a search over candidates"

    def autotune(self) -> None:
        """Choose the block shape by Devito's own search."""
        steps = max(self.steps, SEARCH_STEPS)
        self.advance(steps, self.collapse, self.block, autotune="aggressive")
        tuned = self.operator(self.collapse)._state["autotuning"][-1]["tuned"]
        note(f"autotuning chose {tuned}")
        self.block = (int(tuned["x0_blk0_size"]), int(tuned["y0_blk0_size"]))
        self.chosen_by = "autotune='aggressive'"

    def repeat(self) -> tuple[float, float]:
        """One repeat from the first state: seconds per step inside the kernel, and on the wall."""
        self.reset()
        before = time.perf_counter()
        summary = self.advance(self.steps, self.collapse, self.block)
        wall = time.perf_counter() - before
        return sum(entry.time for entry in summary.values()) / self.steps, wall / self.steps

    def state(self) -> dict[str, np.ndarray]:
        """The fields after a repeat, as float64."""
        return {
            name: np.array(field.data[self.steps % 2], dtype=np.float64)
            for name, field in self.fields.items()
        }

    def finite(self) -> bool:
        """Whether every value after a repeat is a number."""
        return all(
            bool(np.isfinite(np.asarray(field.data[self.steps % 2])).all())
            for field in self.fields.values()
        )

    def options(self) -> dict[str, Any]:
        """What was compiled and how it is run."""
        compiler = self.devito.configuration["compiler"]
        return {
            "opt": "advanced",
            "openmp": True,
            "collapse": self.collapse,
            "block": list(self.block),
            "chosen_by": self.chosen_by,
            "compiler": f"{compiler.CC} {compiler.version}",
            "flags": " ".join(compiler.cflags),
            "platform": str(self.devito.configuration["platform"]),
        }

    def describe(self, precision: str) -> dict[str, Any]:
        """The part of the answer that does not depend on the timing."""
        return {
            "peer": "devito",
            "version": self.devito.__version__,
            "nodes": self.nodes,
            "steps": self.steps,
            "threads": self.threads,
            "precision": precision,
            "counted_cells": (self.nodes - 2) ** 3,
            "options": self.options(),
        }


def import_devito(threads: int) -> Any:
    """Devito with its settings fixed here, whatever the caller's environment says."""
    if "devito" not in sys.modules:
        # A folder of its own for the compiled code, which so is always compiled for this processor.
        folder = tempfile.mkdtemp(prefix="cavity-devito-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        tempfile.tempdir = folder
        for name in [name for name in os.environ if name.startswith("DEVITO_")]:
            del os.environ[name]
        os.environ["TMPDIR"] = folder
        os.environ["OMP_NUM_THREADS"] = str(threads)
    import devito

    devito.configuration["log-level"] = "ERROR"
    devito.configuration["compiler"] = "gcc"
    devito.configuration["language"] = "openmp"
    return devito


def note(text: str) -> None:
    """A line for the reader, on stderr."""
    print(f"cavity_devito: {text}", file=sys.stderr, flush=True)


def whole(low: int) -> Any:
    """A command-line whole number no smaller than `low`."""

    def convert(text: str) -> int:
        value = int(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"{value} is too small: give {low} or more")
        return value

    return convert


def blocks(text: str) -> str:
    """Check the form of --blocks."""
    if text in ("auto", "devito"):
        return text
    parts = text.split("x")
    if len(parts) == 2 and all(part.isdigit() and int(part) > 0 for part in parts):
        return text
    raise argparse.ArgumentTypeError(f"'{text}' is neither auto, devito nor like 32x16")


def check(precision: str, threads: int) -> int:
    """Five steps on 20^3 nodes against numpy, for each way in which the operator can be built."""
    allowed = 1e-10 if precision == "double" else 1e-4
    failures, worst_of_all = [], 0.0
    cavity = Cavity(20, 5, threads, precision)
    expected = reference(cavity.start, cavity.par, cavity.steps)
    for collapse in (False, True):
        cavity.collapse, cavity.block = collapse, (8, 4)
        if str(cavity.operator(collapse).ccode).count("for (int z = ") != 1:
            failures.append(f"one loop nest for all fields (collapse={int(collapse)})")
        cavity.repeat()
        state = cavity.state()
        for name in NAMES:
            # Against the change over the steps where that can be resolved (T is 300 K and hardly
            # moves, so in single precision its own size is the measure).
            change = np.abs(expected[name] - cavity.start[name]).max()
            size = change if precision == "double" else np.abs(expected[name]).max()
            error = float(np.abs(state[name] - expected[name]).max() / size)
            worst_of_all = max(worst_of_all, error)
            note(f"collapse={int(collapse)} {name}: change {change:.3e}, error {error:.3e}")
            if not error <= allowed:
                failures.append(f"{name} (collapse={int(collapse)})")
    answer = {
        "peer": "devito",
        "version": cavity.devito.__version__,
        "check": "failed" if failures else "passed",
        "largest_relative_error": worst_of_all,
        "allowed": allowed,
        "failures": failures,
    }
    say(answer)
    return 1 if failures else 0


ANSWERS: Any = sys.stdout


def say(answer: dict[str, Any]) -> None:
    """One JSON object on the real stdout."""
    ANSWERS.write(json.dumps(answer) + "\n")
    ANSWERS.flush()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=whole(8), default=258, help="nodes along each edge")
    parser.add_argument("--steps", type=whole(1), default=20, help="steps in one repeat")
    parser.add_argument("--threads", type=whole(1), default=2)
    parser.add_argument("--repeats", type=whole(1), default=5)
    parser.add_argument("--precision", choices=("double", "single"), default="double")
    parser.add_argument("--fields", metavar="FILE.npz", help="write the first and the last state")
    parser.add_argument(
        "--blocks",
        type=blocks,
        default="auto",
        help="block shape as XxY; auto (the default) searches, devito leaves it to Devito",
    )
    parser.add_argument(
        "--collapse",
        type=int,
        choices=(0, 1),
        default=0,
        help="collapse the block loops (not with --blocks auto, which tries both)",
    )
    parser.add_argument("--serve", action="store_true", help="time one repeat per line 'run'")
    parser.add_argument("--check", action="store_true", help="compare with numpy on 20^3 nodes")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for."""
    options = arguments()
    # Whatever a library or a compiler prints goes to stderr; stdout carries JSON only.
    global ANSWERS
    sys.stdout.flush()
    ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    if options.check:
        return check(options.precision, options.threads)

    cavity = Cavity(options.nodes, options.steps, options.threads, options.precision)
    if options.blocks == "auto":
        cavity.search()
    else:
        cavity.collapse = bool(options.collapse)
        if options.blocks == "devito":
            cavity.autotune()
        else:
            first, second = options.blocks.split("x")
            cavity.block = (int(first), int(second))
    cavity.repeat()  # compiles where nothing has yet, and warms up
    if not cavity.finite():
        note("the fields are no longer finite: fewer steps are needed")
        return 1
    if options.fields:
        arrays = {f"{name}_initial": cavity.start[name].astype(np.float64) for name in NAMES}
        arrays.update({f"{name}_final": values for name, values in cavity.state().items()})
        np.savez(
            options.fields,
            nodes=options.nodes,
            steps=options.steps,
            p_beyond_walls=0.0,
            **arrays,
            **cavity.par,
        )
    described = cavity.describe(options.precision)

    if options.serve:
        note("ready")
        for line in sys.stdin:
            word = line.strip()
            if word == "run":
                say({"seconds_per_step": cavity.repeat()[0]})
            elif word == "info":
                say(described)
            elif word == "quit":
                break
            elif word:
                note(f"unknown line '{word}': run, info and quit are known")
        return 0

    seconds, walls = zip(*(cavity.repeat() for _ in range(options.repeats)), strict=True)
    median = statistics.median(seconds)
    say(
        {
            **described,
            "repeats": options.repeats,
            "seconds_per_step_median": median,
            "seconds_per_step_all": list(seconds),
            "wall_seconds_per_step_median": statistics.median(walls),
            "mcells_per_s_median": described["counted_cells"] / median / 1e6,
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
