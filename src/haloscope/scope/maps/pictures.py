"""The folder maps/: pictures and tables of messages by pair and receiver, and host files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, MachineError
from haloscope.io.atomic import atomic_folder, atomic_path
from haloscope.scope import maps
from haloscope.scope.diagnosis import findings
from haloscope.scope.diagnosis.findings import count, plain, seconds, size
from haloscope.scope.maps import Traffic, receivers, silence
from haloscope.scope.maps.placement import Placement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure


# White means that nothing was sent. Where ranks are more than points, a point sums a square of pairs.

DOTS_PER_INCH = 160
MOST_POINTS = 512  # along an axis; a point of the matrix is at least one of the picture
MOST_BARS = 48
DECADES = 6  # of the logarithmic scale, at most
INK = "#22262b"
MUTED = "#6b7178"
EMPTY = "#a9c6dd"  # pairs whose messages are all empty
BAR = "#3b6a94"
BAR_EMPTY = "#c3d5e4"
_FIRST_LETTER_NOT_DRAWN = "\u0500"  # after Latin, Greek and Cyrillic
_SPELLED = {"seconds": seconds, "messages": count, "bytes": size}


def save_map(path: Path, traffic: Traffic) -> None:
    """Draw the matrix of a traffic: time (messages where it is not known) and bytes of each pair."""
    quiet = silence(traffic)
    figure = _figure(11.4, 5.6)
    left = "seconds" if traffic.timed else "messages"
    name = "transfer time" if traffic.timed else "messages"
    _matrix(figure, figure.add_axes((0.065, 0.12, 0.355, 0.7225)), traffic, left, name)
    _matrix(figure, figure.add_axes((0.555, 0.12, 0.355, 0.7225)), traffic, "bytes", "bytes")
    messages, empty = traffic.total("messages"), traffic.total("empty")
    caption = (
        f"{count(messages)} messages, {count(empty)} of them empty; {size(traffic.total('bytes'))};"
        f" {100 * quiet.share:.3g} % of {count(quiet.pairs)} pairs exchange no data"
    )
    _head(figure, f"Messages: {_drawn(traffic.title)}", caption)
    _save(figure, path)


def save_receivers(path: Path, traffic: Traffic) -> None:
    """Draw senders, messages, bytes and receive time of each rank, each sorted by value."""
    table = receivers(traffic)
    figure = _figure(10.0, 6.4)
    axes = figure.subplots(2, 2)
    figure.subplots_adjust(0.085, 0.09, 0.98, 0.85, wspace=0.24, hspace=0.42)
    data = table["messages"] - table["empty"]
    _sorted(axes[0, 0], "senders", table["senders"], table["empty_senders"], count)
    _sorted(axes[0, 1], "messages", data, table["empty"], count)
    _sorted(axes[1, 0], "bytes", table["bytes"], None, size)
    if traffic.timed:
        _sorted(axes[1, 1], "receive time", table["receive_seconds"], None, seconds)
    else:
        axes[1, 1].axis("off")
        axes[1, 1].text(0, 0.5, "receive time: needs a trace", color=MUTED, fontsize=9)
    for axis in axes[1]:
        axis.set_xlabel("ranks, sorted by value", fontsize=8, color=MUTED)
    _head(
        figure,
        f"Receivers: {_drawn(traffic.title)}",
        "each panel sorted by its own value; light: only empty messages",
    )
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _head(figure: Figure, title: str, below: str) -> None:
    # Names come from a trace: a dollar sign in them must not begin a formula.
    figure.text(0.02, 0.975, title, fontsize=13, color=INK, va="top", parse_math=False)
    figure.text(0.02, 0.925, below, fontsize=9, color=MUTED, va="top", parse_math=False)


def _drawn(name: str) -> str:
    """A name in letters that the font of the pictures has."""
    return "".join(x if x < _FIRST_LETTER_NOT_DRAWN else "?" for x in plain(name, 60))


def _colours() -> Colormap:
    """Light to dark: far from white at its light end, and even to the eye (from magma)."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(colormaps["magma_r"](np.linspace(0.18, 0.97, 256)))
    return colours.with_extremes(bad=(1, 1, 1, 0))


