"""Claims about arrays that restarts take over: what cannot have been written is refused in one line."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

from haloscope.errors import InputError
from haloscope.io import checkpoint as checkpoints
from haloscope.solvers.interface import saved_counts, saved_numbers


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (None, "is not there"),
        (np.array([b"a", b"b"]), "holds no numbers"),
        (np.array([1.0, 2.0, 3.0]), r"has the shape \[3\], and \[2\] is allowed"),
        (np.array([[1.0, 2.0]]), r"has the shape \[1, 2\], and \[2\]"),
        (np.array(2.0), r"has the shape \[\], and \[2\]"),
        (np.array([1.0, np.nan]), "not finite"),
        (np.array([1.0, np.inf]), "not finite"),
        (np.array([1.0, -1.0]), "outside of 0 to"),
        (np.array([1.0, 1e300]), "outside of 0 to"),
        (np.array([1.0, 0.5]), "not whole"),
    ],
)
def test_what_are_no_counts_is_refused_in_one_line(values, said):
    saved = {} if values is None else {"counts": values}
    with pytest.raises(InputError, match=said) as told:
        saved_counts(saved, "counts", (2,))
    assert "'counts'" in str(told.value)
    assert "\n" not in str(told.value)
    assert "restart from an earlier one" in str(told.value)


def test_whole_numbers_of_any_kind_are_counts_and_numbers_may_have_any_length():
    for kind in ("i8", "u2", "f8", "f4", "?"):
        found = saved_counts({"n": np.array([0, 1], kind)}, "n", (2,))
        assert found.dtype == np.int64
        assert found.tolist() == [0, 1]
    rows = np.array([[1.5, np.nan]] * 3)
    found = saved_numbers({"rows": rows}, "rows", (None, 2), finite=False)
    np.testing.assert_array_equal(found, rows)
    assert saved_numbers({"rows": rows[:0]}, "rows", (None, 2)).shape == (0, 2)


_FLOAT = np.dtype("f8")


def _written(path, extras):
    given = {"solver": "none", "shape": (2,), "step": 3, "content": {"a": 1}, "extras": extras}
    with checkpoints.writing(path, **given) as write:
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
        found = saved.extras()
        assert saved.content == {"a": 1}
    assert found.keys() == extras.keys()
    for name, values in extras.items():
        np.testing.assert_array_equal(found[name], values)
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
