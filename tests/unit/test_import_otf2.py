"""OTF2 of other tools is read with its roles, ranks and communicators; what is none is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from meant_events import canonical, seconds, word
from refusals import refused

from haloscope.scope.export.otf2_import import import_otf2
from haloscope.scope.trace.measurement import open_measurement
from haloscope.scope.trace.trace import NOBODY, Operation

otf2 = pytest.importorskip(
    "otf2", reason="the otf2 package is not installed (there are wheels for Python 3.11 only)"
)


def write_foreign(folder: Path, end: bool = True) -> Path:
    """A trace as other tools write it: no region of the process, other roles and requests."""
    with otf2.writer.open(str(folder), "foreign", timer_resolution=10**6) as trace:
        made = trace.definitions
        node = made.system_tree_node("node 1", class_name="node")
        places = [
            made.location(
                "Master thread", group=made.location_group(f"P {rank}", system_tree_parent=node)
            )
            for rank in range(2)
        ]
        made.groups.create(
            "all", otf2.GroupType.COMM_LOCATIONS, otf2.Paradigm.MPI, members=(places[1], places[0])
        )
        group = made.groups.create(
            "world", otf2.GroupType.COMM_GROUP, otf2.Paradigm.MPI, members=(places[1], places[0])
        )
        comm = made.comm("MPI_COMM_WORLD", group)

        def region(name: str, paradigm: Any = otf2.Paradigm.MPI) -> Any:
            return made.region(name, paradigm=paradigm)

        main = region("main", otf2.Paradigm.COMPILER)
        for rank, place in enumerate((places[1], places[0])):
            stream = trace.event_writer_from_location(place)
            stream.enter(1000, main)
            stream.enter(1010, region("MPI_Init"))
            stream.leave(1020 + rank, region("MPI_Init"))
            stream.enter(1030, region("MPI_Recv" if rank else "MPI_Send"))
            if rank:
                stream.mpi_recv(1040, 0, comm, 3, 64)
            else:
                stream.mpi_send(1030, 1, comm, 3, 64)
            stream.leave(1041, region("MPI_Recv" if rank else "MPI_Send"))
            stream.buffer_flush(1041, 1050)
            stream.enter(1050, region("MPI_Ibarrier"))
            stream.non_blocking_collective_request(1051, (1 << 40) + 6)
            stream.leave(1052, region("MPI_Ibarrier"))
            stream.enter(1060, region("MPI_Wait"))
            stream.non_blocking_collective_complete(
                1061, otf2.CollectiveOp.BARRIER, comm, NOBODY, 0, 0, (1 << 40) + 6
            )
            stream.leave(1062, region("MPI_Wait"))
            stream.enter(1070, region("MPI_Finalize"))
            stream.leave(1080, region("MPI_Finalize"))
            stream.omp_task_create(1081, 1)
            if end:
                stream.leave(1090, main)
    return folder / "foreign.otf2"


def test_a_foreign_trace_gets_roles_a_root_and_its_ranks(tmp_path: Path) -> None:
    imported = import_otf2(write_foreign(tmp_path / "f"), tmp_path / "c")
    assert imported.ranks == 2
    assert imported.left_out == {"OmpTaskCreate": 2}
    measurement = open_measurement(tmp_path / "c")
    assert measurement.warnings == []
    roles = {(region.name, region.paradigm, region.role) for region in measurement.regions}
    assert roles == {
        ("program", "program", "other"),
        ("main", "function", "other"),
        ("MPI_Init", "mpi", "init"),
        ("MPI_Send", "mpi", "send"),
        ("MPI_Recv", "mpi", "recv"),
        ("MPI_Ibarrier", "mpi", "icollective"),
        ("MPI_Wait", "mpi", "wait"),
        ("MPI_Finalize", "mpi", "finalize"),
        ("trace buffer flush", "measurement", "flush"),
    }
    (first,) = (place for place in measurement.locations if place.rank == 0)
    events = canonical(measurement, 0, first.events)
    world = ((0, 1), ())
    top = (("program",), "")
    call = ("program", "main")

    def visit(name: str, *inside: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return [("ENTER", ((*call, name), "")), *inside, ("LEAVE", ((*call, name), ""))]

    assert events == [
        ("ENTER", top),
        ("ENTER", (call, "")),
        *visit("MPI_Init", ("COLLECTIVE", world, word(Operation.INIT, NOBODY), 0, 0)),
        *visit("MPI_Send", ("SEND", 1, (*world, 3), 64)),
        *visit("trace buffer flush"),
        *visit("MPI_Ibarrier", ("ICOLLECTIVE", world, word(Operation.BARRIER, NOBODY), 0, 0, 6)),
        *visit("MPI_Wait", ("ICOLLECTIVE_DONE", 6)),
        *visit("MPI_Finalize", ("COLLECTIVE", world, word(Operation.FINALIZE, NOBODY), 0, 0)),
        ("LEAVE", (call, "")),
        ("LEAVE", top),
    ]
    times = seconds(measurement, 0, first.events)
    assert times[-1] - times[0] == pytest.approx(90e-6)


def test_communicators_between_groups_and_groups_of_gpus_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the package's own classes cannot read."""
    import _otf2

    write = otf2.registry.DefinitionRegistry.write

    def write_more(made: Any, writer: Any) -> None:
        write(made, writer)
        handle, nothing = writer.handle, 0xFFFFFFFF
        mpi, rank = otf2.Paradigm.MPI, otf2.GroupType.COMM_GROUP
        gpus = otf2.GroupType.COMM_LOCATION_GROUPS
        for ref, kind, members in ((90, rank, [0]), (91, rank, [1]), (92, gpus, [0])):
            _otf2.GlobalDefWriter_WriteGroup(
                handle, ref, 0, kind, mpi, otf2.GroupFlag.NONE, members
            )
        _otf2.GlobalDefWriter_WriteInterComm(handle, 90, 0, 90, 91, nothing, otf2.CommFlag.NONE)
        _otf2.GlobalDefWriter_WriteComm(handle, 92, 0, 92, nothing, otf2.CommFlag.NONE)

    with monkeypatch.context() as patch:
        patch.setattr(otf2.registry.DefinitionRegistry, "write", write_more)
        with otf2.writer.open(str(tmp_path / "f"), "foreign", timer_resolution=10**6) as trace:
            made = trace.definitions
            machine = made.system_tree_node("machine")
            places = [
                made.location(
                    "main", group=made.location_group(f"P{rank}", system_tree_parent=machine)
                )
                for rank in range(2)
            ]
            made.groups.create(
                "all", otf2.GroupType.COMM_LOCATIONS, otf2.Paradigm.MPI, members=tuple(places)
            )
            for place in places:
                stream = trace.event_writer_from_location(place)
                # The package wants a definition with a number, and no more.
                between = type("Between", (), {"_ref": 90})()
                gpus = type("Gpus", (), {"_ref": 92})()
                stream.mpi_send(1, 0, between, 5, 8)
                stream.mpi_send(2, 0, gpus, 5, 8)
    imported = import_otf2(tmp_path / "f" / "foreign.otf2", tmp_path / "c")
    assert imported.left_out == {"MpiSend without a definition": 2}
    measurement = open_measurement(tmp_path / "c")
    sent = [
        [event for event in canonical(measurement, place.rank, place.events) if event[0] == "SEND"]
        for place in measurement.locations
    ]
    # The communicator is one, told from the side of the rank that is read first.
    assert sent == [
        [("SEND", 1, ((0,), (1,), 5), 8)],
        [("SEND", 0, ((0,), (1,), 5), 8)],
    ]


