"""Checks that ranks which cannot be measured hold nobody up and are named in the measurement."""

from __future__ import annotations

from pathlib import Path

from measuring import haloscope, run

from haloscope.scope.analysis.analyze import analyze, as_json
from haloscope.scope.record.build import _identity, known_tracers
from haloscope.scope.record.carriers import lines
from haloscope.scope.trace.measurement import open_measurement


def _tracer_of_another_version(folder):
    """Write a tracer that says that it is of another version; the text that names it to ranks."""
    copies = []
    for number, line in enumerate(known_tracers().splitlines()):
        *about, tracer = line.split("\t")
        with open(tracer, "rb") as file:
            content = file.read()
        assert _identity().encode() in content
        other = folder / f"other-{number}.so"
        other.write_bytes(content.replace(_identity().encode(), _identity()[::-1].encode()))
        copies.append("\t".join([*about, str(other)]))
    return "\n".join(copies)


def test_ranks_without_a_usable_recorder_hold_nobody_up_and_are_named(program, tmp_path):
    mpi, path = program("mpi4py", "plain.c")
    if not any(
        str(Path(word).resolve()) in known_tracers() for word in mpi.link if "libmpi" in word
    ):
        assert run([*haloscope("measure", "--out", tmp_path / "first", "--"), path]).returncode == 0
    other = _tracer_of_another_version(tmp_path)
    command = [
        *(*mpi.start, "-n", "2", path, "a"),
        *(":", "-n", "1", "env", "-u", "LD_PRELOAD", path, "b"),
        *(":", "-n", "1", "env", f"HALOSCOPE_TRACERS={other}", path, "c"),
        *(":", "-n", "1", "env", "HALOSCOPE_MEASURE=/proc/nowhere", path, "d"),
    ]
    folder = tmp_path / "m"
    done = run([*haloscope("measure", "--trace", "--out", folder, "--"), *command], 60)
    assert done.returncode == 0, done
    assert done.stdout.count("of 5: ") == 5
    measured = open_measurement(folder)
    assert (sorted(measured.ranks), measured.missing) == ([0, 1], [2, 3, 4])
    named = [
        "2 ranks (2, 4) of 5 are missing: started without the recorder, or unable to "
        "write into the folder",
        "rank 3 of 5 is missing: another version of the recorder than on the first rank",
    ]
    assert sorted(measured.warnings) == named
    assert all(f"haloscope: {line}" in done.stderr for line in named)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    analysis = as_json(analyze(folder))
    assert (analysis["partial"], analysis["missing_ranks"]) == (True, [2, 3, 4])
    assert set(named) <= set(analysis["warnings"])


def test_a_rank_that_ends_before_mpi_does_is_named(program, tmp_path):
    mpi, path = program("mpi4py", "early.c")
    command = [*mpi.start, "-n", "2", path]
    done = run([*haloscope("measure", "--trace", "--out", tmp_path / "m", "--"), *command], 60)
    assert done.returncode == run(command, 60).returncode
    warnings = open_measurement(tmp_path / "m").warnings
    assert "rank 1 ended before it called MPI_Finalize" in warnings


def test_missing_ranks_are_named_in_ranges_and_by_reason():
    assert lines([], 4, {}) == []
    assert lines([1], 2, {}) == ["rank 1 of 2 is missing"]
    assert lines([1, 3, 4, 5], 8, {}) == ["4 ranks (1, 3-5) of 8 are missing"]
    many = lines(list(range(0, 100, 2)), 100, {})
    assert many[0].startswith("50 ranks (0, 2, 4,")
    assert many[0].endswith("...) of 100 are missing")
    assert len(lines([1, 2], 4, {1: "absent", 2: "version"})) == 2
