"""Claims about signals that raise: who drops them gets them again, and they keep their name."""

from __future__ import annotations

import os
import signal
import time

import pytest

from haloscope.io import interrupts
from haloscope.io.interrupts import Interrupted, raised


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(interrupts, "_UNSEEN_SECONDS", 0.05)


def _signal(number: int) -> None:
    os.kill(os.getpid(), number)


class _Dropping:
    """Its destructor is where the signal comes: what is raised there is lost."""

    def __del__(self) -> None:
        _signal(signal.SIGTERM)


def _wait() -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_was_dropped_comes_again():
    passed = False
    with pytest.raises(Interrupted, match="SIGTERM") as caught, raised() as came:
        thing = _Dropping()
        del thing
        passed = True
        _wait()
    assert passed
    assert came == [caught.value]


def test_an_interrupt_keeps_its_name_where_a_library_makes_another_error_of_it():
    with pytest.raises(Interrupted, match="SIGINT") as caught, raised():
        try:
            _signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("could not be loaded") from None
    assert isinstance(caught.value.__cause__, ImportError)
    with pytest.raises(ImportError, match="indeed"), raised():
        raise ImportError("indeed")


def test_cleaning_up_is_left_alone_and_an_answer_is_one():
    cleaned = False
    with pytest.raises(Interrupted), raised():
        try:
            _signal(signal.SIGINT)
        finally:
            time.sleep(0.3)
            cleaned = True
    assert cleaned
    with raised() as came:
        try:
            _signal(signal.SIGINT)
        except Interrupted as stop:
            stop.answered = True
        time.sleep(0.3)
    assert [str(interrupt) for interrupt in came] == ["SIGINT"]


def test_a_person_who_insists_is_heard_while_cleaning_up():
    with pytest.raises(Interrupted, match="SIGTERM"), raised() as came:
        try:
            _signal(signal.SIGINT)
        finally:
            _signal(signal.SIGTERM)
    assert [str(interrupt) for interrupt in came] == ["SIGINT", "SIGTERM"]
