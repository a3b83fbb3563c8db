"""Measures MPI programs of other authors, and checks the results of `measure` and `analyze`.

Each program of program_catalogue.py on this machine is run without measurement, with a profile and with
a trace, in turns. Checks: it prints the same except for times and dates; all sent messages were received,
pair by pair, in number and bytes; exclusive times of all call paths of a rank add up to the rank's time;
there is no warning; the exit code is the program's. Prints a Markdown table: medians of the ratios of
times with and without measurement, the share of time in which a rank was ready but had no core, and the
first finding. Exit code 1 if a check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "mpi"))

from measuring import definitions_of, flavour, haloscope, run, told_by
from program_catalogue import Program, catalogue

from haloscope.scope.analysis.analyze import result_of
from haloscope.scope.analysis.result import Result
from haloscope.scope.trace.measurement import Measurement, open_measurement

_LONGEST = 300.0  # seconds that a run may take
_OFF_BY = 0.01  # of a rank's time: what the sum over its call paths may differ by
_USUAL = re.compile(r"haloscope: (next: |(trace|profile) of \d+ rank)")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
_SURROUNDINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Open MPI binds the ranks of every program to the same first cores, others' there included.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}

Pairs = dict[tuple[int, int], tuple[int, int]]


@dataclass
class Run:
    """One run of a program: how long it took, what it said."""

    seconds: float
    own_seconds: float
    code: int
    lines: list[tuple[str, bool]]  # text, and whether numbers were masked in it
    stderr: str


@dataclass
class Findings:
    """What was found of one program; `wrong` says which checks failed."""

    ranks: int
    runs: dict[str, list[Run]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    events: int = 0
    messages: int = 0
    sent_bytes: int = 0
    off_by: dict[str, float] = field(default_factory=dict)
    without_core: float = 0.0
    matched: bool = False  # what was sent was received, by all accounts
    compared: tuple[int, int] = (0, 0)  # lines that had to be equal, all lines
    failing: str = "-"
    first: str = ""


def text_of(program: Program, output: str) -> list[tuple[str, bool]]:
    """Lines that are compared; where they hold times their numbers become ``#``."""
    begin, end = program.part
    at = output.find(begin)
    upto = output.find(end, at) if end else len(output)
    lines = output[max(at, 0) : upto if upto >= 0 else len(output)].splitlines()
    timed = re.compile(program.timed)
    return [
        (re.sub(r"\s+", " ", _NUMBER.sub("#", line)), True) if timed.search(line) else (line, False)
        for line in lines
    ]


def differing(plain: list[Run], measured: list[Run]) -> tuple[list[str], int]:
    """What changes when measured only, and how many lines never change without.

    Lines that hold times, and lines that come and go from one run without measurement to the next,
    may do so when measured: but for numbers, they must be lines that a run without measurement has
    printed.
    """
    counts = [Counter(program_run.lines) for program_run in plain]
    steady = {
        line for line in counts[0] if not line[1] and len({count[line] for count in counts}) == 1
    }
    known = {_NUMBER.sub("#", line) for count in counts for line, _ in count}
    changed = []
    for program_run in measured:
        count = Counter(program_run.lines)
        changed += [f"{line[0]!r} is missing" for line in steady if count[line] < counts[0][line]]
        changed += [
            f"{line[0]!r} is new"
            for line in count
            if (line in steady and count[line] > counts[0][line])
            or (line not in steady and _NUMBER.sub("#", line[0]) not in known)
        ]
    return changed, sum(counts[0][line] for line in steady)


def once(program: Program, ranks: int, prepared: Path, out: Path | None, mode: str) -> Run:
    """Run a program in a copy of its folder, measured into `out` unless that is None."""
    command = [*flavour(program.mpi).start, "-n", str(ranks), *program.command]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        shutil.copytree(prepared, folder)
        measuring = [] if out is None else haloscope("measure", f"--{mode}", "--out", out, "--")
        begun = time.perf_counter()
        done = run([*measuring, *command], _LONGEST, environment=_SURROUNDINGS, cwd=folder)
        seconds = time.perf_counter() - begun
        output = done.stdout
        if program.output and (folder / program.output).is_file():
            output = (folder / program.output).read_text(errors="replace")
    if out is not None and (out / "measurement.json").is_file():
        seconds = json.loads((out / "measurement.json").read_text())["seconds"]
    own = re.search(program.seconds, output, re.MULTILINE) if program.seconds else None
    return Run(
        seconds,
        float(own[1]) if own else float("nan"),
        done.returncode,
        text_of(program, output),
        done.stderr,
    )


def seconds_of_rank(measured: Measurement, rank: int) -> float:
    """From the load of the program to its end, by the first and last lines of its definitions."""
    lines = definitions_of(measured.folder, rank)
    said = {key: line for line in lines for key in ("epoch", "rate", "end") if key in line}
    ticks = int(str(said["end"]["at"])) - int(str(said["epoch"]["epoch"]))
    return ticks / float(str(said["rate"]["rate"]))


