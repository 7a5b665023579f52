"""The arguments of all widgets: each becomes the value that a widget shows, or an error that says what the
widget takes.

A study or its folder stands for its operator, its processor, its tuning run or its report; the name of a
preset stands for a processor.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dietlab.base.background import require_work
from dietlab.base.errors import DietlabError, DispatchError, HardwareError, RecordError, WorkloadError
from dietlab.compare.results import Report, ResultTable
from dietlab.compare.study import REPORT, Study, read_facts
from dietlab.compare.study_manifest import RECORDS
from dietlab.cost import Known
from dietlab.machine import Hardware
from dietlab.measure import Record, read_records
from dietlab.problem import Workload
from dietlab.tuning import Portfolio, TuningRun, choose_portfolio
from dietlab.view.lab import lab_imports

if TYPE_CHECKING:
    from dietlab.view.widgets.choice import Choice

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound=Known)

Source = ResultTable | Report | Study | str | Path
"""A bench, the report of an evaluation, a study that has a report, or the path of one of these (a bench's
CSV)."""

RunSource = TuningRun | Study | str | Path
"""A tuning run, a study that was tuned, or the folder of one."""


def workload_of(given: object) -> Workload:
    """Returns the given operator, or the operator of a study."""
    _need_lab()
    if isinstance(given, Study):
        return given.workload
    invariant = "a widget's operator must be a value such as Dense(T=Dim(1, 128), N=2304, K=768)"
    remedy = "dl.Study.open(folder).workload is that of a study."
    return _required(given, Workload, WorkloadError, invariant, remedy)  # type: ignore[type-abstract]


def hardware_of(given: object) -> Hardware:
    """Returns the given processor, the preset of a name, or a study's processor."""
    if isinstance(given, Study):
        return given.hardware
    if isinstance(given, str):
        return Hardware.preset(given)
    invariant = "a widget's processor must be a Hardware, or the name of a preset"
    return _required(given, Hardware, HardwareError, invariant, "Hardware.detect() is this machine's.")


def study_of(given: object) -> Study | None:
    """Returns a study, or the one in a folder; None for a value that is neither a study nor a path."""
    if isinstance(given, (str, Path)):
        return Study.open(given)
    return given if isinstance(given, Study) else None


def run_of(given: object) -> TuningRun:
    """Returns a tuning run as it is, and the run of a study or of the folder of one."""
    return known_of(given, TuningRun)


def known_of(given: object, kind: type[Kind]) -> Kind:
    """Returns the run of a study or of the folder of one; any other value is returned if it is of class
    ``kind``."""
    _need_lab()
    study = study_of(given)
    remedy = "dietlab.tune() makes one; a study or its folder has one, too."
    found = given if study is None else study.run()
    return _required(found, kind, RecordError, "the first argument must be a TuningRun", remedy)


def portfolio_of(given: object, run: Known, source: object) -> Portfolio:
    """Returns the given portfolio. For None, returns the portfolio of the library of a study, ``source``, or
    else the best portfolio of the ``run``."""
    if given is not None:
        remedy = "choose_portfolio() makes one; give a Choice as choice=."
        return _required(given, Portfolio, DispatchError, "the second argument must be a Portfolio", remedy)
    study = study_of(source)
    if study is None:
        return choose_portfolio(run)
    most = read_facts(study.folder).get("max_kernels", study.max_kernels)
    return choose_portfolio(run, study.shapes, most)


def records_of(
    given: object, invariant: str = "the measured times of a widget must be records"
) -> tuple[Record, ...]:
    """Returns records as they are, and all records of a study or of the folder of one."""
    study = study_of(given)
    if study is not None:
        return read_records(study.folder / RECORDS).records
    return each_of(given, Record, invariant, "Take dietlab.read_records(path).records.")


def reports_of(given: object) -> tuple[Report, ...]:
    """Returns the given reports, or the reports of a bench, a study or a path."""
    remedy = "Take ResultTable.report or Report.load."
    if isinstance(given, (Report, ResultTable, Study, str, Path)):
        source = read_source(given)
        return source.reports if isinstance(source, ResultTable) else (source,)
    return each_of(given, Report, "measured layers are reports", remedy)


def each_of(given: object, kind: type[Value], invariant: str, remedy: str) -> tuple[Value, ...]:
    """Returns the given values as a tuple, each of class ``kind``."""
    found = given if isinstance(given, Iterable) else (given,)
    return tuple(_required(one, kind, RecordError, invariant, remedy) for one in found)


def read_source(source: object) -> ResultTable | Report:
    """Returns a bench or a report as it is, and reads any other source: from a study or the folder of one its
    report, from a ``.json`` file a report, from any other file a bench."""
    _need_lab()
    if isinstance(source, (ResultTable, Report)):
        return source
    if isinstance(source, Study):
        return Report.load(source.folder / REPORT)
    if not isinstance(source, (str, Path)):
        raise RecordError(
            "the source of speedups must be a ResultTable, a Report, a study, or the path of one",
            _shown(source),
            "Give study.evaluate(...), or ResultTable.load(path).",
        )
    path = Path(source)
    if path.is_dir():
        return Report.load(path / REPORT)
    named = path.name.removesuffix(".gz")
    return Report.load(path) if named.endswith(".json") else ResultTable.load(path)


def choice_of(given: object) -> Choice | None:
    """Returns the given choice, or None."""
    from dietlab.view.widgets.choice import Choice

    if given is None:
        return None
    return _required(given, Choice, DietlabError, "widgets share a Choice", "dl.Choice() makes one.")


def panel_arguments(interval: object, clock: object, title: object, start: object) -> None:
    """Checks the arguments of a tuning panel."""
    if isinstance(interval, (Study, str, Path)):
        raise DietlabError(
            "a TuningPanel takes the least time between two updates, in seconds",
            _shown(interval),
            "TuningPanel.follow(study) shows a study; TuningPanel(start=lambda observers: study.tune(runner, "
            "observers)) tunes one.",
        )
    number = isinstance(interval, Real) and not isinstance(interval, bool)
    if not (number and 0 <= float(interval) < inf):  # type: ignore[arg-type]
        raise DietlabError("the seconds between two updates must be a number from 0 on", _shown(interval))
    _required(title, str, DietlabError, "the title of a panel is a text")
    if not callable(clock):
        raise DietlabError("the clock of a panel must be a function", _shown(clock))
    if start is not None:
        require_work(start)


def _need_lab() -> None:
    """Raises first of all if the extra ``lab`` is missing, and says how to install it."""
    with lab_imports("widgets"):
        import ipywidgets  # noqa: F401


def _required(
    given: object, kind: type[Value], error: type[DietlabError], invariant: str, remedy: str = ""
) -> Value:
    """Returns the value if it is of class ``kind``, or raises ``error``."""
    if isinstance(given, type) or not isinstance(given, kind):
        raise error(invariant, _shown(given), remedy)
    return given


def _shown(given: object) -> str:
    return repr(given) if isinstance(given, (str, int, float, type)) else type(given).__name__
