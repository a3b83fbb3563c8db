"""The solvers by name, loaded only when a case needs them."""

from __future__ import annotations

import difflib
import gc
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from haloscope.case.tables import CaseTable
from haloscope.errors import InputError

if TYPE_CHECKING:
    from haloscope.device.interface import Device
    from haloscope.device.targets import KernelFile, Target
    from haloscope.exchange.ranks.world import World
    from haloscope.solvers.interface import Solver
    from haloscope.solvers.sweeping import Sweeping

_PARTS = {
    "blood": ("BloodCase", "BloodSolver"),
    "cavity": ("CavityCase", "CavitySolver"),
    "flow": ("FlowCase", "FlowSolver"),
    "maxwell": ("MaxwellCase", "MaxwellSolver"),
}

NAMES = tuple(_PARTS)


def _part(solver: str, module: str, index: int) -> Any:
    loaded = importlib.import_module(f"haloscope.solvers.{solver}.{module}")
    return getattr(loaded, _PARTS[solver][index])


def check_name(name: str) -> str:
    """A solver's name, if there is such a solver."""
    if name not in _PARTS:
        near = difflib.get_close_matches(name, NAMES, 1)
        raise InputError(
            "unknown solver",
            location=f"solver {name!r}",
            allowed=", ".join(NAMES),
            remedy=f"did you mean {near[0]}?" if near else "",
        )
    return name


def case_model(name: str) -> type[CaseTable]:
    """Model of a solver's case files."""
    model: type[CaseTable] = _part(check_name(name), "case", 0)
    return model


def make_solver(case: CaseTable, device: Device, world: World) -> Solver:
    """Solver for a case; all ranks call this."""
    if world.size > 1:
        # Solvers that are no longer used give back what they had mapped of other ranks' memory;
        # then each may free its own.
        gc.collect()
        world.barrier()
        device.release_shared()
    make: Callable[..., Solver] = _part(check_name(case.solver), "solver", 1)
    return make(case, device, world)


def manifest(case: CaseTable, target: Target, ranks: int) -> list[KernelFile]:
    """All kernel files that the ranks of a case need on a target, as the case says; some several times."""
    module = importlib.import_module(f"haloscope.solvers.{check_name(case.solver)}.kernels")
    return list(module.manifest(case, target, ranks))


def checks(name: str) -> Any:
    """The module in which a solver declares its verification checks."""
    return importlib.import_module(f"haloscope.solvers.{check_name(name)}.checks")


def estimate(case: CaseTable) -> dict[str, float]:
    """Memory in bytes and work of a case before anything is allocated."""
    module = importlib.import_module(f"haloscope.solvers.{check_name(case.solver)}.sizing")
    numbers: dict[str, float] = module.estimate(case)
    return numbers


def check_ranks(case: CaseTable, ranks: int) -> None:
    """Refuse a rank count that a case's grid cannot be cut for, before any rank starts."""
    module = importlib.import_module(f"haloscope.solvers.{check_name(case.solver)}.sizing")
    module.check_ranks(case, ranks)


def sweeping(name: str) -> Sweeping:
    """The module that tells what studies sweep of a solver."""
    module: Any = importlib.import_module(f"haloscope.solvers.{check_name(name)}.sizing")
    solver_module: Sweeping = module
    return solver_module


def template(solver: str) -> str:
    """Text of a commented case to start from."""
    from importlib import resources

    folder = resources.files(f"haloscope.solvers.{check_name(solver)}")
    return folder.joinpath("template.toml").read_text(encoding="utf-8")
