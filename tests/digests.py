"""Compares the working tree with a commit, bit by bit: fields, numbers, analyses, GPU code.

Nothing is stored: both versions run on this machine, one beside the other.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import itertools
import json
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from digest_pump import write_pump
from digest_versions import ROOT, Failure, Processes, Session, Version, git, two_versions

PARTS = ("cases", "verify", "replay", "kernels")

# Steps and settings that make a case small; other cases take STEPS steps as they are.
STEPS = 20
_EVERY_20 = "run.diagnostics_interval=20"
_MAXWELL = ("maxwell.order=3", "run.diagnostics_interval=100")
REDUCTIONS: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "blood-bifurcation": (
        50,
        ("blood.spacing_um=1.0", "blood.bifurcation.parent_length_um=20.0", _EVERY_20),
    ),
    "blood-red-cell": (100, ("blood.spacing_um=1.2", _EVERY_20)),
    "blood-tree": (40, ("blood.spacing_um=1.0", "blood.tree.length_um=20.0", _EVERY_20)),
    "blood-tube": (
        100,
        (
            "blood.spacing_um=1.0",
            "blood.tube.length_um=20.0",
            "blood.profile.start=10",
            "blood.profile.interval=10",
            _EVERY_20,
        ),
    ),
    "cavity-2d": (200, ("cavity.nodes=33", _EVERY_20)),
    "cavity-demo": (100, ("cavity.nodes=25", _EVERY_20)),
    "cavity-probes": (400, ("cavity.nodes=17", "output.average.start=100", _EVERY_20)),
    "flow-cylinder": (
        4,
        ("flow.cylinder_channel.resolution=4", "flow.cylinder_channel.layers=3"),
    ),
    "flow-lid": (6, ("flow.box.cells=[6, 6, 6]",)),
    "flow-pump": (3, ()),
    "lid-driven": (100, ("cavity.nodes=25", _EVERY_20)),
    "maxwell-antenna": (None, (*_MAXWELL, "maxwell.end_time=4e-9")),
    "maxwell-cavity": (None, _MAXWELL),
    "maxwell-resonator": (None, ("maxwell.end_time=16e-9", *_MAXWELL)),
    "maxwell-sphere-scattering": (None, (*_MAXWELL, "maxwell.end_time=6e-9")),
}
# The whole state is in a checkpoint; loading what draws a picture takes longer than most runs.
FOR_ALL = ("checkpoint.at_end=true", "output.picture=false")
# Numbers of a summary that differ from run to run; "energy" is what the run has used.
SUMMARY_IGNORED = (
    *("bandwidth.*", "energy", "energy.*", "files.*", "provenance.*"),
    *("gflop_s", "rate.*", "seconds", "ssspnt"),
    *("flow.components.*.seconds", "flow.components.*.share", "flow.*_per_hour"),
)
ANALYSIS_IGNORED = ("files.*",)
# Texts that name something; others are prose, which may be worded anew.
TEXTS_COMPARED = {"call_path", "metric", "mode"}
WHAT_IF = ("no-empty-messages", "ideal-network", "network=1us,10GB/s")

# Tests of each version that compile kernels for GPUs; a later move adds its place.
KERNEL_TESTS = ("tests/unit/*compile*.py",)
GPU = "sm_90"

# Time limits in seconds.
CASE_SECONDS, VERIFY_SECONDS, REPLAY_SECONDS, KERNEL_SECONDS = 600, 3600, 3600, 3600

DIGITS = 12  # of a digest, as shown
MOST_LINES = 40  # of differences in one thing
LONG_LIST = 8  # entries from which a list of numbers is compared by its digest
ABSENT = "absent"


def digest(value: Any) -> str:
    """SHA-256 of a value's JSON text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def quantities(value: Any, ignored: Sequence[str] = (), path: str = "") -> dict[str, str]:
    """Numbers in a JSON value by their path, bit by bit; long lists of them as digests."""
    name = path.rpartition(".")[2]
    if any(fnmatch.fnmatchcase(path, pattern) for pattern in ignored):
        return {}
    if isinstance(value, str) or (value and _is_list_of(value, str)):
        return {path: str(value)} if name in TEXTS_COMPARED else {}
    if _is_list_of(value, (int, float, type(None))) and len(value) > LONG_LIST:
        return {path: digest(value)}
    if not isinstance(value, (dict, list)):
        return {path: repr(value)}
    rows = value.items() if isinstance(value, dict) else enumerate(value)
    numbers: dict[str, str] = {}
    for key, inner in rows:
        numbers |= quantities(inner, ignored, f"{path}.{key}" if path else str(key))
    return numbers