def without_core(measured: Measurement) -> float:
    """The largest part of a rank's time for which it was ready to run but had no core."""
    shares = [0.0]
    for rank, said in measured.ranks.items():
        for note in said.notes:
            shares.append(note.get("without_core", 0.0) / seconds_of_rank(measured, rank))
    return max(shares)


def off_by(measured: Measurement, result: Result) -> float:
    """The largest part by which a rank's exclusive times do not add up to its time."""
    most = 0.0
    values = result.value("time")
    for index, place in enumerate(result.locations):
        if place.number == 0:
            whole = seconds_of_rank(measured, place.rank)
            most = max(most, abs(float(values[:, index].sum()) - whole) / whole)
    return most


def summed(counted: Mapping[tuple[int, int, int, int, int], int]) -> Pairs:
    """Messages and bytes by (sender, receiver)."""
    messages: Counter[tuple[int, int]] = Counter()
    size: Counter[tuple[int, int]] = Counter()
    for (sender, receiver, _, _, length), count in counted.items():
        messages[sender, receiver] += count
        size[sender, receiver] += count * length
    return {pair: (messages[pair], size[pair]) for pair in messages}


def check_trace(measured: Measurement, result: Result, findings: Findings) -> Pairs:
    """Sends equal receives, by an account of its own of the events, and by the analysis."""
    try:
        counts = told_by(measured)
    except (AssertionError, KeyError) as error:
        findings.wrong.append(f"events do not fit together: {error!r}")
        return {}
    sent, received = summed(counts.sent), summed(counts.received)
    if counts.sent != counts.received:
        odd = sorted((counts.sent - counts.received).items())[:3]
        findings.wrong.append(f"sent but not received: {odd}, or the other way round")
    open_sends = sum(sum(left.values()) for left in counts.open_sends.values())
    open_receives = sum(counts.open_receives.values())
    if open_sends or open_receives:
        findings.notes.append(
            f"{open_sends} sends and {open_receives} receives were not waited for (MPI_Request_free, or open at the end)"
        )
    analysed: Pairs = {}
    for row in result.pairs:
        pair = int(row["sender"]), int(row["receiver"])
        count, size = analysed.get(pair, (0, 0))
        analysed[pair] = count + int(row["messages"]), size + int(row["bytes"])
    if analysed != sent:
        findings.wrong.append(f"the analysis counts other messages than the events: {analysed}")
    findings.events = sum(sum(kinds.values()) for kinds in counts.kinds.values())
    findings.messages = sum(count for count, _ in received.values())
    findings.sent_bytes = sum(size for _, size in received.values())
    return sent


def check_profile(result: Result, traced: Pairs, findings: Findings) -> None:
    """What was sent to each rank was received by it, and is what the trace says."""
    pairs: Pairs = {}
    for row in result.pairs:
        pair = int(row["sender"]), int(row["receiver"])
        count, size = pairs.get(pair, (0, 0))
        pairs[pair] = count + int(row["messages"]), size + int(row["bytes"])
    for part, metric in enumerate(("messages_received", "bytes_received")):
        for rank, value in enumerate(result.by_rank(metric)):
            sent = sum(counts[part] for (_, to), counts in pairs.items() if to == rank)
            if sent != int(value):
                findings.wrong.append(
                    f"profile: {metric} of rank {rank} is {value:.0f}, sent {sent}"
                )
    if pairs != traced:
        ours, theirs = (sum(count for count, _ in p.values()) for p in (pairs, traced))
        findings.notes.append(f"the profiled run sent {ours:,} messages, the traced one {theirs:,}")


def check_failing(program: Program, ranks: int, findings: Findings, scratch: Path) -> None:
    """A program that fails ends with the same exit code when it is measured."""
    if not program.failing:
        return
    command = [*flavour(program.mpi).start, "-n", str(ranks), *program.failing]
    inside = haloscope("measure", "--trace", "--out", scratch / "failed", "--")
    codes = [
        run([*words, *command], _LONGEST, environment=_SURROUNDINGS, cwd=scratch).returncode
        for words in ([], inside)
    ]
    findings.failing = f"{codes[0]}"
    if codes[0] != codes[1] or codes[0] == 0:
        findings.wrong.append(f"exit codes of a failing run: {codes[0]} alone, {codes[1]} measured")


