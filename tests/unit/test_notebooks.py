"""Claims about notebooks, without Jupyter: short tables whose texts are no markup, a line of progress."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from finished_runs import write_finished_run
from python_cases import CELLS, case_of
from small_cavities import simulate
from trace_text import parse, write

import haloscope
import haloscope.scope
from haloscope.errors import html_table
from haloscope.exchange.ranks.world import World
from haloscope.run import state as progress_of_runs
from haloscope.run.state import ProgressLine, Silent, in_notebook, shown

# Markup, a quote, an escape sequence and a mark that turns the direction of writing.
HOSTILE = "<script>'\"&\x1b[2J\u202e"
_TRACE = Path(__file__).with_name("traces") / "late_sender.trace"
_MARKUP = re.compile(r"</?(table|caption|tr|td|th)( style=\"text-align: left\")?>")


def assert_harmless(page: str) -> None:
    """Refuse other markup than that of a table, and what a terminal would obey."""
    assert page.startswith("<table><caption>")
    assert page.count("<table>") == page.count("</table>") == 1
    assert "<" not in _MARKUP.sub("", page)
    assert page.isprintable()


@pytest.fixture
def kernel(monkeypatch):
    """A shell of IPython with a kernel, as a notebook has it."""
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    return ipython


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_texts_of_tables_are_escaped_and_cut():
    page = html_table(HOSTILE, [(HOSTILE, 0.123456), ("a" * 999, "b\nc")], [HOSTILE])
    assert_harmless(page)
    assert "&lt;script&gt;&#x27;&quot;&amp;\\x1b[2J\\u202e" in page
    assert "0.1235" in page
    assert "b c" in page
    assert len(page) < 1500
    rows = html_table("many", [(number,) for number in range(38)])
    assert "and 18 more rows" in rows
    assert rows.count("<tr>") == 21


def test_a_simulation_shows_its_case_and_state():
    simulation = haloscope.load(case_of("blood"), settings={**CELLS, "title": "a<b"})
    simulation.run(2, ceilings=False)
    page = simulation._repr_html_()
    assert_harmless(page)
    for text in ("simulation case: a&lt;b", "blood", "2 of 4", "pressure", "(Pa)"):
        assert text in page
    assert repr(simulation).startswith("<simulation case: blood on ")
    assert repr(simulation).endswith(", step 2 of 4>")
    simulation.name = HOSTILE
    assert_harmless(simulation._repr_html_())
    assert repr(simulation).isprintable()


def test_a_finished_run_shows_its_summary(tmp_path):
    folder = write_finished_run(
        tmp_path / "run", title=HOSTILE, case={"a": HOSTILE}, notices=[f"warning: {HOSTILE}", 3]
    )
    (folder / f"{HOSTILE.replace('/', '')}.csv").write_text("step\n1\n")
    run = haloscope.open(folder)
    page = run._repr_html_()
    assert_harmless(page)
    for text in ("12.5 Mcells/s", "residuals", "overview.png", "mean Nusselt number 4.5"):
        assert text in page
    assert page.count("warning: &lt;script&gt;") == 1
    assert repr(run).isprintable()
    (folder / "summary.json").write_text('{"steps": []}')
    assert_harmless(haloscope.open(folder)._repr_html_())


def test_a_study_shows_its_points(tmp_path):
    (tmp_path / "study.toml").write_text(f"title = {json.dumps('a <b> $x_$')}\n")
    head = "series,line,id,solver,ranks,seconds_per_step,efficiency,ok,status"
    rows = [f"{HOSTILE.replace(chr(34), '')},,{n},cavity,{n + 1},0.01234567,," for n in range(22)]
    text = "\n".join([head, *(f"{row},done" for row in rows)])
    (tmp_path / "table.csv").write_text(f"{text}\n".replace(",,,done", ",,true,done"))
    study = haloscope.open(tmp_path)
    page = study._repr_html_()
    assert_harmless(page)
    for text in ("a &lt;b&gt; $x_$", "seconds per step", "0.01235", "and 2 more rows"):
        assert text in page
    assert repr(study).isprintable()


def test_a_measurement_shows_its_times(tmp_path):
    write(parse(_TRACE.read_text()), tmp_path)
    run = haloscope.scope.open(tmp_path)
    run._measurement.about["command"] = [HOSTILE, "case.toml"]
    page = run._repr_html_()
    assert_harmless(page)
    total = f"{run.result.total('late_sender'):.4g} s"
    for text in ("case.toml", "trace", "Late Sender", total):
        assert text in page
    assert repr(run).endswith(": 2 ranks, trace>")


def test_a_kernel_makes_a_notebook_and_a_terminal_none(kernel, monkeypatch):
    assert in_notebook()
    kernel.get_ipython = object  # IPython in a terminal has a shell without a kernel
    assert not in_notebook()
    kernel.get_ipython = lambda: None
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()
    assert "IPython" not in sys.modules


class _Clock:
    """Time that goes on by an eighth of a second whenever it is asked for."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.125
        return self.now