def _is_list_of(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, kind) for entry in value)


@dataclass
class Tally:
    """Counts what is equal and what differs, and prints the latter."""

    equal: int = 0
    differing: int = 0

    def compare(self, title: str, old: Any, new: Any, more_equal: int = 0) -> None:
        """Compare two dictionaries of digests by quantity; a `Failure` equals nothing."""
        begun = self.differing
        if isinstance(old, Failure) or isinstance(new, Failure):
            rows = [
                ("outcome", *(str(v) if isinstance(v, Failure) else "done" for v in (old, new)))
            ]
        else:
            rows = [
                (name, old.get(name, ABSENT), new.get(name, ABSENT))
                for name in sorted({*old, *new})
                if old.get(name, ABSENT) != new.get(name, ABSENT)
            ]
            equal = len({*old, *new}) - len(rows) + more_equal
            self.equal += equal
        self.differing += len(rows)
        for name, *texts in rows[:MOST_LINES]:
            before, after = (t[:DIGITS] if re.fullmatch("[0-9a-f]{64}", t) else t for t in texts)
            say(f"differs: {title}, {name}: {before} -> {after}")
        if len(rows) > MOST_LINES:
            say(f"differs: {title}: {len(rows) - MOST_LINES} more")
        if self.differing == begun:
            say(f"{title}: {equal} equal")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def case_files(scratch: Path) -> dict[str, Path]:
    """The shipped cases by name; the pump gets a mesh that needs no Gmsh."""
    files = {path.stem: path for path in sorted((ROOT / "cases").glob("*.toml"))}
    pump = files.get("flow-pump")
    if pump is not None:
        mesh = scratch / "pump.msh"
        write_pump(mesh)
        table = f"[flow.mesh]\nfile = {json.dumps(str(mesh))}\n"
        text, count = re.subn(r"\[flow\.pump\].*?(?=\n\[)", table, pump.read_text(), flags=re.S)
        if count != 1:
            raise Failure(f"{pump}: no table [flow.pump] to put a small mesh in the place of")
        files["flow-pump"] = scratch / "flow-pump.toml"
        files["flow-pump"].write_text(text)
    return files


def case_quantities(
    session: Session, version: Version, path: Path, ranks: int, device: str
) -> dict[str, str]:
    """Digests of a case's fields and output files, and the numbers of its summary."""
    steps, settings = REDUCTIONS.get(path.stem, (STEPS, ()))
    request = {
        "case": str(path),
        "settings": [*settings, *FOR_ALL, *version.settings],
        "steps": steps,
        "ranks": ranks,
        "device": device,
    }
    result = session.drive(version, request, CASE_SECONDS, ranks=ranks)
    rows = {f"field {name}": value for name, value in result["fields"].items()}
    rows |= {f"file {name}": value for name, value in result["files"].items()}
    numbers = quantities(result["summary"], SUMMARY_IGNORED)
    return rows | {f"summary {name}": value for name, value in numbers.items()}


def compare_cases(
    session: Session, options: argparse.Namespace, tally: Tally, files: Mapping[str, Path]
) -> None:
    """Run each case on each number of ranks."""
    names = options.case or sorted(files)
    for name, ranks in itertools.product(names, options.ranks):

        def answer(version: Version, path: Path = files[name], ranks: int = ranks) -> Any:
            return case_quantities(session, version, path, ranks, options.device)

        title = f"cases {name}, {ranks} rank{'s' if ranks > 1 else ''}"
        tally.compare(title, *session.both(answer, together=ranks == 1))


