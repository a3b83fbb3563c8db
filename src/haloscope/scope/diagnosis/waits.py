"""Findings about waits: who causes them, waits without a known cause, messages received out of order."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from haloscope.scope.analysis.metrics import BY_NAME, METRICS, metric_of_role
from haloscope.scope.diagnosis import findings as wording
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
        "The receive starts before the send of its message.",
    ),
    "late_receiver": (
        "Sends are blocked until the receiver is ready",
        "in {name}",
        "MPI sends a large message only after its receive is posted.",
    ),
    "wait_at_barrier": (
        "Ranks wait for the last rank at barriers",
        "",
        "No rank leaves a barrier before the last rank has entered it.",
    ),
    "wait_at_nxn": (
        "Ranks wait for the last rank",
        "in {name}",
        "Every rank needs data of every other rank, so all wait for the last rank.",
    ),
    "late_broadcast": (
        "Ranks wait for the root",
        "of {name}",
        "Other ranks enter the operation before the root.",
    ),
    "early_reduce": (
        "The root waits for the other ranks",
        "in {name}",
        "The root enters the operation before the other ranks.",
    ),
    "early_scan": (
        "Ranks wait for lower ranks",
        "in {name}",
        "A rank needs data of all lower ranks, and lower ranks enter late.",
    ),
    "wait_at_fence": (
        "Ranks wait for the last rank at fences",
        "",
        "No rank leaves a fence before the last rank has entered it.",
    ),
    "late_post": (
        "Origins wait until targets post their windows",
        "",
        "The target posts its window after the origin starts its access.",
    ),
    "early_wait": (
        "Targets wait for origins to complete",
        "",
        "The target waits for its window before the origins complete.",
    ),
    "lock_contention": (
        "Ranks wait for window locks that other ranks hold",
        "",
        "Several ranks request the same lock at the same time.",
    ),
    "wait_at_finalize": (
        "Ranks wait for the last rank at the end of the program",
        "",
        "Ranks finish at different times.",
    ),
}
# Sharper than those of the metrics, which know less.
_REMEDIES = dict.fromkeys(
    ("wait_at_barrier", "wait_at_nxn"),
    "If all wait for one rank, examine its work before this call; otherwise balance the work "
    "or synchronise less often. The timeline (haloscope explore) shows single waits.",
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
        f"While these receives wait, an earlier message from {source} has arrived but is received "
        "later.",
        remedy,
    )


def unexplained(view: View, explained: float, filed: float) -> Iterator[Finding]:
    """Rest of the waits after the delays are subtracted.

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
        figure += f"; findings on causes contain {wording.seconds(whole - rest)} more"
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
        return "Different ranks are late at different times."
    return f"{wording.percent(share)} of the waiting is for {view.in_words(ranks)}."


# Where the delay costs of the replay name the cause of a wait, the cause is the finding and the wait
# is its evidence; only what is left of the waits is told as waits.

SMALL = 0.01  # share of all time below which a cause is put together with others
_SERIAL = 0.95  # share of a call path's time on one rank
# Words of names that have to do with files, such as write_output or doWrite, but not spread.
_WORDS = (
    *("write", "read", "output", "input", "dump", "checkpoint", "restart", "save", "load"),
    *("print", "fopen", "file"),
)
_INPUT_OUTPUT = re.compile(
    f"(?<![A-Za-z])(?i:{'|'.join(_WORDS)})|(?<=[a-z])(?:{'|'.join(map(str.capitalize, _WORDS))})"
)

# Costs that are reported with the waits that they cause.
_TAKE_DELAYS = (
    *("p2p_communication", "collective_communication", "collective_synchronisation", "mpi_io"),
)


def _kept(view: View) -> float:
    """Share of the delay costs without waits from the order of receiving, which are reported apart."""
    out_of_order = view.result.total(WRONG_ORDER)
    return 1 - min(1.0, out_of_order / max(waiting(view), out_of_order, 1e-300))


def take_delays(view: View, finding: Finding, beside: NDArray[np.bool_]) -> None:
    """Tell the waits that a kind of MPI call causes with its cost, where that is the larger part.

    `finding`: about the cost; its seconds grow by those of the waits; `beside`: nodes (n,) whose
    delay costs are told elsewhere; those taken here are added.
    """
    if finding.metric not in _TAKE_DELAYS:
        return
    metrics = [metric_of_role(one.paradigm, one.role) for one in view.result.node_regions]
    nodes = np.array([name == finding.metric for name in metrics]) & ~beside
    waits = float(view.result.value("delay")[nodes].sum()) * _kept(view)
    if 0 < waits <= finding.seconds:
        finding.figure += f"; it makes other ranks wait another {wording.seconds(waits)}"
        finding.seconds += waits
        finding.share = view.share(finding.seconds)
        beside |= nodes


