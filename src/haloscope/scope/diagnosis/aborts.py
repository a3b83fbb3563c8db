"""MPI_Abort: which rank ended the program, with which code, and where."""

from __future__ import annotations

import numpy as np

from haloscope.scope.diagnosis import wording
from haloscope.scope.diagnosis.findings import Finding, View

ABORT = "MPI_Abort"


def findings(view: View) -> list[Finding]:
    """One finding for each call path at which ranks have called MPI_Abort; before all others."""
    result = view.result
    codes = _codes(view)
    visits = result.value("visits")
    listed: list[Finding] = []
    for node, one in enumerate(result.nodes):
        region = result.regions[one.region]
        if region.paradigm != "mpi" or region.name != ABORT:
            continue
        by_rank = view.by_rank(visits[node])
        ranks = np.flatnonzero(by_rank > 0).tolist() or sorted(codes)
        if not ranks:
            continue
        said = sorted({codes[rank] for rank in ranks if rank in codes})
        figure = (
            f"error code {wording.joined([str(code) for code in said])}"
            if said
            else "error code unknown"
        )
        seconds = float(result.value("time")[node].sum())
        listed.append(
            Finding(
                "mpi_management",
                seconds,
                ranks,
                view.names(node),
                f"{wording.begun(view.in_words(ranks))} called MPI_Abort",
                figure,
                "It ended all ranks: the measurement shows the program up to there.",
                "Look at why the program gives up at this place; what it prints on standard error "
                "says more.",
                node,
                view.share(seconds),
            )
        )
    return listed


def _codes(view: View) -> dict[int, int]:
    aborts = view.result.about.get("aborts")
    pairs = aborts if isinstance(aborts, list) else []
    return {
        pair[0]: pair[1]
        for pair in pairs
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int) for x in pair)
    }