def test_a_region_that_stays_open_is_told(tmp_path: Path) -> None:
    import_otf2(write_foreign(tmp_path / "f", end=False), tmp_path / "c")
    measurement = open_measurement(tmp_path / "c")
    assert [text.split(";")[0] for text in measurement.warnings] == [
        "rank 0 did not end in order",
        "rank 1 did not end in order",
    ]


def test_hidden_files_of_a_failed_import_are_gone(tmp_path: Path) -> None:
    anchor = write_foreign(tmp_path / "f")
    (tmp_path / "f" / "foreign.def").write_bytes(b"no definitions at all")
    with refused(location=str(anchor), problem="OTF2 trace cannot be read"):
        import_otf2(anchor, tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not the anchor file"),
        (b"hello, world\n" * 10, "not the anchor file"),
        (b"\x03BOTF2\0\x03\x02", "OTF2 trace cannot be read"),
    ],
)
def test_foreign_and_cut_anchors_are_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    anchor = write_foreign(tmp_path / "f")
    anchor.write_bytes(content)
    with refused(location=str(anchor), problem=problem) as refusal:
        import_otf2(anchor, tmp_path / "c")
    assert "\n" not in refusal.text
    # What the library itself prints stays away from the screen.
    assert capfd.readouterr().err == ""


def test_an_anchor_alone_is_refused(tmp_path: Path) -> None:
    anchor = write_foreign(tmp_path / "f")
    shutil.copy(anchor, tmp_path / "alone.otf2")
    with refused(problem=r"alone\.def"):
        import_otf2(tmp_path / "alone.otf2", tmp_path / "c")
    with refused(location=r"nothing\.otf2", problem="cannot be read"):
        import_otf2(tmp_path / "nothing.otf2", tmp_path / "c")
