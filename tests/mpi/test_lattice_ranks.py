"""Claims about a sparse lattice on several ranks: its parts are one rank's, and ghosts are right."""

from __future__ import annotations

from pathlib import Path

import pytest

_CONTRACT = Path(__file__).with_name("lattice_contract.py")


@pytest.mark.parametrize(("ranks", "transports"), [(3, ("staged", "repacked")), (4, ("auto",))])
def test_a_lattice_shared_out_is_the_lattice_of_one_rank(run_ranks, ranks, transports):
    assert "messages, all right" in run_ranks(ranks, [_CONTRACT, *transports]).stdout
