"""Predicts a program's time with one thing changed, by replaying its trace.

:func:`predict` is all that others call; ``replay/whatif.cpp`` does the work.
"""

from __future__ import annotations

import ctypes
import difflib
import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from haloscope.errors import InputError, counted
from haloscope.scope.analysis.score import costs_of_recording
from haloscope.scope.diagnosis import findings
from haloscope.scope.replay import causal
from haloscope.scope.replay.inputs import POINTER, load_replay, make_inputs, role_number
from haloscope.scope.trace.measurement import Measurement

# Numbers of whatif.cpp, how each change is written, and what it is.
_NUMBERS = {"no-empty-messages": 1, "balanced": 2, "faster": 3, "ideal-network": 4, "network": 5}
CHANGES = {
    "no-empty-messages": "messages of zero bytes and calls with only such messages take no time",
    "balanced=REGION": "each visit of REGION computes for the mean time of the ranks",
    "faster=REGION,FACTOR": "computation in REGION and below is FACTOR times as fast",
    "ideal-network": "messages and collectives take no time; computation and waiting for data remain",
    "network=LATENCY,BANDWIDTH": "a network of this latency and bandwidth, for example 1us,10GB/s",
}
_SCALED, _OPENS, _SYNCHRONOUS, _KEPT = 1, 2, 4, 8
_SYNCHRONOUS_CALLS = {"MPI_Ssend", "MPI_Ssend_c", "MPI_Issend", "MPI_Issend_c"}
_FIRST_MPI, _LAST_MPI, _MEASUREMENT = 1, 7, 8  # Role of run.h
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12} | {
    f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("kmgt")
}
_MOST_NAMES = 8  # that an error lists
_WITHOUT_CALLS = {"no-empty-messages", "ideal-network", "network"}
_MUCH = 0.05  # of the time of all ranks
_WORTH_TELLING = 0.02  # of the gain


@dataclass(frozen=True)
class Prediction:
    """Predicted effect of a change."""

    name: str  # The change as given, ``NAME`` or ``NAME=VALUE``
    measured: float  # Seconds from the first event of the run to the last
    baseline: float  # Seconds that the replay takes with nothing changed
    # Seconds with the change: what the replay takes, times ``measured / baseline``.
    predicted: float
    model_error: float  # ``baseline / measured - 1``; what is far from zero is not to be believed
    # Seconds that the change would bring to a run that is not measured, without the time that
    # recording takes, as the trace tells it. NaN where it does not.
    gain_unmeasured: float
    # Seconds from the run's begin to each rank's end with the change, shape (ranks,); NaN for a
    # rank without events.
    by_rank: NDArray[np.float64]
    notes: list[str] = field(default_factory=list)  # What to know about the figure, one line each


class _Settings(ctypes.Structure):
    _fields_ = (
        ("change", ctypes.c_int32),
        ("flags", ctypes.c_void_p),
        ("factor", ctypes.c_double),
        ("latency", ctypes.c_double),
        ("bandwidth", ctypes.c_double),
        ("recording", ctypes.c_void_p),
    )


_COUNTS = (
    *("events", "forced", "unmatched_sends", "unmatched_receives", "empty_messages"),
    *("emptied_calls", "tests", "one_sided", "least_visits", "most_visits"),
)


class _Prediction(ctypes.Structure):
    _fields_ = (
        ("measured", ctypes.c_double),
        ("baseline", ctypes.c_double),
        ("predicted", ctypes.c_double),
        ("unrecorded_gain", ctypes.c_double),
        ("excess", ctypes.c_double),
        ("by_rank", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in _COUNTS),
    )


