"""Findings about waits that nobody is known to cause, and about messages received out of order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from haloscope.scope.analysis.metrics import BY_NAME
from haloscope.scope.diagnosis import wording
from haloscope.scope.diagnosis.findings import Finding, View

# Metrics of time that is spent waiting for another rank. Each holds what is below it.
WAITS = (
    *("late_sender", "late_receiver", "wait_at_barrier", "wait_at_nxn", "late_broadcast"),
    *("early_reduce", "early_scan", "wait_at_fence", "late_post", "early_wait", "lock_contention"),
    "wait_at_finalize",
)
WRONG_ORDER = "late_sender_wrong_order"
SPREAD = 0.6  # share of the ranks that cause waits, from which on it is nobody in particular
_LEAST_SHARE = 0.001  # of all time, of a wait that is worth a finding

# Title, where it is found, and why it happens.
_TITLES = {
    "late_sender": (
        "Receives wait for messages that are sent late",
        "in {name}",
        "The receiver is there before its message has been sent.",
    ),
    "late_receiver": (
        "Sends are blocked until the receiver is ready",
        "in {name}",
        "A large message is not sent before its receive is posted.",
    ),
    "wait_at_barrier": (
        "Ranks wait for the last one at barriers",
        "",
        "No rank leaves a barrier before the last one has come.",
    ),
    "wait_at_nxn": (
        "Ranks wait for the last one",
        "in {name}",
        "Every rank needs something of every other here, so that all wait for the last one.",
    ),
    "late_broadcast": (
        "Ranks wait for the root",
        "of {name}",
        "The others are there before the root has its data.",
    ),
    "early_reduce": (
        "The root waits for the others",
        "in {name}",
        "The root is there before the data of the others.",
    ),
    "early_scan": (
        "Ranks wait for lower ranks",
        "in {name}",
        "A rank needs what all ranks below it have; the lower ones come late.",
    ),
    "wait_at_fence": (
        "Ranks wait for the last one at fences",
        "",
        "No rank leaves a fence before the last one has come.",
    ),
    "late_post": (
        "Origins wait until targets have posted their windows",
        "",
        "The target opens its window later than the origin wants to write.",
    ),
    "early_wait": (
        "Targets wait for origins to complete",
        "",
        "The target closes its window before the origins are done.",
    ),
    "lock_contention": (
        "Ranks wait for window locks that others hold",
        "",
        "Several ranks want the same lock at the same time.",
    ),
    "wait_at_finalize": (
        "Ranks wait for the last one at the end of the program",
        "",
        "Some ranks have finished while others still work.",
    ),
}
# Sharper than those of the metrics, which know less.
_REMEDIES = dict.fromkeys(
    ("wait_at_barrier", "wait_at_nxn"),
    "Where it is one rank that is waited for, look at what it does before; else balance the work "
    "or synchronise less often. The timeline (haloscope explore) shows single instances.",
)


def waiting(view: View) -> float:
    """Time of all ranks that is spent waiting for others."""
    return sum(view.result.total(name) for name in WAITS)


def wrong_order(view: View) -> Finding:
    """Tell of messages that are received in another order than they were sent."""
    values = view.result.value(WRONG_ORDER)
    same = view.result.total("wrong_order_same_source")
    whole = float(values.sum())
    source = "the same rank" if same > whole / 2 else "another rank"
    remedy = BY_NAME[
        "wrong_order_same_source" if same > whole / 2 else "wrong_order_different_sources"
    ].remedy
    return view.finding(
        WRONG_ORDER,
        values,
        "Messages are received in another order than they are sent",
        f"{wording.seconds(whole)} of waiting",
        f"While these receives wait, a message from {source} that was sent earlier is there "
        "already and is taken later.",
        remedy,
    )


def unexplained(view: View, explained: float, filed: float) -> Iterator[Finding]:
    """What is left of the waits once the delays are taken off them.

    `explained`: seconds of waits whose causes are known; `filed`: seconds of waits that are kept
    under other metrics than those of waiting.
    """
    result = view.result
    waits = result.waits
    length = waits["end"] - waits["begin"]
    whole: dict[str, float] = {}
    traceable: dict[str, float] = {}
    for name in WAITS:
        values = result.total(name)
        if name == "late_sender":
            values -= result.total(WRONG_ORDER)
        if values <= 0:
            continue
        mine = view.waits_of(name)
        known = float(length[mine].sum())
        caused = float(length[mine & (waits["cause"] >= 0)].sum())
        whole[name] = values
        traceable[name] = values * (caused / known if known > 0 else 1.0)
    pool = sum(traceable.values()) + filed
    share = min(1.0, explained / pool) if pool > 0 else 0.0
    for name, values in whole.items():
        rest = values - traceable[name] * share
        if view.share(rest) < _LEAST_SHARE:
            continue
        yield _wait(view, name, rest, values)


def _wait(view: View, name: str, rest: float, whole: float) -> Finding:
    result = view.result
    values = result.value(name)
    if name == "late_sender":
        values = np.maximum(values - result.value(WRONG_ORDER), 0.0)
    node = view.top(values.sum(axis=1))
    title, where, why = _TITLES[name]
    if where and node >= 0:
        title = f"{title} {where.format(name=view.name(node))}"
    figure = f"{wording.seconds(rest)} of waiting"
    if rest < 0.95 * whole:
        figure += f"; {wording.seconds(whole - rest)} more are told by their causes"
    cause = f"{why} {_waited_for(view, name)}".strip()
    remedy = _REMEDIES.get(name, "")
    finding = view.finding(name, values, title, figure, cause, remedy)
    finding.seconds, finding.share = rest, view.share(rest)
    return finding


def _waited_for(view: View, name: str) -> str:
    """For whom ranks wait, as far as the wait states tell."""
    waits = view.result.waits[view.waits_of(name)]
    waits = waits[(waits["cause"] >= 0) & (waits["cause"] < len(view.rank_of))]
    if not len(waits):
        return ""
    length = np.asarray(waits["end"] - waits["begin"], np.float64)
    by_rank = np.bincount(view.rank_of[waits["cause"]], length, view.result.size)
    ranks = view.ranks(by_rank.astype(np.float64))
    share = float(by_rank[ranks].sum() / max(by_rank.sum(), 1e-300))
    if len(ranks) > SPREAD * view.result.size:
        return "Now one rank is waited for, now another."
    return f"{wording.percent(share)} of it is for {view.in_words(ranks)}."