def _json_of(outcome: dict[str, Any]) -> Any:
    """The JSON object that a command has printed."""
    try:
        return json.loads(outcome["output"])
    except json.JSONDecodeError:
        reason = outcome["error"] or outcome["output"][-200:] or "no output"
        raise Failure(f"ended with {outcome['code']}: {reason}") from None


def compare_verify(session: Session, options: argparse.Namespace, tally: Tally) -> None:
    """Values of the quick checks of `haloscope verify`."""
    command = ["verify", "--json", "--device", options.device]

    def answer(version: Version) -> dict[str, str]:
        (outcome,) = session.drive(version, {"commands": [command]}, VERIFY_SECONDS)
        return {name: repr(row["value"]) for name, row in _json_of(outcome)["checks"].items()}

    tally.compare("verify", *session.both(answer))


def compare_replay(session: Session, tally: Tally, scratch: Path) -> None:
    """What `haloscope analyze` finds in small measurements, which the working tree writes."""
    folder, new = scratch / "traces", session.versions[1]
    writer = [sys.executable, str(Path(__file__).with_name("digest_traces.py")), str(folder)]
    session.processes.run(writer, new.environment(), scratch, REPLAY_SECONDS)
    names = sorted(path.name for path in folder.iterdir())

    def answer(version: Version) -> list[dict[str, Any]]:
        commands = []
        for name in names:
            out = version.scratch / "analyses" / name
            command = ["analyze", str(folder / name), "--json", "--threads", "1", "--out", str(out)]
            changes = WHAT_IF if name.startswith("synthetic") else ()
            commands.append([*command, *(f"--what-if={change}" for change in changes)])
        return session.drive(version, {"commands": commands}, REPLAY_SECONDS)

    answers = session.both(answer)
    failures = [answer for answer in answers if isinstance(answer, Failure)]
    if failures:
        tally.compare("replay", *answers)
        return
    for name, *outcomes in zip(names, *answers, strict=True):
        rows: list[Any] = []
        for outcome in outcomes:
            try:
                rows.append(quantities(_json_of(outcome), ANALYSIS_IGNORED))
            except Failure as failure:
                rows.append(failure)
        tally.compare(f"replay {name}", *rows)


def kernel_hashes(session: Session, version: Version, files: Sequence[Path]) -> Counter[Any]:
    """Counts of all GPU code that a version's tests and cases compile, by its hashes and name."""
    records, cache = version.scratch / "kernels", version.scratch / "cache"
    records.mkdir()
    cache.mkdir(mode=0o700)
    variables = {
        "HALOSCOPE_CACHE": str(cache),
        "HALOSCOPE_DIGEST_KERNELS": str(records),
        "HALOSCOPE_DIGEST_TREE": str(version.tree),
    }
    tests = [str(path) for glob in KERNEL_TESTS for path in sorted(version.tree.glob(glob))]
    if not tests:
        raise Failure(f"no tests compile kernels: {', '.join(KERNEL_TESTS)} names no file")
    pytest = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    pytest += ["-p", "digest_kernels", *tests]
    session.processes.run(pytest, version.environment(**variables), version.tree, KERNEL_SECONDS)
    build = ["--arch", GPU, "--ranks", "2", "--json"]
    commands = [["build", str(path), *build] for path in files]
    request = {"commands": commands, "variables": variables, "kernels": True}
    outcomes = session.drive(version, request, KERNEL_SECONDS)
    rows: Counter[Any] = Counter()
    for path, outcome in zip(files, outcomes, strict=True):
        if outcome["code"] != 0:
            say(f"note: {version.name}: haloscope build {path.name} failed: {outcome['error']}")
        code = f"code {outcome['code']}"
        rows[(code, code), f"build of {path.name}"] += 1
    for record in records.iterdir():
        for line in record.read_text().splitlines():
            program = json.loads(line)
            for name, hashes in program["kernels"].items():
                rows[tuple(hashes), f"{program['file']} {name}"] += 1
    if len(rows) == len(files):
        raise Failure("no code for GPUs was compiled; pip install -e '.[nvrtc]' brings NVRTC")
    return rows


