"""Claims about regions: free of effect when nobody listens, and told to whoever does."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from haloscope import regions
from haloscope.regions import Profile, Region


@pytest.fixture(autouse=True)
def _nobody_listens_after() -> Iterator[None]:
    yield
    regions.detach()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds that the test itself lets pass: the last number of the list is the time."""
    time = [0.0]
    monkeypatch.setattr(regions.time, "perf_counter", lambda: time[-1])
    yield time


def test_without_a_listener_a_region_has_no_effect():
    with Region("quiet") as nothing:
        pass
    assert nothing is None
    with pytest.raises(KeyError, match="kept"), Region("quiet"):
        raise KeyError("kept")  # not swallowed


def test_a_name_has_one_number_for_ever():
    first, second, again = Region("one name"), Region("another name"), Region("one name")
    assert first.number == again.number != second.number
    assert regions.names()[first.number] == "one name"
    assert regions.names()[second.number] == "another name"


def test_a_name_moves_data_if_one_region_of_it_does():
    for movement in (False, True, False):
        Region("moves at times", movement=movement)
    Region("never moves")
    assert "moves at times" in regions.movement()
    assert "never moves" not in regions.movement()


def test_a_listener_is_told_of_every_entry_and_exit_in_order():
    outer, inner = Region("outer"), Region("inner")
    events: list[tuple[str, int]] = []
    regions.attach(
        lambda number: events.append(("in", number)), lambda number: events.append(("out", number))
    )
    with outer, inner:
        pass
    regions.detach()
    with outer:
        pass
    assert events == [
        ("in", outer.number),
        ("in", inner.number),
        ("out", inner.number),
        ("out", outer.number),
    ]


def test_a_listener_is_told_when_an_error_leaves_a_region():
    left: list[int] = []
    region = Region("breaks")
    regions.attach(lambda number: None, left.append)
    with pytest.raises(ValueError, match="broken"), region:
        raise ValueError("broken")
    assert left == [region.number]


def test_a_profile_counts_visits_and_leaves_inner_regions_out(clock):
    outer, inner = Region("profiled outer"), Region("profiled inner")
    with Profile() as profile:
        for _ in range(3):
            with outer:
                clock.append(clock[-1] + 1.0)
                with inner:
                    clock.append(clock[-1] + 4.0)
                with inner:
                    clock.append(clock[-1] + 8.0)
                clock.append(clock[-1] + 2.0)
    assert profile.table() == {
        "profiled outer": {"visits": 3, "seconds": 9.0},
        "profiled inner": {"visits": 6, "seconds": 36.0},
    }


def test_a_region_within_itself_is_counted_once_for_its_own_time(clock):
    region = Region("recursive")
    with Profile() as profile, region:
        clock.append(1.0)
        with region:
            clock.append(3.0)
    assert profile.table()["recursive"] == {"visits": 2, "seconds": 3.0}


def test_a_profile_survives_an_error_and_listens_no_more(clock):
    region = Region("fails once")
    profile = Profile()
    with pytest.raises(ValueError, match="broken"), profile, region:
        clock.append(5.0)
        raise ValueError("broken")
    with region:
        clock.append(50.0)
    assert profile.table() == {"fails once": {"visits": 1, "seconds": 5.0}}


def test_the_exclusive_times_add_up_to_the_whole(clock):
    named = [Region(f"level {n}") for n in range(5)]
    ticks = itertools.count(1)
    with Profile() as profile:
        for depth in (5, 2, 4):
            for region in named[:depth]:
                region.__enter__()
                clock.append(clock[-1] + next(ticks))
            for region in reversed(named[:depth]):
                clock.append(clock[-1] + next(ticks))
                region.__exit__(None, None, None)
    assert sum(row["seconds"] for row in profile.table().values()) == clock[-1]


# Slow parts of the set-up


def test_a_part_of_the_set_up_that_is_slow_in_all_is_named_once(monkeypatch):
    monkeypatch.setattr(regions, "SLOW_SECONDS", 0.1)
    compiling, reading = regions.SetupPhase("compiling"), regions.SetupPhase("reading")
    lines = []
    for _ in range(2):
        with regions.announced(lines.append):
            for _ in range(4):
                with compiling, reading:
                    time.sleep(0.06)
                with reading:
                    pass
            with regions.SetupPhase("quick"):
                pass
    assert sorted(lines) == ["compiling ..."] * 2 + ["reading ..."] * 2
    with compiling:
        time.sleep(0.12)
    assert len(lines) == 4


def test_a_part_is_named_while_it_lasts(monkeypatch):
    monkeypatch.setattr(regions, "SLOW_SECONDS", 0.01)
    named = threading.Event()
    with regions.announced(lambda text: named.set()), regions.SetupPhase("compiling"):
        assert named.wait(10)