@pytest.fixture
def _clock(monkeypatch):
    monkeypatch.setattr(progress_of_runs, "time", _Clock())


@pytest.mark.usefixtures("_clock")
def test_the_line_is_written_over_itself_and_warnings_stay():
    stream = io.StringIO()
    line = ProgressLine(stream)
    for step in range(50, 700, 50):
        line.update(step, 1000, "5 Mcells/s", 1e-3)
    line.line("3 steps take at least 1 s")
    line.line(f"warning: {HOSTILE}")
    line.update(1000, 1000, "5 Mcells/s", None)
    line.close()
    *overwritten, warning, end = stream.getvalue().split("\r")[1:]
    # Nothing in the first second, then every other time.
    steps = [text.split("/")[0] for text in overwritten]
    assert steps == ["step 400", "step 500", "step 600"]
    assert overwritten[0] == "step 400/1000, 5 Mcells/s, residual 1.0e-03, 2 s left"
    assert warning.startswith("warning: <script>")
    assert warning.endswith("\n")
    assert warning.rstrip().isprintable()
    assert end == "step 1000/1000, 5 Mcells/s\n"


@pytest.mark.usefixtures("_clock")
def test_a_shorter_line_covers_the_longer_one_before():
    stream = io.StringIO()
    line = ProgressLine(stream)
    for step in range(1, 9):
        line.update(step, 9, "1000 Mcells/s", 1e-3)
    line.update(9, 9, "1 cells/s", None)
    _, longer, shorter = stream.getvalue().split("\r")
    assert len(shorter) == len(longer)


def test_a_short_run_shows_nothing():
    stream = io.StringIO()
    line = ProgressLine(stream)
    for step in range(100):
        line.update(step, 99, "5 Mcells/s", None)
    line.close()
    assert stream.getvalue() == ""


class _OtherRank(World):
    is_root = False


def _is_shown(choice: object, world: World | None = None) -> bool:
    with shown(choice, world or World()) as progress:
        return not isinstance(progress, Silent)


def test_progress_is_for_notebooks_and_on_request_for_terminals(kernel, monkeypatch):
    assert [_is_shown(choice) for choice in (None, True, False)] == [True, True, False]
    assert not _is_shown(None, _OtherRank())
    monkeypatch.delitem(sys.modules, "IPython")
    monkeypatch.setattr(sys, "stderr", _Terminal())
    assert [_is_shown(choice) for choice in (None, True, False)] == [False, True, False]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert [_is_shown(choice) for choice in (None, True, False)] == [False] * 3


def test_a_run_shows_its_steps_in_a_notebook(kernel, monkeypatch, capsys):
    monkeypatch.setattr(progress_of_runs, "_FIRST_SECONDS", 0.0)
    simulation = simulate()
    simulation.run(20, ceilings=False)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert re.fullmatch(r"(\rstep \d+/20, [^\r\n]*)+\n", captured.out)
    assert "\rstep 20/20, " in captured.out
    simulation.run(40, ceilings=False, progress=False)
    monkeypatch.delitem(sys.modules, "IPython")
    simulation.run(60, ceilings=False, progress=True)
    assert capsys.readouterr() == ("", "")