def without_matches(rows: Counter[Any], others: Counter[Any], index: int) -> Counter[Any]:
    """GPU code whose hash of that index the other version does not have, or not as often."""
    spare: Counter[str] = Counter()
    for (hashes, _), count in others.items():
        spare[hashes[index]] += count
    left: Counter[Any] = Counter()
    # Those that have the same name in the other version match first.
    for key, count in sorted(rows.items(), key=lambda row: row[0] not in others):
        matched = min(count, spare[key[0][index]])
        spare[key[0][index]] -= matched
        left[key] = count - matched
    return +left


def compare_kernels(session: Session, tally: Tally, files: Mapping[str, Path]) -> None:
    """Instructions of all kernels for GPUs, whatever their names and files are.

    First all instructions must match; of what is left then, those that do not touch local memory.
    """
    answers = session.both(lambda version: kernel_hashes(session, version, list(files.values())))
    if any(isinstance(answer, Failure) for answer in answers):
        tally.compare("kernels", *answers)
        return
    old, new = answers
    unlike = without_matches(old, new, 0), without_matches(new, old, 0)
    rest = without_matches(*unlike, 1), without_matches(*unlike[::-1], 1)
    for name in sorted({name for _, name in unlike[0] - rest[0]}):
        say(f"note: kernels, {name}: equal but for accesses of local memory, which NVRTC varies")
    tables = []
    for rows in rest:
        variants: dict[str, list[str]] = {}
        for (hashes, name), count in rows.items():
            variants.setdefault(name, []).extend([hashes[0]] * count)
        tables.append(
            {name: f"{len(v)} of {digest(sorted(v))[:DIGITS]}" for name, v in variants.items()}
        )
    tally.compare("kernels", *tables, more_equal=(old - rest[0]).total())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the earlier version")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="ranks of cases")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the cases")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts; with cuda only cases")
    parser.add_argument("--case", nargs="+", metavar="NAME", help="only these cases")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting for the cases of the working tree alone: differences must be reported",
    )
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    parser.add_argument("--mpiexec", default=launcher, help="launcher of mpi4py's MPI")
    options = parser.parse_args(arguments)
    known = sorted(path.stem for path in (ROOT / "cases").glob("*.toml"))
    unknown = sorted({*(options.case or ())} - {*known})
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there is {', '.join(known)}")
    if max(options.ranks) > 1 and options.mpiexec is None:
        parser.error("several ranks need mpiexec, and there is none; give --mpiexec or --ranks 1")
    options.only = options.only or (["cases"] if options.device == "cuda" else list(PARTS))
    return options


def _compare_all(session: Session, options: argparse.Namespace, tally: Tally) -> None:
    scratch = session.versions[0].scratch.parent
    files = case_files(scratch)
    parts: dict[str, Callable[[], None]] = {
        "cases": lambda: compare_cases(session, options, tally, files),
        "verify": lambda: compare_verify(session, options, tally),
        "replay": lambda: compare_replay(session, tally, scratch),
        "kernels": lambda: compare_kernels(session, tally, files),
    }
    for name in PARTS:
        if name in options.only:
            begun = time.monotonic()
            try:
                parts[name]()
            except Failure as failure:
                tally.compare(name, failure, failure)
            say(f"{name}: done in {time.monotonic() - begun:.0f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 0 where all is equal, 1 where something differs, 2 for a commit that is none."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        commit = git("rev-parse", "--verify", "--quiet", f"{options.against}^{{commit}}")
    except Failure:
        print(f"{options.against} is no commit of the repository of {ROOT}", file=sys.stderr)
        return 2
    tally = Tally()
    try:
        with two_versions(commit, options.set) as versions:
            _compare_all(Session(versions, options.mpiexec, Processes()), options, tally)
    except KeyboardInterrupt:
        print("stopped; the checkout is removed", file=sys.stderr)
        return 130
    say(f"{tally.equal} digests equal, {tally.differing} differ")
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main())
