"""Cores on which each launch must touch the parts that it declares, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
from recorded_device import RecordedCores

from haloscope.device.cpu import CpuKernel
from haloscope.device.declarations import Constants
from haloscope.device.program import View

Masks = Callable[[View], np.ndarray | None]
"""Which elements of a whole field the parts of a view have, flat; None for a field that is not known."""


class PoisonedCores(RecordedCores):
    """Runs each launch that names parts twice, the second time with NaN wherever it declares to read nothing.

    `masks` knows the elements of parts; until it is set launches run once. `faults` lists what is touched
    without being declared, each once.
    """

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self.masks: Masks | None = None
        self.faults: dict[str, None] = {}
        self.checked: set[str] = set()

    def kernel(self, file: Path, name: str, constants: Constants) -> Any:
        kernel = super(RecordedCores, self).kernel(file, name, constants)
        if file.name == "exchange.cpp":
            name += "_" + ("boxes", "entries", "rows")[constants["INDEX"]]
        return _PoisonedKernel(self, kernel, name)


class _PoisonedKernel:
    def __init__(self, device: PoisonedCores, kernel: CpuKernel, name: str) -> None:
        self._device, self._kernel, self._name = device, kernel, name
        self.declaration = kernel.declaration

    def bind(self, *, extent: Any, stream: Any = None, **arguments: Any) -> Callable[[], None]:
        launch = self._kernel.bind(extent=extent, stream=stream, **arguments)
        views = {name: value for name, value in arguments.items() if isinstance(value, View)}

        def run() -> None:
            masks = self._device.masks
            if masks is None or not views or any(masks(view) is None for view in views.values()):
                launch()
            else:
                self._run_twice(launch, arguments, views)

        return run

    def _run_twice(
        self, launch: Callable[[], None], arguments: Mapping[str, Any], views: Mapping[str, View]
    ) -> None:
        device, masks = self._device, cast(Any, self._device.masks)
        device.checked.add(self._name)
        access = {one.name: one.access for one in self.declaration.arguments}
        others = [
            value
            for name, value in arguments.items()
            if isinstance(value, np.ndarray) and access[name] != "in"
        ]
        fields = {name: view.field.array.reshape(-1) for name, view in views.items()}
        parts = {name: masks(view) for name, view in views.items()}
        written = {
            name: np.zeros_like(parts[name])
            if access[name] == "in"
            else masks(view.field[tuple(view.written or view.parts)])
            for name, view in views.items()
        }
        before = {name: array.copy() for name, array in fields.items()}
        others_before = [array.copy() for array in others]
        launch()
        after = {name: array.copy() for name, array in fields.items()}
        others_after = [array.copy() for array in others]
        for name in views:
            # Arguments of one field write different parts of it: all of them count.
            mine = [written[other] for other in views if views[other].field is views[name].field]
            touched = _differ(before[name], after[name]) & ~np.any(mine, axis=0)
            self._fault(name, "writes", views[name], touched)
        # Once more, with NaN where nothing is declared to be read.
        for array, values in zip(others, others_before, strict=True):
            array[...] = values
        for name, array in fields.items():
            read = [
                parts[other]
                for other in views
                if views[other].field is views[name].field and access[other] != "out"
            ]
            array[...] = before[name]
            array[~np.any([np.zeros_like(parts[name]), *read], axis=0)] = np.nan
        launch()
        for name, array in fields.items():
            touched = (
                _differ(array, after[name]) & written[name] & _differ(before[name], after[name])
            )
            self._fault(name, "depends on more than it declares for", views[name], touched)
        for name, array in fields.items():
            array[...] = after[name]
        for array, values in zip(others, others_after, strict=True):
            array[...] = values

    def _fault(self, argument: str, fault: str, view: View, touched: np.ndarray) -> None:
        if touched.any():
            text = f"{self._name} {fault} {argument} = {view}: {int(touched.sum())} elements"
            self._device.faults[text] = None


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where bits differ."""
    kind = f"u{one.itemsize}"
    return np.asarray(one.view(kind) != other.view(kind))
