"""Writes what bench/xns.py has found: report.md and pictures, in the manner of the XNS paper."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from haloscope.io.figures.figure import (
    DOTS_PER_INCH,
    GRID_COLOUR,
    INK,
    MUTED,
    SERIES_COLOURS,
    style_axes,
)

MARKERS = "osD^vPX"

Values = dict[str, Any]

ORIGINAL, REVISED, NON_BLOCKING = "all-pairs", "neighbours-blocking", "neighbours"
CALLED = {
    ORIGINAL: "original (all-pairs)",
    REVISED: "revised (neighbours-blocking)",
    NON_BLOCKING: "non-blocking (neighbours)",
}
# Section 2.2: share of the pairs that have no data to exchange.
_SEED_RANKS, _SEED_SHARE = 1024, 0.96
_HOUR = 3600.0
_BESIDE = 1.2


def write_report(
    folder: Path, shares: Sequence[Values], runs: Sequence[Values], steps: Sequence[Values]
) -> None:
    """Write report.md, messages.png, rates.png and the maps of the most ranks into a folder."""
    draw_messages(folder / "messages.png", shares, runs)
    text = ["# Messages of the flow solver, as the paper on XNS\n", of_shares(shares)]
    if runs:
        text.append(of_runs(runs))
        most = max(run["ranks"] for run in runs)
        last = {run["messages"]: run for run in runs if run["ranks"] == most}
        if {ORIGINAL, REVISED} <= last.keys():
            text.append(of_diagnosis(folder, most, last))
    if steps:
        draw_rates(folder / "rates.png", steps)
        text.append(of_steps(steps))
    (folder / "report.md").write_text("\n".join(text))
    print(f"{folder / 'report.md'}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def of_shares(shares: Sequence[Values]) -> str:
    """Pairs of parts that exchange nothing, without running anything."""
    rows = [
        [
            f"{row['parts']:,}",
            f"{row['parts'] * (row['parts'] - 1):,}",
            f"{row['pairs']:,}",
            f"{100 * row['silent_share']:.1f} %",
            f"{row['pairs'] / row['parts']:.1f}",
            f"{row['most_neighbours']}",
            f"{100 * row['shared_nodes']:.1f} %",
        ]
        for row in shares
    ]
    first = shares[0]
    head = ["parts", "pairs", "with data", "empty", "neighbours, mean", "most", "nodes shared"]
    return (
        f"{first['elements']:,} tetrahedra, {first['nodes']:,} nodes, parts by METIS. The paper: "
        f"{100 * _SEED_SHARE:.0f} % at {_SEED_RANKS:,}.\n\n{table(head, rows)}"
    )


def of_runs(runs: Sequence[Values]) -> str:
    """Messages of the measured step."""
    rows = [
        [
            f"{run['ranks']}",
            CALLED[run["messages"]],
            f"{run['sent']:,}",
            f"{100 * run['empty'] / max(run['sent'], 1):.1f} %",
            f"{run['bytes'] / 1e6:.2f}",
            f"{100 * run['pairs']['silent_share']:.1f} %",
            f"{100 * run['totals']['p2p_synchronisation'] / run['totals']['time']:.1f} %",
            f"{100 * run['totals']['mpi'] / run['totals']['time']:.1f} %",
            run["digest"],
            f"{run['load']:.0f}",
        ]
        for run in runs
    ]
    head = ["ranks", "messages", "sent", "empty", "MB", "pairs without data"]
    head += ["p2p synchronisation", "MPI", "digest", "load"]
    return (
        f"A time step of four Newton iterations with {runs[0]['most_iterations']} of GMRES at most, "
        f"recorded by scope on {runs[0]['cores']} cores; shares are of the time of all ranks.\n\n"
        f"{table(head, rows)}"
    )


def of_diagnosis(folder: Path, most: int, last: Mapping[str, Values]) -> str:
    """What scope says of the original on the most ranks, what it predicts, and what became true."""
    original, revised = last[ORIGINAL], last[REVISED]
    for messages, run in last.items():
        shutil.copyfile(folder / run["map"], folder / f"map-{messages}.png")
    predicted = original["what_if"][0]
    recorded = {messages: run["totals"]["time"] / most for messages, run in last.items()}
    saved = predicted["seconds"] - predicted["predicted"]
    first = original["findings"][0]
    others = ", ".join(
        f"{CALLED[messages]} it took {seconds:.3g} s"
        for messages, seconds in recorded.items()
        if messages != ORIGINAL
    )
    return "\n".join(
        [
            f"On {most} ranks, original:\n",
            *(f"> {line}" for line in original["answer"]),
            f"\n1. {first['text']} {first['cause']} {first['remedy']}\n",
            f"A rank gets data from {original['senders'][1]:.1f} others on average, from "
            f"{original['senders'][0]} to {original['most_senders']}.\n",
            f"What if no-empty-messages: the step takes {recorded[ORIGINAL] - saved:.3g} s instead "
            f"of {recorded[ORIGINAL]:.3g}; {others}. But {'; '.join(original['notes'])}.\n",
            "Revised:\n",
            *(f"> {line}" for line in revised["answer"]),
            f"\n![original](map-{ORIGINAL}.png)\n![revised](map-{REVISED}.png)\n",
        ]
    )


def of_steps(steps: Sequence[Values]) -> str:
    """Steps by the clock."""
    names = list(steps[0]["components"])
    rows = [
        [
            f"{row['ranks']}",
            CALLED[row["messages"]] if row["ranks"] > 1 else "none",
            f"{row['timesteps_per_hour']:.0f}",
            f"{min(row['seconds']):.3g} to {max(row['seconds']):.3g}",
            *(f"{row['components'][name]:.3g}" for name in names),
            ", ".join(row["digests"]),
            f"{min(row['loads']):.0f} to {max(row['loads']):.0f}",
        ]
        for row in steps
    ]
    head = ["ranks", "messages", "timesteps/hour", "s a step", *names, "digest", "load"]
    return (
        f"Whole steps by the clock, {steps[0]['cores']} cores, medians of "
        f"{len(steps[0]['seconds'])} steps; components in s with all that is inside them, means of "
        f"the ranks.\n\n{table(head, rows)}"
    )


def draw_messages(path: Path, shares: Sequence[Values], runs: Sequence[Values]) -> None:
    """Share of empty pairs, messages a sum and time in empty ones, over ranks."""
    figure = _new_figure((11.0, 3.9))
    left, middle, right = figure.subplots(1, 3)
    parts = [row["parts"] for row in shares]
    silent = [100 * row["silent_share"] for row in shares]
    left.plot(parts, silent, color=SERIES_COLOURS[0], marker="o", ms=4, lw=1.1, label="METIS alone")
    original = [run for run in runs if run["messages"] == ORIGINAL]
    left.plot(
        [run["ranks"] for run in original],
        [100 * run["pairs"]["silent_share"] for run in original],
        color=SERIES_COLOURS[1],
        marker="s",
        ms=6,
        mfc="none",
        lw=0,
        label="measured",
    )
    left.plot(_SEED_RANKS, 100 * _SEED_SHARE, "*", color=INK, ms=8, label="XNS (2007)")
    left.set_ylabel("pairs without data, %")
    left.set_ylim(0, 102)
    middle.plot(
        parts, [n * (n - 1) for n in parts], color=SERIES_COLOURS[1], lw=1.1, label="all pairs"
    )
    middle.plot(
        parts, [row["pairs"] for row in shares], color=SERIES_COLOURS[0], lw=1.1, label="with data"
    )
    middle.set_yscale("log")
    middle.set_ylabel("messages a sum")
    for number, messages in enumerate((REVISED, ORIGINAL)):
        chosen = [run for run in runs if run["messages"] == messages]
        right.plot(
            [run["ranks"] for run in chosen],
            [100 * run["totals"]["p2p_synchronisation"] / run["totals"]["time"] for run in chosen],
            color=SERIES_COLOURS[number],
            marker=MARKERS[number],
            ms=4.5,
            lw=1.1,
            label=CALLED[messages],
        )
    right.set_ylabel("time in empty messages, %")
    right.set_ylim(bottom=0)
    for axes in (left, middle, right):
        _style(axes, parts if axes is not right else sorted({run["ranks"] for run in runs}))
    most = max((run["ranks"] for run in runs), default=0)
    if runs and runs[0]["cores"] < most:
        right.axvspan(runs[0]["cores"] * _BESIDE, most, color=GRID_COLOUR, alpha=0.4, lw=0)
        right.set_title("grey: more ranks than cores", fontsize=8, color=MUTED, loc="left")
    figure.savefig(path)


def draw_rates(path: Path, steps: Sequence[Values]) -> None:
    """The paper's Figure 3: timesteps an hour, and seconds of a step by component."""
    figure = _new_figure((9.4, 4.2))
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    counts = sorted({row["ranks"] for row in steps})
    for number, messages in enumerate(CALLED):
        line = _line(steps, messages)
        rates = [row["timesteps_per_hour"] for row in line]
        down = [rate - _HOUR / max(row["seconds"]) for rate, row in zip(rates, line, strict=True)]
        up = [_HOUR / min(row["seconds"]) - rate for rate, row in zip(rates, line, strict=True)]
        left.errorbar(
            [row["ranks"] for row in line],
            rates,
            yerr=[down, up],
            color=SERIES_COLOURS[number],
            marker=MARKERS[number],
            ms=4.5,
            lw=1.1,
            capsize=2.5,
            label=CALLED[messages],
        )
    left.set_ylabel("timesteps/hour")
    left.set_ylim(bottom=0)
    for messages, style in ((ORIGINAL, "-"), (REVISED, "--")):
        line = _line(steps, messages)
        for number, name in enumerate(line[0]["components"]):
            met = [row for row in line if row["components"][name] > 0]
            right.plot(
                [row["ranks"] for row in met],
                [row["components"][name] for row in met],
                color=SERIES_COLOURS[number % len(SERIES_COLOURS)],
                linestyle=style,
                marker=MARKERS[number],
                ms=4,
                lw=1.1,
                label=name if style == "-" else None,
            )
    right.set_yscale("log")
    right.set_ylabel("s a step (solid: original, dashed: revised)")
    for axes in (left, right):
        _style(axes, counts)
    right.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    left.legend(fontsize=7.5, frameon=False, loc="lower left")
    figure.savefig(path)


def _line(steps: Sequence[Values], messages: str) -> list[Values]:
    """Rows of a kind of messages; one rank has none."""
    return [row for row in steps if row["messages"] == messages or row["ranks"] == 1]


def _style(axes: Any, counts: Sequence[int]) -> None:
    from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set_xlabel("ranks")
    axes.grid(color=GRID_COLOUR, lw=0.5)
    axes.legend(fontsize=7.5, frameon=False)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    style_axes(axes)


def _new_figure(size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=size, dpi=DOTS_PER_INCH, facecolor="white", layout="constrained")