def check(program: Program, ranks: int, rounds: int, keep: Path) -> Findings:
    """Run one program in all ways and check it; measurements stay in `keep`."""
    ranks = min(ranks, program.most_ranks)
    findings = Findings(ranks, {"plain": [], "profile": [], "trace": []})
    with tempfile.TemporaryDirectory() as scratch:
        prepared = Path(scratch) / "prepared"
        prepared.mkdir()
        program.prepare(prepared, ranks)
        once(program, ranks, prepared, Path(scratch) / "warm", "trace")
        for number in range(rounds):
            for mode, runs in findings.runs.items():
                last = number == rounds - 1
                out = keep / mode if last else Path(scratch) / f"{mode}-{number}"
                runs.append(once(program, ranks, prepared, None if mode == "plain" else out, mode))
        check_failing(program, ranks, findings, Path(scratch))
    measured = [*findings.runs["profile"], *findings.runs["trace"]]
    codes = {program_run.code for program_run in (*findings.runs["plain"], *measured)}
    if codes != {0}:
        findings.wrong.append(f"exit codes {sorted(codes)}: {measured[-1].stderr[-300:]}")
    changed, equal = differing(findings.runs["plain"], measured)
    if changed:
        findings.wrong.append(f"{len(changed)} lines change: {changed[0]}")
    findings.compared = equal, len(findings.runs["plain"][0].lines)
    said = [
        line
        for program_run in measured
        for line in program_run.stderr.splitlines()
        if "haloscope: " in line
    ]
    findings.wrong += sorted({line for line in said if not _USUAL.match(line)})
    traced: Pairs = {}
    for mode in ("trace", "profile"):
        opened = open_measurement(keep / mode)
        result = result_of(opened)
        findings.wrong += [f"{mode}: {text}" for text in result.about.get("warnings", [])]
        findings.off_by[mode] = off_by(opened, result)
        if not findings.off_by[mode] <= _OFF_BY:
            findings.wrong.append(
                f"{mode}: times add up to {findings.off_by[mode]:.1%} beside the run's"
            )
        before = len(findings.wrong)
        if mode == "trace":
            findings.without_core = without_core(opened)
            traced = check_trace(opened, result, findings)
        else:
            check_profile(result, traced, findings)
        findings.matched = len(findings.wrong) == before and (findings.matched or mode == "trace")
        done = run(haloscope("analyze", keep / mode, "--json"), _LONGEST)
        if done.returncode != 0:
            findings.wrong.append(
                f"analyze {mode} ended with {done.returncode}: {done.stderr[-300:]}"
            )
        elif mode == "trace":
            diagnosis = json.loads(done.stdout)["findings"]
            findings.first = (
                f"{diagnosis[0]['title']} ({diagnosis[0]['share']:.0%})" if diagnosis else "none"
            )
    return findings


def dilation(findings: Findings, mode: str, attribute: str) -> str:
    """Median over the rounds of the time with measurement over that without, less one."""
    ratios = [
        getattr(with_it, attribute) / getattr(without, attribute) - 1
        for with_it, without in zip(findings.runs[mode], findings.runs["plain"], strict=True)
    ]
    return f"{statistics.median(ratios):+.1%}"


def row(program: Program, findings: Findings) -> str:
    """A line of the table."""
    alone = statistics.median(program_run.seconds for program_run in findings.runs["plain"])
    ways = ["seconds", *(["own_seconds"] if program.seconds else [])]
    dilated = [
        " / ".join(dilation(findings, mode, way) for way in ways) for mode in ("profile", "trace")
    ]
    equal, lines = findings.compared
    cells = [
        program.name,
        f"{findings.ranks}",
        f"{alone:.2f}",
        f"{findings.events:,}",
        f"{findings.messages:,}, {findings.sent_bytes / 1e6:,.1f} MB",
        "yes" if findings.matched else "no",
        f"{max(findings.off_by.values(), default=0):.0e}",
        f"{equal:,} of {lines:,}",
        findings.failing,
        *dilated,
        f"{findings.without_core:.0%}",
        findings.first,
    ]
    return "| " + " | ".join(cells) + " |"


_HEAD = (
    "program",
    "ranks",
    "s alone",
    "events",
    "messages received",
    "sends = receives",
    "times off the rank's time by",
    "lines that must be and are equal",
    "exit code of a failing run, passed on",
    "dilation, profile (all / main loop)",
    "trace",
    "without a core",
    "first finding",
)


def main() -> int:
    """Print a table, and what is wrong below it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, in turns")
    parser.add_argument("--only", default="", help="programs whose names hold this")
    parser.add_argument("--keep", type=Path, help="an empty folder for the last measurements")
    parser.add_argument("--demos", type=Path, help="folder demo of mpi4py's source distribution")
    options = parser.parse_args()
    chosen = [p for p in catalogue(options.demos) if options.only.lower() in p.name.lower()]
    if not chosen or options.ranks < 2 or options.rounds < 1:
        names = ", ".join(program.name for program in catalogue(options.demos))
        parser.error(f"give 2 ranks or more, 1 round or more and, with --only, one of: {names}")
    missing = [f"{p.name} ({p.source})" for p in chosen if not p.present]
    if missing:
        print(f"not found here, install: {'; '.join(missing)}\n", file=sys.stderr)
    print("| " + " | ".join(_HEAD) + " |\n|" + "---|" * len(_HEAD), flush=True)
    wrong, notes = [], []
    with contextlib.ExitStack() as stack:
        keep = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for program in chosen:
            if program.present:
                folder = keep.absolute() / re.sub(r"\W+", "-", program.name)
                folder.mkdir(parents=True)
                findings = check(program, options.ranks, options.rounds, folder)
                print(row(program, findings), flush=True)
                wrong += [f"{program.name}: {text}" for text in findings.wrong]
                notes += [f"{program.name}: {text}" for text in findings.notes]
    print(f"\nload of the machine at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("\n".join([*notes, *(f"WRONG {text}" for text in wrong)]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
