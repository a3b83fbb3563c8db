"""Refuses results whose call tree does not fit together, before it is walked."""

from __future__ import annotations

from haloscope.errors import InputError
from haloscope.scope.analysis.result import Result


def check_call_tree(result: Result) -> None:
    """See that parents come before their children and that all name a region."""
    for number, node in enumerate(result.nodes):
        if not (-1 <= node.parent < number and 0 <= node.region < len(result.regions)):
            raise InputError(
                f"the call tree of the analysis does not fit together at node {number}; run "
                "haloscope analyze on the measurement again"
            )
