"""Pictures of a step: kernels and exchanges on their streams, and which wait for which."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from haloscope.io.figures.axis_labels import wrapped
from haloscope.io.figures.figure import INK, MUTED, Panel, Picture, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from haloscope.device.program import Node, Program, Step

_WIDTH, _ROW, _HEAD = 9.0, 0.62, 1.0  # inch
_PLACES = {"main": 0.0, "side": 1.0}
_COLOURS = {"kernel": "#dbe9f6", "launch": "#dbe9f6", "exchange": "#fde7c8", "host": "#e3e3e3"}
_BOX = (0.86, 0.72)  # of the distance of streams, and of rows
_ROOM = 3.6  # inch, of a line in a box


def save_step_picture(path: Path, program: Program, title: str) -> None:
    """Draw the first step of a program."""
    step = program.steps[0]
    step.close()
    panel = Panel([partial(_draw_step, step=step)], title=f"{title}: one step ({program.name})")
    save(path, Picture((_WIDTH, _HEAD + _ROW * (len(step.nodes) + 1)), [panel]))


def _draw_step(axes: Axes, step: Step) -> None:
    count = len(step.nodes)
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylim(count + 0.2, -1.2)
    for name, place in _PLACES.items():
        axes.text(place, -0.85, f"{name} stream", ha="center", fontsize=10, color=INK)
        axes.plot([place, place], [-0.55, count], color="#d0d0d0", zorder=0)
    rows = {id(node): row for row, node in enumerate(step.nodes)}
    for row, node in enumerate(step.nodes):
        _draw_node(axes, node, row)
        if node.waits:
            # It waits for all that the other stream holds by then.
            others = [n for n, one in enumerate(step.nodes[:row]) if one.stream != node.stream]
            early = others[-1] if others else -0.5
            _draw_arrow(axes, early, row, node.stream)
    if step.joins:
        last = max(rows[id(node)] for node in step.nodes if node.stream == "side")
        _draw_arrow(axes, last, count, "main")
    axes.text(
        -0.48,
        count + 0.15,
        "Down: the order of launches. Arrows: a stream waits for the other one.",
        fontsize=8,
        color=MUTED,
    )


def _draw_node(axes: Axes, node: Node, row: int) -> None:
    from matplotlib.patches import Rectangle

    width, height = _BOX
    left = _PLACES[node.stream] - width / 2
    box = Rectangle(
        (left, row - height / 2), width, height, facecolor=_COLOURS[node.kind], edgecolor="#9aa1a8"
    )
    axes.add_patch(box)
    region = f" ({node.region.name})" if node.region is not None else ""
    axes.text(left + 0.02, row - 0.17, f"{node.name}{region}", fontsize=8.5, va="center", color=INK)
    lines = wrapped("; ".join(node.touches), 6.5, _ROOM)[:2]
    axes.text(left + 0.02, row + 0.14, "\n".join(lines), fontsize=6.5, va="center", color=MUTED)


def _draw_arrow(axes: Axes, early: float, late: float, stream: str) -> None:
    """From a row of the other stream to a row of a stream."""
    half = _BOX[0] / 2
    start, end = (half, 1 - half) if stream == "side" else (1 - half, half)
    axes.annotate(
        "",
        xy=(end, late),
        xytext=(start, early),
        arrowprops={"arrowstyle": "-|>", "color": "#b4463c", "linewidth": 1.2},
    )