def binned(traffic: Traffic, column: str) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Matrix of a column by (receiver, sender), binned where ranks are many."""
    links = traffic.links
    step = -(-traffic.size // MOST_POINTS)
    points = -(-traffic.size // step)
    where = (links["receiver"] // step).astype(np.int64) * points + links["sender"] // step
    shape = (points, points)

    def spread(weights: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.bincount(where, weights, points * points).astype(np.float64)
        return sums.reshape(shape)

    messages, empty = spread(links["messages"]), spread(links["empty"])
    return spread(links[column]), (messages > 0) & (messages == empty), step


def _matrix(figure: Figure, axis: Axes, traffic: Traffic, column: str, label: str) -> None:
    from matplotlib.colors import ListedColormap, LogNorm
    from matplotlib.patches import Patch
    from matplotlib.ticker import FuncFormatter, LogLocator

    values, empty, step = binned(traffic, column)
    edge = len(values) * step - 0.5
    extent = (-0.5, edge, edge, -0.5)
    most = float(values.max(initial=0.0))
    if np.any(empty) and column == "bytes":
        layer = np.ma.masked_where(~empty, np.ones_like(values))
        colours = ListedColormap([EMPTY]).with_extremes(bad=(1, 1, 1, 0))
        axis.imshow(layer, cmap=colours, extent=extent, interpolation="nearest")
        axis.legend(
            handles=[Patch(color=EMPTY, label="only empty messages")],
            loc="upper right",
            bbox_to_anchor=(1.0, -0.09),
            fontsize=8,
            frameon=False,
            handlelength=1,
            borderpad=0,
        )
    if most > 0:
        least = max(float(values[values > 0].min()), most * 10.0**-DECADES)
        # What differs by little is to look alike: the scale spans a factor of ten at least.
        low, high = min(least, most / 10), most
        image = axis.imshow(
            np.ma.masked_where(values <= 0, np.maximum(values, least)),
            norm=LogNorm(low, high),
            cmap=_colours(),
            extent=extent,
            interpolation="nearest",
        )
        place = axis.get_position()
        bar = figure.add_axes((place.x1 + 0.01, place.y0, 0.012, place.height))
        steps = (1.0,) if high > 300 * low else (1.0, 2.0, 5.0)
        figure.colorbar(
            image,
            cax=bar,
            ticks=LogLocator(subs=steps, numticks=20),
            format=FuncFormatter(lambda value, _: _SPELLED[column](value)),
        )
        bar.minorticks_off()
        bar.tick_params(labelsize=8, colors=MUTED)
    square = f", each point {step} x {step} pairs" if step > 1 else ""
    axis.set_title(f"{label}{square}", fontsize=10, color=INK, loc="left")
    axis.set_xlabel("sender", fontsize=9)
    axis.set_ylabel("receiver", fontsize=9)
    axis.set_xlim(-0.5, traffic.size - 0.5)
    axis.set_ylim(traffic.size - 0.5, -0.5)
    _whole_ticks(axis, traffic.size)


def _whole_ticks(axis: Axes, ranks: int) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in (axis.xaxis, axis.yaxis):
        line.set_major_locator(MaxNLocator(9, integer=True, min_n_ticks=min(ranks, 3)))
    axis.tick_params(labelsize=8, colors=MUTED)
    for spine in axis.spines.values():
        spine.set_color("#c8ccd1")
    if ranks <= 32:
        middles = np.arange(ranks - 1) + 0.5
        axis.set_xticks(middles, minor=True)
        axis.set_yticks(middles, minor=True)
        axis.grid(which="minor", color="#e3e6e9", linewidth=0.5)
        axis.tick_params(which="minor", length=0)


def _sorted(
    axis: Axes,
    label: str,
    data: NDArray[Any],
    empty: NDArray[Any] | None,
    spelled: Callable[[float], str],
) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    whole = data + (empty if empty is not None else 0)
    order = np.lexsort((whole, data))
    first, both = data[order].astype(float), whole[order].astype(float)
    place = np.arange(len(order))
    if len(order) <= MOST_BARS:
        axis.bar(place, both, width=0.85, color=BAR_EMPTY)
        axis.bar(place, first, width=0.85, color=BAR)
        if len(order) <= 16:
            axis.set_xticks(place, [str(rank) for rank in order])
            axis.tick_params(axis="x", length=0)
    else:
        axis.fill_between(place, both, step="mid", color=BAR_EMPTY, linewidth=0)
        axis.fill_between(place, first, step="mid", color=BAR, linewidth=0)
        axis.set_xlim(0, len(order) - 1)
    mean = float(data.mean()) if len(data) else 0.0
    axis.axhline(mean, color=INK, linewidth=0.8, linestyle="--")
    top = int(np.argmax(data)) if len(data) else 0
    axis.set_title(
        f"{label}: mean {spelled(mean)}, most {spelled(float(data.max(initial=0)))} (rank {top})",
        fontsize=9,
        color=INK,
        loc="left",
    )
    # Clocks far apart make times negative.
    highest = axis.get_ylim()[1]
    axis.set_ylim(0.0, highest if highest > 0 else 1.0)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=label in ("senders", "messages")))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: spelled(value)))
    axis.tick_params(labelsize=8, colors=MUTED)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


NAME = "maps"
MOST_ROUTINES = 4  # with pictures of their own
MOST_LINES = 1_000_000  # of a table of pairs


def write_maps(
    folder: Path, traffic: Traffic, routines: list[Traffic], placement: Placement | None
) -> list[tuple[str, str, str]]:
    """Write all maps into ``folder/maps``, in place of those of an earlier analysis.

    The folder is made under another name and put in place when it is complete.
    """
    target = folder / NAME
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InputError(
            "it is not a folder", location=str(target), remedy="move it to another place"
        )
    try:
        with atomic_folder(target) as made:
            pictures = _fill(made, traffic, routines, placement)
    except OSError as error:
        raise MachineError(
            f"it cannot be written ({error.strerror or error})",
            location=str(target),
            remedy="free disk space, or copy the measurement to a writable folder",
        ) from error
    return [(title, kind, f"{NAME}/{name}") for title, kind, name in pictures]


def _fill(
    folder: Path, traffic: Traffic, routines: list[Traffic], placement: Placement | None
) -> list[tuple[str, str, str]]:
    pictures = _one(folder, "", traffic.title, traffic)
    (folder / "routines.csv").write_text(maps.routines_csv(routines), encoding="utf-8")
    for number, one in enumerate(routines[:MOST_ROUTINES] if len(routines) > 1 else [], 1):
        pictures += _one(folder, f"routine-{number}-", findings.path(one.path), one)
    if placement is not None:
        (folder / "placement-hosts.txt").write_text(placement.host_list, encoding="utf-8")
        (folder / "placement-rankfile.txt").write_text(placement.rankfile, encoding="utf-8")
    return pictures


def _one(folder: Path, prefix: str, title: str, traffic: Traffic) -> list[tuple[str, str, str]]:
    (folder / f"{prefix}pairs.csv").write_text(maps.links_csv(_largest(traffic)), encoding="utf-8")
    text = maps.receivers_csv(traffic)
    (folder / f"{prefix}receivers.csv").write_text(text, encoding="utf-8")
    if not len(traffic.links):
        return []
    save_map(folder / f"{prefix}map.png", traffic)
    save_receivers(folder / f"{prefix}receivers.png", traffic)
    return [(title, "map", f"{prefix}map.png"), (title, "receivers", f"{prefix}receivers.png")]


def _largest(traffic: Traffic) -> Traffic:
    """The pairs that cost most where there are more than a table should hold."""
    links = traffic.links
    if len(links) <= MOST_LINES:
        return traffic
    order = np.lexsort((links["messages"], links["bytes"], links["receive_seconds"]))
    kept = links[np.sort(order[-MOST_LINES:])]
    return Traffic(traffic.title, traffic.size, kept, traffic.path, traffic.nodes)