def findings(view: View, beside: NDArray[np.bool_], filed: float = 0.0) -> Iterator[Finding]:
    """Findings about waiting, in no order.

    `beside`: nodes (n,) whose delay costs another finding tells of already; `filed`: seconds of
    waits that are kept under other metrics than those of waiting.
    """
    result = view.result
    if result.total(WRONG_ORDER) > 0:
        yield wrong_order(view)
    costs = result.value("delay").sum(axis=1)
    kept = _kept(view)
    left = np.where(beside, 0.0, costs * kept)
    for seconds, nodes in view.same_paths(left):
        if view.share(seconds) >= SMALL:
            yield _delay(view, nodes, kept)
            left[nodes] = 0.0
    if view.share(float(left.sum())) >= SMALL:
        yield _many_delays(view, left)
    yield from unexplained(view, float(costs.sum()), filed)


def _delay(view: View, nodes: list[int], kept: float) -> Finding:
    result = view.result
    values = result.value("delay")[nodes].sum(axis=0) * kept
    by_rank = view.by_rank(values)
    seconds = float(values.sum())
    ranks = wording.most_of(by_rank)
    spent = view.by_rank(result.value("time")[nodes].sum(axis=0))
    spread = len(ranks) > max(1, SPREAD * result.size)
    if spread:
        ranks = view.ranks(by_rank)
    node = nodes[0]
    alone = len(ranks) == 1 and spent[ranks[0]] >= _SERIAL * max(float(spent.sum()), 1e-300)
    delay = _DelayText(view, node, ranks, spread, alone and result.size > 1)
    figure = f"other ranks wait {wording.seconds(seconds)}"
    if spread:
        most = int(np.argmax(spent))
        figure += (
            f"; the call path takes {wording.seconds(float(spent.mean()))} a rank on average, "
            f"{wording.seconds(float(spent[most]))} on rank {most}"
        )
    elif not delay.alone:
        others = np.delete(spent, ranks)
        figure += (
            f"; the call path takes {wording.seconds(float(spent[ranks].mean()))} on "
            f"{'this rank' if len(ranks) == 1 else 'each of these ranks'}, "
            f"{wording.seconds(float(others.mean()) if len(others) else 0.0)} on average on other "
            "ranks"
        )
    else:
        figure += f"; the call path takes {wording.seconds(float(spent[ranks[0]]))} on this rank"
    imbalance = float(result.value("imbalance")[nodes].sum())
    if imbalance > 0:
        figure += f"; it makes the critical path {wording.seconds(imbalance)} longer"
    long_term = float(result.value("delay_long")[nodes].sum()) * kept
    chosen = _caused_by(view, ranks)
    cause = _evidence(view, chosen)
    if long_term > 0.2 * seconds:
        cause += (
            f" {wording.percent(long_term / seconds)} of the waiting is indirect: waiting ranks "
            "delay further ranks."
        )
    return view.finding_at(
        node,
        "delay",
        seconds,
        ranks,
        *(delay.title(), figure, cause.strip(), delay.remedy()),
        instance=view.longest(_charged(view, chosen, nodes)),
        once=view.short and view.starts_or_ends(node),
    )


