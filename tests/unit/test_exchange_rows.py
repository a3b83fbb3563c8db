"""Claims about rows put together on rank 0: each stands where its number says, whoever had it."""

from __future__ import annotations

import numpy as np
import pytest
from thread_gpus import on_ranks

from haloscope.exchange.plan import rows_on_root
from haloscope.exchange.ranks.world import World

_BEGIN, _END = 20, 29


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_rows_of_all_ranks_stand_in_their_order_on_rank_0(shape, dtype):
    count = _END - _BEGIN
    whole = np.arange(count * int(np.prod(shape))).reshape(count, *shape).astype(dtype)
    numbers = [np.array([28, 20, 23]), np.array([], np.int64), np.array([22, 27, 21, 25, 24, 26])]

    def put_together(world: World) -> np.ndarray | None:
        mine = numbers[world.rank]
        return rows_on_root(world, whole[mine - _BEGIN], mine, _BEGIN, _END)

    gathered, *others = on_ranks(3, put_together)
    assert gathered.dtype == dtype
    np.testing.assert_array_equal(gathered, whole)
    assert others == [None, None]


def test_one_rank_puts_its_own_rows_in_order():
    gathered = rows_on_root(World(), np.array([5.0, 3.0, 4.0]), np.array([2, 0, 1]), 0, 3)
    assert gathered is not None
    assert gathered.tolist() == [3.0, 4.0, 5.0]
