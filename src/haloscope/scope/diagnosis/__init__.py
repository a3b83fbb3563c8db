"""Findings: the few causes that cost most time, in words, ranked by lost time.

Imported by analysis, report, maps, explorer and trace; imports analysis/result, analysis/metrics,
maps and trace.
"""

from __future__ import annotations

from haloscope.scope.analysis.result import Result
from haloscope.scope.diagnosis import conditions, costs, message_costs, waits
from haloscope.scope.diagnosis import findings as wording
from haloscope.scope.diagnosis.findings import Finding, View

_MOST_OF_IT = 0.9  # of the run: with less, the report states the recorded part


def diagnose(result: Result) -> list[Finding]:
    """Find what costs most time, by root cause.

    A wait with a known cause is reported as that cause. Time of messages is reported with the waits
    that it causes; empty messages have a finding of their own.
    """
    # Where ranks lack cores for :data:`haloscope.scope.diagnosis.conditions.MUCH` of their time, that
    # alone. A call of MPI_Abort comes first.
    view = View.of(result)
    if view.total <= 0:
        return []
    aborted = conditions.abort_findings(view)
    if conditions.lacks_cores(result):
        return [conditions.core_finding(view), *aborted]
    return [*aborted, *_findings(view)]


def _findings(view: View) -> list[Finding]:
    beside = message_costs.carries_nothing(view)
    findings = [*message_costs.findings(view), *costs.findings(view)]
    for one in findings:
        waits.take_delays(view, one, beside)
    findings += waits.findings(view, beside, message_costs.waiting_in_empty_messages(view))
    return wording.ranked(findings)


def answer(result: Result, findings: list[Finding]) -> list[str]:
    """The diagnosis in three sentences."""
    view = View.of(result)
    if view.total <= 0:
        return ["The measurement holds no time: nothing was recorded."]
    ranks = wording.things(result.size, "rank")
    span = float(result.about.get("span") or 0.0)
    mpi, waiting = result.total("mpi"), waits.waiting(view)
    if conditions.lacks_cores(result):
        lost, share = conditions.seconds_without_core(result)
        due = view.share(min(mpi, lost))
        return [
            f"The run takes {wording.seconds(span)} on {ranks}. The ranks lack cores for "
            f"{wording.percent(share)} of their time.",
            f"Waits and transfers include this time: MPI takes {wording.percent(view.share(mpi))} of the "
            f"time, and the lack of cores may cause up to {wording.percent(due)}.",
            f"First step: {wording.continued(findings[0].remedy)}",
        ]
    work = result.total("computation")
    first = f"The run takes {wording.seconds(span)} on {ranks}"
    recorded = float(result.by_first_thread("time").max(initial=0.0))
    if recorded < _MOST_OF_IT * span:
        first += f" ({wording.seconds(recorded)} recorded)"
    parts = [f"{wording.percent(view.share(work))} is computation"]
    kernels = result.total("gpu_wait_kernels")
    if kernels > 0:
        parts.append(f"{wording.percent(view.share(kernels))} is waiting while kernels run")
    # Said where it is more than what is named as the largest loss.
    once = sum(one.seconds for one in findings if one.once and one.metric == "mpi_management")
    apart = bool(findings) and not findings[0].once and once > findings[0].seconds
    if mpi > 0:
        starting = f" ({wording.percent(view.share(once))} to start and end MPI)" if apart else ""
        parts.append(f"{wording.percent(view.share(mpi))} is MPI{starting}")
    first += f"; of the time of all ranks, {wording.joined(parts)}"
    if waiting > 0.01 * view.total:
        waiting_share = wording.percent(waiting / max(mpi, 1e-300))
        first += f" ({waiting_share} of the MPI time is waiting for other ranks)"
    if not findings:
        return [
            f"{first}.",
            "No cause loses a notable share of the time.",
            "To shorten the run, make the computation faster or use more ranks.",
        ]
    worst = findings[0]
    if worst.call_path[-1:] == (conditions.ABORT,):
        place = f"in {wording.code(worst.where)}"
        return [f"{first}.", f"{worst.title} ({worst.figure}) {place}.", worst.remedy]
    remedy = wording.first_sentence(worst.remedy)
    lost = sum(one.seconds for one in findings)
    second = "Apart from starting and ending MPI, the" if apart else "The"
    second += f" largest loss ({wording.percent(worst.share)} of the time): "
    second += wording.continued(worst.title)
    if worst.where:
        second += f", in {wording.code(worst.where)}"
    if len(findings) > 1:
        third = (
            f"All findings together lose {wording.percent(min(1.0, view.share(lost)))} of the time. "
            f"First step: {wording.continued(remedy)}"
        )
    else:
        third = f"Remedy: {wording.continued(remedy)}"
    return [f"{first}.", f"{second}.", third]
