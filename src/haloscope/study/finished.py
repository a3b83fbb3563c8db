"""Results of a scaling study, read from its folder; `haloscope.open` for runs and studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haloscope.case.toml_files import decoded, read_toml
from haloscope.errors import InputError, counted, html_table, message_line
from haloscope.run.finished import PICTURES, FinishedRun
from haloscope.run.tables import as_table, column_of, read_texts
from haloscope.solvers import registry
from haloscope.study import point, report, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SUMMARY = "summary.json"
# Of table.csv and phases.csv: a name or an id of digits is no number.
_KINDS: dict[str, type] = {
    **dict.fromkeys(("series", "line", "id", "solver", "device", "phase", "status"), str),
    "ok": bool,
}
_SHOWN = ("series", "line", "ranks", "seconds_per_step", "efficiency", "status")
_TRUTH = {"true": True, "false": False}


class FinishedStudy:
    """Results of a scaling study, read from its folder.

    Parameters
    ----------
    folder
        Folder that ``haloscope scale`` has written.

    Attributes
    ----------
    folder
        Its path.
    title
        Title of the study.
    solver
        Name of the solver.
    summary
        Numbers of points by status (done, failed, left out, waiting), and ``ok``: no point failed,
        and all fields that were compared equal those of one rank.
    report
        Text of ``report.md``.
    pictures
        Paths of the pictures.

    Examples
    --------
    >>> import haloscope
    >>> study = haloscope.open("runs/cavity-small-1")  # doctest: +SKIP
    >>> study.points()["efficiency"].max()  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        path = self.folder / table.NAME
        if not path.is_file():
            raise InputError(
                f"the study has written no {table.NAME} yet",
                location=str(self.folder),
                remedy=f"finish it with haloscope scale {self.folder / table.COPY} --out {self.folder}",
            )
        self._points = _columns(path)
        missing = [name for name in (*_SHOWN, "solver", "ok") if name not in self._points]
        if missing:
            raise InputError(
                f"the column {missing[0]} is missing",
                location=str(path),
                remedy="give the folder of a study that has run",
            )
        self.solver = str(next(iter(self._points["solver"]), ""))
        self.title = str(read_toml(self.folder / table.COPY, "study").get("title", ""))
        status = Counter(self._points["status"].tolist())
        self.summary: dict[str, Any] = {
            **{name: status[name] for name in ("done", "failed", "left out", "waiting")},
            "ok": not status["failed"] and False not in self._points["ok"].tolist(),
        }
        page = self.folder / report.NAME
        self.report = decoded(page.read_bytes(), str(page)) if page.is_file() else ""
        self.pictures = sorted(
            one for one in self.folder.iterdir() if one.name.endswith(PICTURES) and one.is_file()
        )

    def __repr__(self) -> str:
        count = counted(len(self._points["status"]), "point")
        about = f"{self.solver}, {count}, {self.summary['done']} done"
        return message_line(f"<study in {self.folder}: {about}>")

    def _repr_html_(self) -> str:
        rows = list(zip(*(self._points[name].tolist() for name in _SHOWN), strict=True))
        title = f"study in {self.folder}: {self.title}"
        return html_table(title, rows, [name.replace("_", " ") for name in _SHOWN])

    def points(self) -> Any:
        """The points of the study, a row each: ``table.csv``.

        Returns
        -------
        pandas.DataFrame or structured ndarray
            A data frame if pandas is installed, else an array (rows,) with the columns as its
            fields: ``series``, ``ranks``, the parameters of the solver, ``seconds_per_step``,
            rates, ``speedup``, ``efficiency``, ``ok`` (True, False, or None of a point that was
            not compared with one rank), ``status``, ``reason`` and more. Numbers of a point that
            was not measured are nan.
        """
        return as_table(self._points)

    def phases(self) -> Any:
        """Seconds per step of each phase at each point, as :meth:`points`: ``phases.csv``.

        Raises
        ------
        InputError
            The study has measured no phases.
        """
        path = self.folder / point.NAME
        if not path.is_file():
            raise InputError(
                "the study has measured no phases",
                location=str(self.folder),
                allowed="studies with phases = true",
            )
        return as_table(_columns(path))

    def plot(
        self, name: str = "efficiency", *, across: str = "ranks", ax: Axes | None = None
    ) -> Axes:
        """Draw a column of the points over another one, a line for each series.

        Parameters
        ----------
        name
            Of a column of numbers.
        across
            Of the column along the horizontal axis.
        ax
            Axes to draw on; of a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        InputError
            There is no column of numbers of this name, or no point has a number in it.
        """
        numbers = [key for key, column in self._points.items() if column.dtype.kind in "if"]
        for key in (name, across):
            if key not in numbers:
                raise InputError(
                    "there is no such column of numbers",
                    location=f"plot {key!r} of {self.folder}",
                    allowed=", ".join(numbers),
                )
        x, y = (self._points[key].astype(np.float64) for key in (across, name))
        known = np.isfinite(x) & np.isfinite(y)
        if not known.any():
            raise InputError("no point has a number", location=f"plot {name!r} of {self.folder}")
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(layout="constrained")
        labels = np.array([", ".join(filter(None, names)) for names in self._lines()])
        for label in dict.fromkeys(labels[known].tolist()):
            places = np.flatnonzero(known & (labels == label))
            places = places[np.argsort(x[places], kind="stable")]
            ax.plot(x[places], y[places], marker="o", label=label)
        if self._points[across].dtype.kind == "i":
            ax.set_xticks(np.unique(x[known]))
        ax.set_xlabel(across.replace("_", " "))
        ax.set_ylabel(name.replace("_", " "))
        ax.set_title(self.title, parse_math=False)
        for text in ax.legend().get_texts():
            text.set_parse_math(False)
        return ax

    def _lines(self) -> list[tuple[str, ...]]:
        """Series, line within it, and host if there are several, of each point."""
        keys = ["series", "line"]
        if len(set(self._points.get("host", np.empty(0)).tolist()) - {""}) > 1:
            keys.append("host")
        return list(zip(*(self._points[key].tolist() for key in keys), strict=True))


