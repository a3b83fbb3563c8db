"""Claims about arrays that restarts take over: what cannot have been written is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.io import checkpoint as checkpoints
from haloscope.solvers.interface import saved_counts, saved_numbers


@pytest.mark.parametrize(
    ("values", "problem", "allowed"),
    [
        (None, "missing", "^$"),
        (np.array([b"a", b"b"]), "holds no numbers", "^$"),
        (np.array([1.0, 2.0, 3.0]), r"its shape is \[3\]", r"^\[2\]$"),
        (np.array([[1.0, 2.0]]), r"its shape is \[1, 2\]", r"^\[2\]$"),
        (np.array(2.0), r"its shape is \[\]", r"^\[2\]$"),
        (np.array([1.0, np.nan]), "not finite", "^$"),
        (np.array([1.0, np.inf]), "not finite", "^$"),
        (np.array([1.0, -1.0]), "out of range", "^0 to 9.0072e"),
        (np.array([1.0, 1e300]), "out of range", "^0 to 9.0072e"),
        (np.array([1.0, 0.5]), "not whole", "^$"),
    ],
)
def test_arrays_that_are_no_counts_are_refused_in_one_line(values, problem, allowed):
    saved = {} if values is None else {"counts": values}
    with refused(
        location="^checkpoint: 'counts'$",
        problem=f"{problem}.*; the checkpoint is damaged or of another case$",
        allowed=allowed,
        remedy="^restart from an earlier one",
    ) as refusal:
        saved_counts(saved, "counts", (2,))
    assert "\n" not in refusal.text


def test_whole_numbers_of_any_kind_are_counts_and_numbers_may_have_any_length():
    for kind in ("i8", "u2", "f8", "f4", "?"):
        saved = saved_counts({"n": np.array([0, 1], kind)}, "n", (2,))
        assert saved.dtype == np.int64
        assert saved.tolist() == [0, 1]
    rows = np.array([[1.5, np.nan]] * 3)
    saved = saved_numbers({"rows": rows}, "rows", (None, 2), finite=False)
    np.testing.assert_array_equal(saved, rows)
    assert saved_numbers({"rows": rows[:0]}, "rows", (None, 2)).shape == (0, 2)


_FLOAT = np.dtype("f8")


def _written(path, extras):
    arguments = {"solver": "none", "shape": (2,), "step": 3, "content": {"a": 1}, "extras": extras}
    with checkpoints.writing(path, **arguments) as write:
        write("u", _FLOAT, [(0, np.array([1.0, 2.0]))])


def _opened(path):
    return checkpoints.Checkpoint(path, solver="none", shape=(2,), fields=["u"], dtype=_FLOAT)


def test_extras_and_content_that_are_not_what_was_written_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "checkpoint-0000000003.h5"
    extras = {"rows": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 8)), "n": np.array([7])}

    def changed(name, place, value, *, old=False):
        _written(path, extras)
        with h5py.File(path, "a") as file:
            file[name][place] = value
            if old:
                del file[name].attrs["crc32"]

    _written(path, extras)
    with _opened(path) as saved:
        restored = saved.extras()
        assert saved.content == {"a": 1}
    assert restored.keys() == extras.keys()
    for name, values in extras.items():
        np.testing.assert_array_equal(restored[name], values)
    # Fletcher's sums are written anew with the values, and do not see it.
    changed("extras/rows", (1, 2), 4.0)
    with (
        _opened(path) as saved,
        refused(location="^checkpoint ", problem="is damaged", remedy="delete"),
    ):
        saved.extras()
    changed("content", 5, ord("2"))
    with refused(location="^checkpoint ", problem="is damaged", remedy="delete"):
        _opened(path)
    # Files of before have no such sums.
    changed("extras/rows", (1, 2), 4.0, old=True)
    with _opened(path) as saved:
        assert saved.extras()["rows"][1, 2] == 4.0


@pytest.mark.parametrize("values", [b"text", [b"some", b"text"], 3.0, "folder"])
def test_extras_of_another_kind_are_refused(tmp_path, values):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "checkpoint-0000000003.h5"
    _written(path, {"n": np.array([7])})
    with h5py.File(path, "a") as file:
        del file["extras/n"]
        if isinstance(values, str):
            file.create_group("extras/n")
        else:
            file["extras/n"] = values
    with (
        _opened(path) as saved,
        refused(location="^checkpoint ", problem="is damaged", remedy="delete"),
    ):
        saved.extras()
