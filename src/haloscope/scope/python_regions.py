"""Tells the preloaded recorder of regions written in Python: ``with haloscope.region("name")``.

`haloscope measure` preloads the recorder into the program and sets ``HALOSCOPE_MEASURE``; then
:mod:`haloscope.scope.regions` comes here. Elsewhere this module is not even imported.
"""

from __future__ import annotations

import ctypes

from haloscope.scope.regions import Region, record_with

_FILTERED = 0xFFFFFFFF


def record() -> bool:
    """Record every region from now on; False where no recorder is in this process.

    The functions are put right into the class: a listener in between would double the cost.
    """
    # Calls of a PyDLL keep the interpreter's lock: they are too short to give it away.
    process = ctypes.PyDLL(None)
    try:
        number_of = process.haloscope_region
        begin = process.haloscope_enter_script
        end = process.haloscope_leave
    except AttributeError:
        return False
    number_of.argtypes, number_of.restype = [ctypes.c_char_p], ctypes.c_uint32
    # Without types of their arguments, which are small integers here, calls cost less than half.
    begin.restype = end.restype = None
    recorded: dict[int, int] = {}

    def enter(region: Region) -> None:
        try:
            begin(recorded[region.number])
        except KeyError:
            name = region.name.replace("\0", " ").encode("utf-8", "replace")
            recorded[region.number] = number_of(name)
            begin(recorded[region.number])

    def leave(region: Region, kind: object, error: object, trace: object) -> None:
        end(recorded.get(region.number, _FILTERED))

    record_with(enter, leave)
    return True