def predict(
    measurement: Measurement, name: str, value: str | None = None, threads: int = 0
) -> Prediction:
    """Predict the run time of the same program with one thing changed."""
    # The header of replay/whatif.cpp says what a call depends on and how long it takes then. With
    # nothing changed this gives the measured times again.
    #
    # Where ranks share cores, a rank in an MPI call is often not running: its partner, or a rank
    # that only waits itself, has the core. This time lies in the trace between the moment in which
    # the call could have gone on and its end, so it is taken as part of that call: it goes with the
    # call where that is left out, and another call that waited keeps it. Thus removing empty messages
    # removes the turns on the core that they cost. Cores are not modelled as such: where computing
    # alone fills them, the time for which a rank waits for a core does not go away with a
    # message, and the gain that is predicted is too large.
    #
    # Without empty messages an MPI_Sendrecv vanishes where both of its messages are empty; of one
    # that is empty on one side, the other is left: a send then takes what the fastest tenth of such
    # calls did. On a network the messages of a rank leave it one after another, and a collective of n
    # ranks ends ceil(log2 n) LATENCY + bytes / BANDWIDTH after the last rank that it depends on, with
    # the bytes that the rank gives or gets, whichever are more.
    settings, flags = check(measurement, name, value)
    correction = causal.correct(measurement)
    inputs = make_inputs(measurement, threads, correction.knots or None)
    by_rank = np.full(measurement.size, np.nan)
    outcome = _Prediction(by_rank=by_rank.ctypes.data)
    settings.flags = flags.ctypes.data
    recording = costs_of_recording(measurement)
    if recording is not None:
        settings.recording = recording.ctypes.data
    library = load_replay({"whatif_predict": (ctypes.c_int, *(POINTER,) * 3)}, "whatif.cpp")
    failure = library.whatif_predict(
        ctypes.byref(inputs.run), ctypes.byref(settings), ctypes.byref(outcome)
    )
    if failure:
        raise inputs.error_of(failure)
    scale = outcome.measured / outcome.baseline if outcome.baseline > 0 else 1.0
    predicted = outcome.predicted * scale
    notes = _notes(name, outcome, correction)
    gain = outcome.measured - predicted
    if gain - outcome.unrecorded_gain > _WORTH_TELLING * gain > 0:
        notes.insert(0, _without_measurement(gain, outcome.unrecorded_gain))
    return Prediction(
        name if value is None else f"{name}={value}",
        outcome.measured,
        outcome.baseline,
        predicted,
        1 / scale - 1,
        outcome.unrecorded_gain,
        by_rank * scale,
        notes,
    )


def check(
    measurement: Measurement, name: str, value: str | None = None
) -> tuple[_Settings, NDArray[np.uint8]]:
    """Tell whether a change can be predicted, before long work begins; see :func:`predict`."""
    if not any(place.events for place in measurement.locations):
        raise InputError(
            f"--what-if {name} needs a trace; this measurement holds no events",
            location=str(measurement.folder),
            remedy="measure again with haloscope measure --trace",
        )
    allowed = {text.partition("=")[0]: text for text in CHANGES}
    if name not in allowed:
        raise InputError(
            f"unknown change {name!r}", location="--what-if", allowed=", ".join(CHANGES)
        )
    wants = "=" in allowed[name]
    if wants and not value:
        raise InputError(
            "the value is missing", location=f"--what-if {name}", remedy=f"write {allowed[name]}"
        )
    if not wants and value is not None:
        raise InputError(
            f"{name} takes no value",
            location=f"--what-if {name}={value}",
            remedy=f"write --what-if {name}",
        )
    settings = _Settings(change=_NUMBERS[name], factor=1.0, bandwidth=math.inf)
    region = None
    if name == "network":
        settings.latency, settings.bandwidth = _network(value or "")
    elif name == "balanced":
        region = value
    elif name == "faster":
        region, _, factor = (value or "").rpartition(",")
        settings.factor = 1 / _factor(region, factor, value or "")
    return settings, _flags(measurement, region)


