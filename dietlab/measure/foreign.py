"""Recognises logs of other tuners by their first line: users mistake such logs for files of records."""

from __future__ import annotations

from typing import Any

from dietlab.base.files import parse_json

OURS = (
    "dietlab reads its records, and databases of MetaSchedule as tables: "
    "`dietlab records table FOLDER --out FILE`."
)


def recognised(line: str) -> tuple[str, str]:
    """Returns two texts about a file with this first line: the kind of file, as in ``"is a log of AutoTVM"``,
    and a remedy. Both are empty for an unknown line."""
    if line.rstrip() in ("{", "["):
        return "is JSON over several lines, such as a report, a study's or a model's", ""
    try:
        value = parse_json(line)
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
    """Returns whether a line has the fields that early logs of AutoTVM (version 0.1) and logs of Ansor
    (``"v0.6"``) share."""
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
"""Files of other tuners, each with a test of a line's value."""