def open(folder: str | Path) -> FinishedRun | FinishedStudy:
    """Open the results of a finished run or study.

    Parameters
    ----------
    folder
        Folder of the outputs, such as ``runs/cavity-demo-1``.

    Returns
    -------
    FinishedRun or FinishedStudy
        Of a run: summary, tables, fields at all output times, and pictures. Of a study: its
        points as a table, report and pictures.

    Raises
    ------
    InputError
        It is the folder of neither.
    """
    folder = Path(folder)
    if (folder / _SUMMARY).exists():
        return FinishedRun(folder)
    if (folder / table.COPY).exists():
        return FinishedStudy(folder)
    raise InputError(
        f"it holds no {_SUMMARY} of a run and no {table.COPY} of a study"
        if folder.is_dir()
        else "the folder does not exist",
        location=str(folder),
        remedy="give the folder of a run or a study that has ended",
    )


def _columns(path: Path) -> dict[str, NDArray[Any]]:
    """Columns of a study's table: text, numbers (nan where there is none), True, False or None."""
    texts = read_texts(path)
    solver = next(iter(texts.get("solver", ())), "")
    kinds = {**_KINDS, **(table.columns(solver) if solver in registry.NAMES else {})}
    try:
        return {name: _column(cells, kinds.get(name)) for name, cells in texts.items()}
    except ValueError as error:
        raise InputError(f"a cell cannot be read ({error})", location=str(path)) from error


def _column(cells: Sequence[str], kind: type | None) -> NDArray[Any]:
    if kind is str:
        return np.array(cells, np.str_)
    if kind is bool:
        return np.array([_TRUTH.get(text) for text in cells], object)
    if kind is None or kind is int:
        return column_of(cells)
    # Where no point was measured, too.
    return np.array([float(text or "nan") for text in cells], np.float64)
