"""Logs of other tuners, known by what a line of theirs holds: no file of records of ours, but often taken for
one."""

from __future__ import annotations

import json
from typing import Any

OURS = (
    "dietlab reads its records, and databases of MetaSchedule as tables: "
    "`dietlab records table FOLDER --out FILE`."
)


def told_of(line: str) -> tuple[str, str]:
    """Returns what a file is whose first line this is, as in ``"is a log of AutoTVM"``, and what can be done
    with it; both are empty for a line that is not known."""
    if line.rstrip() in ("{", "["):
        return "is JSON over several lines, such as a report, a study's or a model's", ""
    try:
        value = json.loads(line)
    except ValueError:
        return "", ""
    found = next((name for name, holds in KNOWN.items() if holds(value)), "")
    return (f"is {found}", OURS) if found else ("", "")


def _is_autotvm(value: Any) -> bool:
    new = isinstance(value, dict) and {"input", "config", "result"} <= {*value}
    return new or (_has_versions(value) and isinstance(value["v"], float))


def _is_ansor(value: Any) -> bool:
    return _has_versions(value) and isinstance(value["v"], str)


def _has_versions(value: Any) -> bool:
    """Returns whether a line has the fields that both wrote: AutoTVM's first with the version 0.1, Ansor's
    with ``v0.6``."""
    return isinstance(value, dict) and {"i", "r", "v"} <= {*value}


def _is_workload(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [str, str]


def _is_tuned(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [int, list]


KNOWN = {
    "a log of TVM's AutoTVM": _is_autotvm,
    "a log of TVM's auto-scheduler (Ansor)": _is_ansor,
    "the workloads of a database of TVM's MetaSchedule": _is_workload,
    "the tuned programs of a database of TVM's MetaSchedule": _is_tuned,
}
"""What tells the lines of other tuners."""
