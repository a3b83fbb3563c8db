"""Claims about arrays of processor cores: where in memory they lie."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from haloscope.device.cpu import CpuDevice

_HUGE_PAGE = 2 << 20
_ADVISED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def _flags_of(address: int) -> set[str]:
    """What the kernel says of the mapping that an address lies in."""
    within = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        bounds = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if bounds:
            within = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif within and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    return set()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of mappings in /proc")
@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="no huge pages on this system")
@pytest.mark.skipif(not _ADVISED.exists(), reason="no huge pages on this system")
def test_large_arrays_are_private_memory_that_asks_for_huge_pages():
    array = CpuDevice(threads=1).empty((4 * _HUGE_PAGE,), np.uint8)
    flags = _flags_of(array.ctypes.data + 2 * _HUGE_PAGE)
    # Shared memory gets none on most systems, whatever it asks for.
    assert "hg" in flags
    assert "sh" not in flags


def test_large_arrays_are_zero_and_begin_at_different_cache_lines_of_a_page():
    device = CpuDevice(threads=1)
    arrays = [device.zeros((2 * _HUGE_PAGE,), np.uint8) for _ in range(4)]
    places = [array.ctypes.data % mmap.PAGESIZE for array in arrays]
    assert len(set(places)) == len(places)
    assert all(place % 64 == 0 for place in places)
    assert not any(array.any() for array in arrays)
