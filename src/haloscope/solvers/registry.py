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

NAMES = ("blood", "cavity", "flow", "maxwell")


def _module(solver: str, name: str) -> Any:
    return importlib.import_module(f"haloscope.solvers.{check_name(solver)}.{name}")


def _class(solver: str, module: str, ending: str) -> Any:
    """A class of a solver, such as `FlowCase`."""
    return getattr(_module(solver, module), f"{solver.capitalize()}{ending}")


def check_name(name: str) -> str:
    """A solver's name, if there is such a solver."""
    if name not in NAMES:
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
    model: type[CaseTable] = _class(name, "case", "Case")
    return model


def make_solver(case: CaseTable, device: Device, world: World) -> Solver:
    """Solver for a case; all ranks call this."""
    if world.size > 1:
        # Solvers that are no longer used give back what they had mapped of other ranks' memory;
        # then each may free its own.
        gc.collect()
        world.barrier()
        device.release_shared()
    make: Callable[..., Solver] = _class(case.solver, "solver", "Solver")
    return make(case, device, world)


def kernels(solver: str) -> Any:
    """The module in which a solver lists its kernel files and the kernels to time."""
    return _module(solver, "kernels")


def manifest(case: CaseTable, target: Target, ranks: int) -> list[KernelFile]:
    """All kernel files that the ranks of a case need on a target, as the case says; some several times."""
    return list(kernels(case.solver).manifest(case, target, ranks))


def checks(solver: str) -> Any:
    """The module in which a solver declares its verification checks."""
    return _module(solver, "checks")


def estimate(case: CaseTable) -> dict[str, float]:
    """Memory in bytes and work of a case before anything is allocated."""
    numbers: dict[str, float] = _module(case.solver, "sizing").estimate(case)
    return numbers


def check_ranks(case: CaseTable, ranks: int) -> None:
    """Refuse a rank count that a case's grid cannot be cut for, before any rank starts."""
    _module(case.solver, "sizing").check_ranks(case, ranks)


def sweeping(solver: str) -> Sweeping[Any]:
    """Axes, growth and columns of a solver's studies."""
    studies: Sweeping[Any] = _class(solver, "sizing", "Sweeping")()
    return studies


def template(solver: str) -> str:
    """Text of a commented case to start from."""
    from importlib import resources

    folder = resources.files(f"haloscope.solvers.{check_name(solver)}")
    return folder.joinpath("template.toml").read_text(encoding="utf-8")
