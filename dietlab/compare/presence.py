"""Checks that contenders are present, before anything is built, tuned or timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.ansor.contender import require_packages
from dietlab.compare.results.row import ANSOR, ContenderInfo
from dietlab.compare.session import Computed, Entrant, TimingSession
from dietlab.compare.target import BOUNDS
from dietlab.machine import Hardware


def require_present(workloads: Iterable[Computed], hardware: Hardware, names: Sequence[str]) -> None:
    """Opens each vendor in its own process, and closes it. For ``ansor`` checks the packages; the other
    bounds are always present.

    Args:
        workloads: the operators, at least one of which each vendor must compute.

    Raises:
        MissingDependencyError: if a vendor is not installed, or computes none of the workloads.
    """
    if ANSOR in names:
        require_packages()
    missing = {name: ContenderInfo(name, "") for name in names if name not in BOUNDS}
    for workload in workloads:
        with TimingSession(workload, hardware, [Entrant(name, name) for name in missing]) as session:
            missing = {one.name: one for one in session.contenders if one.absent}
        if not missing:
            return
    require_all(missing.values())


def require_all(contenders: Iterable[ContenderInfo]) -> None:
    """Raises :class:`MissingDependencyError`, with the reasons, if a contender is absent."""
    absent = [f"{one.name} is absent: {one.absent}" for one in contenders if one.absent]
    if absent:
        rule = "every contender that is named must be available"
        raise MissingDependencyError(rule, "; ".join(absent), "Or name others (--against).")