def _factor(region: str, text: str, value: str) -> float:
    try:
        factor = float(text.strip().removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not region or not 0 < factor < math.inf:
        raise InputError(
            "the value is not a region and a factor",
            location=f"--what-if faster={value}",
            allowed="faster=REGION,FACTOR with a factor above 0",
            remedy="write for example faster=solve,2",
        )
    return factor


def _network(value: str) -> tuple[float, float]:
    """Latency in seconds and bandwidth in bytes a second."""
    parts = [part.strip() for part in value.split(",")]
    numbers: list[float] = []
    for part, unit in zip(parts, (_seconds_in, _bytes_in), strict=False):
        match = re.fullmatch(r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([^\s0-9]*)", part)
        try:
            numbers.append(float(match[1]) * unit(match[2]) if match else math.nan)
        except (KeyError, ValueError):
            numbers.append(math.nan)
    if len(parts) != 2 or not 0 <= numbers[0] < math.inf or not numbers[1] > 0:
        raise InputError(
            "the value is not a latency and a bandwidth with units",
            location=f"--what-if network={value}",
            allowed="network=LATENCY,BANDWIDTH in s, ms, us or ns and in B/s, kB/s, MB/s, GB/s or TB/s",
            remedy="write for example network=1us,10GB/s",
        )
    return numbers[0], numbers[1]


def _seconds_in(unit: str) -> float:
    return _TIMES[unit]


def _bytes_in(unit: str) -> float:
    match = re.fullmatch(r"([kKMGT]?i?)B/s", unit)
    return _PREFIXES[match[1].lower()] if match else math.nan


def _flags(measurement: Measurement, region: str | None) -> NDArray[np.uint8]:
    """Flags of each node for whatif.cpp."""
    nodes, regions = measurement.nodes, measurement.regions
    flags = np.zeros(max(len(nodes), 1), np.uint8)
    inside = np.zeros(len(nodes), bool)  # in the region
    within = np.zeros(len(nodes), bool)  # in MPI
    for number, node in enumerate(nodes):
        one = regions[node.region]
        role = role_number(one.paradigm, one.role)
        is_mpi = _FIRST_MPI <= role <= _LAST_MPI
        above = node.parent >= 0
        within[number] = is_mpi or (above and within[node.parent])
        if one.name == region and not (above and inside[node.parent]) and not within[number]:
            flags[number] |= _OPENS
            inside[number] = True
        inside[number] |= above and inside[node.parent]
        if inside[number] and not within[number] and role != _MEASUREMENT:
            flags[number] |= _SCALED
        if one.name in _SYNCHRONOUS_CALLS:
            flags[number] |= _SYNCHRONOUS
        if is_mpi and one.role in ("init", "finalize"):
            flags[number] |= _KEPT
    if region is not None and not np.any(flags & _OPENS):
        raise _no_region(measurement, region)
    return flags


def _no_region(measurement: Measurement, region: str) -> InputError:
    names = {one.name: one.paradigm for one in measurement.regions}
    if region in names:
        return InputError(
            f"the program does not compute in region {region!r}",
            location="--what-if",
            remedy="give a function or phase of the program that computes",
        )
    own = [name for name, paradigm in names.items() if paradigm not in ("mpi", "measurement")]
    close = difflib.get_close_matches(region, own, 3, 0.6) or own[:_MOST_NAMES]
    more = ", ..." if len(close) < len(own) else ""
    return InputError(
        f"the measurement has no region {region!r}",
        location="--what-if",
        allowed=f"{', '.join(close)}{more}",
    )


def _without_measurement(gain: float, unmeasured: float) -> str:
    return (
        f"the measured run gains {gain:.3g} s, including {gain - unmeasured:.2g} s of recording; "
        f"expect {max(unmeasured, 0.0):.3g} s without measurement"
    )


def _notes(name: str, outcome: _Prediction, correction: causal.Correction) -> list[str]:
    notes = []
    if name == "no-empty-messages":
        notes.append(
            f"{counted(outcome.empty_messages, 'message is', 'messages are')} empty; "
            f"{counted(outcome.emptied_calls, 'call takes', 'calls take')} no time without them"
            if outcome.empty_messages
            else "no message is empty, so the time stays the same"
        )
    if name == "balanced" and outcome.least_visits != outcome.most_visits:
        notes.append(
            f"ranks visit the region {outcome.least_visits} to {outcome.most_visits} times; each visit "
            "is balanced over the ranks with this visit"
        )
    if name in _WITHOUT_CALLS and outcome.excess > _MUCH:
        notes.append(
            f"{findings.percent(outcome.excess)} of the time of all ranks is in calls that do not wait but "
            "take longer than the fastest call of their kind, for example since ranks share cores; "
            "the prediction removes this time, but less is gained if computation fills the cores"
        )
    if outcome.one_sided > 0:
        notes.append(
            f"{outcome.one_sided} calls that synchronise one-sided communication keep their "
            "measured time"
        )
    if outcome.tests:
        notes.append(
            f"{outcome.tests} calls of MPI_Test and similar functions keep their measured time; the "
            "program would poll less often if messages arrived earlier"
        )
    if outcome.unmatched_receives or outcome.unmatched_sends:
        notes.append(
            f"{counted(outcome.unmatched_receives, 'receive')} without a send and "
            f"{counted(outcome.unmatched_sends, 'send')} without a receive in the trace; no rank "
            "waits for them"
        )
    if outcome.forced:
        notes.append(
            f"ranks wait for each other in a circle, as in a damaged trace; {outcome.forced} waits "
            "were left out to continue"
        )
    if correction.before:
        notes.append(
            f"clocks were corrected by up to {correction.largest:.3g} s where messages arrived "
            "before they were sent"
        )
    if abs(outcome.baseline - outcome.measured) > 0.02 * outcome.measured:
        notes.append(
            "the replay does not reproduce the measured time; the prediction is only a hint"
        )
    return notes
