"""Findings about messages: empty ones, tiny ones, much data, collective operations, barriers.

These are costs that the calls have by themselves. Where they also keep other ranks waiting, that
is told with them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from haloscope.scope import maps
from haloscope.scope.diagnosis import findings as wording
from haloscope.scope.diagnosis.findings import Finding, View

SMALL_MESSAGE = 10  # two to this power bytes: below it a message costs its latency
_MOSTLY = 0.8
_MANY_QUESTIONS = 10  # for a message that is sent or received
_FEW_BYTES = 4096  # a message on average: beyond it some large ones may take most of the time


def findings(view: View) -> Iterator[Finding]:
    """Findings about messages, in no order."""
    for find in (_empty_messages, _polling, _messages, _collectives, _scan, _barriers):
        finding = find(view)
        if finding is not None and finding.seconds > 0:
            yield finding


def carries_nothing(view: View) -> NDArray[np.bool_]:
    """Nodes (n,) whose time is mostly that of empty messages."""
    empty = view.result.value("p2p_synchronisation").sum(axis=1)
    return np.asarray((empty > 0) & (empty >= 0.5 * view.result.value("time").sum(axis=1)))


def waiting_in_empty_messages(view: View) -> float:
    """Time of waits within calls whose messages are all empty, as far as waits are kept."""
    waits = view.result.waits[view.waits_of("late_sender", "late_receiver")]
    filed = view.result.total("late_sender") + view.result.total("late_receiver")
    return max(0.0, float((waits["end"] - waits["begin"]).sum()) - filed)


def _late_for_other_reasons(view: View) -> float:
    """The part of that which something else than empty messages causes."""
    delay = view.result.value("delay").sum(axis=1)
    whole = float(delay.sum())
    if whole <= 0:
        return 0.0
    return waiting_in_empty_messages(view) * float(delay[~carries_nothing(view)].sum()) / whole


def _estimated_for_empty(view: View) -> NDArray[np.float64]:
    """Time of empty messages in a profile, which knows one time for all messages of a call path.

    It is shared out by the number of messages; zeros for a trace.
    """
    result = view.result
    time = result.value("p2p_communication")
    if result.about.get("mode") != "profile":
        return np.zeros_like(time)
    sent = result.value("messages_sent") + result.value("messages_received")
    none = result.value("empty_messages_sent") + result.value("empty_messages_received")
    return np.asarray(time * np.divide(none, sent, out=np.zeros_like(sent), where=sent > 0))


def _by_itself(view: View) -> NDArray[np.float64]:
    """Time of messages without waiting for the other side."""
    return view.own("p2p_communication") + view.result.value("late_sender_transfer")


def _empty_messages(view: View) -> Finding | None:
    result = view.result
    messages, empty = result.total("messages_sent"), result.total("empty_messages_sent")
    if not empty:
        return None
    mixed = _estimated_for_empty(view)
    values = result.value("p2p_synchronisation") + mixed
    estimated = bool(mixed.any())
    whole = float(values.sum())
    elsewhere = _late_for_other_reasons(view)
    if whole > 0 and elsewhere > 0.05 * whole:
        values = values * max(0.0, 1 - elsewhere / whole)
    quiet = maps.silence(maps.whole_run(result)) if len(result.pairs) else None
    figure = (
        f"{wording.count(empty)} of {wording.count(messages)} messages have zero bytes and take "
        f"{'about ' if estimated else ''}{wording.seconds(float(values.sum()))}"
        f"{' (estimated from their number)' if estimated else ''}"
    )
    cause = ""
    if quiet is not None and quiet.pairs:
        cause = f"{wording.percent(quiet.share)} of the pairs of ranks exchange no data"
        if quiet.only_empty == quiet.pairs - quiet.with_data:
            cause += ", but all these pairs exchange empty messages. "
        elif quiet.only_empty:
            silent = quiet.only_empty / quiet.pairs
            cause += f"; {wording.percent(silent)} exchange only empty messages. "
        else:
            cause += ". "
    kept = float(result.value("delay")[carries_nothing(view)].sum())
    if elsewhere > 0.05 * whole > 0:
        cause += (
            f"Another {wording.seconds(elsewhere)} in these calls is waiting for ranks that are "
            "late for other reasons. "
        )
    if kept > 0.05 * whole:
        cause += f"They cause {wording.seconds(kept)} of waiting in these and other calls. "
    return view.finding(
        "p2p_synchronisation",
        values,
        f"{wording.percent(empty / messages)} of all messages are empty",
        figure,
        cause.strip(),
        "Send and receive only where there is data. For fixed partners (mesh, stencil), determine "
        "the partners once and keep the list; otherwise exchange the counts first "
        "(MPI_Alltoall, MPI_Neighbor_alltoall).",
    )


def _polls(view: View) -> NDArray[np.bool_]:
    """Nodes (n,) that ask far more often whether something has come than anything comes."""
    result = view.result
    asks = np.array(
        [
            region.paradigm == "mpi"
            and (region.role == "test" or region.name in ("MPI_Iprobe", "MPI_Improbe"))
            for region in result.node_regions
        ],
        bool,
    )
    calls = float(result.value("visits")[asks].sum())
    come = result.total("messages_received") + result.total("messages_sent")
    return asks & (calls > _MANY_QUESTIONS * max(come, 1.0))


def _polling(view: View) -> Finding | None:
    result = view.result
    polls = _polls(view)
    values = np.where(polls[:, None], _by_itself(view), 0.0)
    calls = float(result.value("visits")[polls].sum())
    come = result.total("messages_received") + result.total("messages_sent")
    return view.finding(
        "p2p_communication",
        values,
        "Ranks poll for messages too often",
        f"{wording.count(calls)} calls for {wording.count(come)} sends and receives take "
        f"{wording.seconds(float(values.sum()))}",
        "",
        "Wait instead of polling (MPI_Waitany, MPI_Probe), or do more work between two polls. "
        "A filter of these calls makes a trace much smaller.",
    )


def _messages(view: View) -> Finding | None:
    """Time of messages beyond waiting: many tiny ones, or much data."""
    result = view.result
    values = np.maximum(_by_itself(view) - _estimated_for_empty(view), 0.0)
    values = np.where(_polls(view)[:, None], 0.0, values)
    sizes = result.sizes[:, 1:].sum(axis=0) if result.sizes.size else np.zeros(1, np.int64)
    number = int(sizes.sum())
    data = result.total("bytes_sent")
    seconds = float(values.sum())
    profile = result.about.get("mode") == "profile"
    beyond = "including waiting" if profile else "without waiting"
    if not number:
        return view.finding(
            "p2p_communication",
            values,
            "Time in sends and receives",
            f"{wording.seconds(seconds)} {beyond}",
            "",
        )
    tiny = int(sizes[: SMALL_MESSAGE + 1].sum())
    share = wording.seconds(seconds / number)
    figure = (
        f"{wording.seconds(seconds)} {beyond}, {share} a message; "
        f"{wording.things(number, 'message')} with data, {wording.size(data)}"
    )
    if tiny >= _MOSTLY * number and data <= _FEW_BYTES * number:
        middle = int(np.searchsorted(np.cumsum(sizes), number / 2))
        return view.finding(
            "p2p_communication",
            values,
            f"Many small messages: {wording.percent(tiny / number)} have {wording.size(2**SMALL_MESSAGE)} or less",
            figure,
            f"Half of the messages have at most {wording.size(2**middle)}: latency, not bandwidth, "
            "determines their time.",
            "Pack all data for one rank into one message, exchange less often (wider halos), or "
            "use persistent requests.",
        )
    rate = data / seconds if seconds else 0.0
    return view.finding(
        "p2p_communication",
        values,
        "Transferring data between ranks takes time",
        figure,
        f"A message has {wording.size(data / number)} on average; a rank transfers "
        f"{wording.size(rate)} a second of this time.",
        "Overlap messages with computation (MPI_Isend, MPI_Irecv early, MPI_Wait late), send less "
        "(narrower types, fewer fields), or place ranks with much communication on one host.",
    )


def _collectives(view: View) -> Finding | None:
    result = view.result
    values = view.own("collective_communication") + result.value("nxn_completion")
    calls = result.total("collectives")
    seconds = float(values.sum())
    node = view.top(values.sum(axis=1))
    data = result.total("bytes_collective")
    profile = result.about.get("mode") == "profile"
    title = f"Collective operations take time, mainly {view.name(node)}"
    if profile:
        return view.finding(
            "collective_communication",
            values,
            title,
            wording.seconds(seconds),
            "A profile does not separate waiting for the last rank from the operation; a trace "
            "does (haloscope measure --trace).",
        )
    figure = f"{wording.seconds(seconds)} without waiting"
    if calls:
        figure += (
            f"; {wording.things(calls, 'call')} on all ranks, {wording.size(data / calls)} a call"
        )
    small = calls > 0 and data / calls <= 2**SMALL_MESSAGE
    return view.finding(
        "collective_communication",
        values,
        title,
        figure,
        "The calls carry few bytes: latency determines their time." if small else "",
        "Combine small operations into one, use results one step later (non-blocking), or "
        "test for convergence less often."
        if small
        else "",
    )


def _scan(view: View) -> Finding | None:
    """Scans, and whether their ranks leave only when all have entered."""
    result = view.result
    values = result.value("scan_completion")
    seconds = float(values.sum())
    calls = int(result.about.get("scans") or 0)
    held = int(result.about.get("scans_synchronising") or 0)
    synchronises = calls > 0 and held >= _MOSTLY * calls
    name = view.name(view.top(values.sum(axis=1)))
    figure = f"{wording.seconds(seconds)} after all lower ranks entered"
    if synchronises:
        return view.finding(
            "scan_completion",
            values,
            f"{name} holds every rank until all have entered",
            f"{figure}, in {wording.count(held)} of {wording.count(calls)} scans",
            "A rank needs only data of lower ranks, but no rank leaves before the last rank has "
            "entered: the scan of this MPI synchronises on exit.",
            "Try another algorithm or version of this MPI, or compute the prefix with "
            "point-to-point messages along a tree.",
        )
    return view.finding(
        "scan_completion", values, f"{name} itself takes time", figure, "The operation is slow."
    )


def _barriers(view: View) -> Finding | None:
    values = view.own("collective_synchronisation") + view.result.value("barrier_completion")
    seconds = float(values.sum())
    calls = float(view.result.value("visits")[values.sum(axis=1) > 0].sum())
    profile = view.result.about.get("mode") == "profile"
    return view.finding(
        "collective_synchronisation",
        values,
        "Barriers take time" if profile else "Barriers take time without waiting for the last rank",
        f"{wording.seconds(seconds)} in {wording.things(calls, 'call')} on all ranks",
        "A profile does not separate waiting from the barrier; a trace does." if profile else "",
    )