class _DelayText:
    """How a delay is put into words: by what the call path is, and who is late in it."""

    def __init__(self, view: View, node: int, ranks: list[int], spread: bool, alone: bool) -> None:
        region = view.result.region_of(node)
        self.metric = metric_of_role(region.paradigm, region.role)
        self.program = region.paradigm == "program"
        self.name = view.name(node)
        self.spread = spread
        self.alone = alone
        self.who = wording.begun(view.in_words(ranks))
        self.several = len(ranks) > 1

        self.writes = bool(_INPUT_OUTPUT.search(" ".join(view.result.path_of(node)[1:])))

    def title(self) -> str:
        if self.metric == "mpi_io":
            return f"File I/O in {self.name} delays {wording.continued(self.who)}"
        if self.metric.startswith("gpu"):
            return f"The GPU call {self.name} delays {wording.continued(self.who)}"
        if self.metric != "computation":
            return f"Time in {self.name} on {wording.continued(self.who)} makes other ranks wait"
        if self.program:
            if self.alone:
                return f"Only {wording.continued(self.who)} computes between MPI calls; other ranks wait"
            if self.spread:
                return "Computation between MPI calls is imbalanced: the late rank changes"
            return f"{self.who} {'compute' if self.several else 'computes'} longer than other ranks"
        if self.alone:
            return f"Only {wording.continued(self.who)} runs {self.name}; other ranks wait"
        if self.spread:
            return f"{self.name} is imbalanced: the late rank changes"
        return f"{self.who} {'take' if self.several else 'takes'} longer in {self.name} than other ranks"

    def remedy(self) -> str:
        if self.metric == "mpi_io" or (self.writes and self.alone):
            return (
                "Let every rank write its own part (collective MPI-IO, parallel HDF5), write less "
                "often, or write in another thread."
            )
        if self.metric == "p2p_communication":
            return (
                "Send early and without blocking (MPI_Isend), in fewer and larger messages, so that "
                "the next step does not wait for this one."
            )
        if self.metric == "collective_communication":
            return (
                "Use the non-blocking operation or a smaller communicator, or call it less often."
            )
        if self.metric != "computation":
            return BY_NAME[self.metric].remedy or BY_NAME["delay"].remedy
        if self.alone:
            return (
                "Distribute this work over the ranks, repeat it on every rank, or let other ranks "
                "continue meanwhile (non-blocking operations)."
            )
        where = " Record functions or name regions to locate the work." if self.program else ""
        if self.spread:
            return (
                "The work varies between calls, or other programs disturb the ranks: examine the "
                f"timeline, synchronise less often, or balance the load at run time.{where}"
            )
        return (
            f"Give {wording.continued(self.who)} less of this work, or make it faster there.{where}"
        )


def _many_delays(view: View, left: NDArray[np.float64]) -> Finding:
    """Causes that are small one by one, told at the call path that holds most of them."""
    result = view.result
    whole = float(left.sum())
    below = result.inclusive(left[:, None])[:, 0]
    node = 0
    while True:
        inside = [n for n, one in enumerate(result.nodes) if one.parent == node]
        best = max(inside, key=lambda n: float(below[n]), default=-1)
        if best < 0 or below[best] < 0.8 * whole:
            break
        node = best
    parts = [wording.code(view.path(nodes[0])) for _, nodes in view.same_paths(left)[:3]]
    share = np.divide(
        left, result.value("delay").sum(axis=1), out=np.zeros_like(left), where=left > 0
    )
    by_rank = view.by_rank((result.value("delay") * share[:, None]).sum(axis=0))
    ranks = view.ranks(by_rank)
    return view.finding_at(
        node,
        "delay",
        whole,
        ranks,
        f"Many small differences between ranks below {view.name(node)}",
        f"other ranks wait {wording.seconds(whole)}; each call path causes less than "
        f"{wording.percent(SMALL)} of the time",
        f"The largest causes are {wording.joined(parts)}.",
        "Synchronise less often, so that differences average out, or search a common cause: "
        "operating system, memory, a machine shared with other users.",
    )


def _caused_by(view: View, ranks: list[int]) -> NDArray[np.bool_]:
    waits = view.result.waits
    cause = waits["cause"]
    known = (cause >= 0) & (cause < len(view.rank_of))
    rank = np.where(known, view.rank_of[np.where(known, cause, 0)], -1) if len(waits) else cause
    return np.asarray(known & np.isin(rank, ranks))


def _charged(view: View, caused: NDArray[np.bool_], nodes: list[int]) -> NDArray[np.bool_]:
    """Of the waits that some ranks cause those for which call paths are charged most, if any."""
    charged = caused & np.isin(view.result.waits["delay_node"], nodes)
    return charged if charged.any() else caused


def _evidence(view: View, chosen: NDArray[np.bool_]) -> str:
    """The waits that some ranks cause, in words."""
    waits = view.result.waits[chosen]
    if not len(waits):
        return ""
    # By the words of a call path: from two places in a function they are the same.
    sums: dict[tuple[int, str], list[float]] = {}
    ranks: dict[tuple[int, str], set[int]] = {}
    for wait in waits:
        key = (int(wait["metric"]), view.path(int(wait["node"])))
        sums.setdefault(key, []).append(float(wait["end"] - wait["begin"]))
        ranks.setdefault(key, set()).add(int(view.rank_of[wait["location"]]))
    order = sorted(sums, key=lambda key: (-sum(sums[key]), key))
    parts = [
        f"{METRICS[metric].title} in {wording.code(path)} on {view.in_words(ranks[metric, path])}"
        for metric, path in order[:3]
        if sum(sums[metric, path]) >= 0.05 * sum(map(sum, sums.values()))
    ]
    return f"Evidence: {wording.joined(parts)}." if parts else ""
