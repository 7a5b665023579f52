"""Facts from Linux: the processor's instruction sets, and the cores and memory that this process may use."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path, PurePosixPath

import psutil

from dietlab.base.errors import HardwareError

SYS_ARCH_PRCTL = 158
"""The system call ``arch_prctl`` on x86-64, as a number."""

ARCH_REQ_XCOMP_PERM = 0x1023
"""The code of a request for permission to use a part of the processor's state (Linux's documentation, "Using
XSTATE features in user space applications")."""

XFEATURE_XTILEDATA = 18
"""The index of AMX's tiles among the parts of the processor's state."""

CGROUPS = Path("/sys/fs/cgroup")
"""Folder where control groups are mounted: version 2 itself, or a folder for each controller of version 1."""

QUOTA = "cpu.cfs_quota_us"
"""File of a version 1 group with its processor time per period; the file's name begins with the
controller's."""

PERIOD = "cpu.cfs_period_us"
"""File of a version 1 group with the length of a period."""

MEMORY = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
"""For each version of control groups, 2 and 1: a group's files with its limit and its use in bytes, and the
prefix of the lines in ``memory.stat`` that include the groups below it."""

OWN_CGROUPS = Path("/proc/self/cgroup")
"""File with this process's control groups, a line ``number:controllers:path`` for each hierarchy."""


def cpuinfo() -> list[str]:
    """Returns the lines of ``/proc/cpuinfo``.

    Raises:
        HardwareError: on another system than Linux.
    """
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise HardwareError(
            "detection needs Linux's /proc/cpuinfo",
            platform.system(),
            "Describe the machine with Hardware(...), or use a preset or a file (--hardware).",
        ) from None


def flags() -> frozenset[str]:
    """Returns the instruction sets that processor *and* system support: ``/proc/cpuinfo`` omits instruction
    sets whose registers Linux does not save."""
    for line in cpuinfo():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def amx_permitted() -> bool:
    """Requests AMX's tiles for this process and returns whether the system permits them (from Linux 5.16)."""
    try:
        arch_prctl = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    return bool(arch_prctl(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0)


def usable_cores(mounted: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Returns the number of cores that this process can keep busy: the number of cores it may run on or, if
    smaller, its container's quota, rounded down.

    A quota of 1.5 counts as one core: two threads would use it up and then both stop for the rest of each
    period.
    """
    allowed = len(os.sched_getaffinity(0))
    limit = quota(mounted, own)
    return allowed if limit is None else max(1, min(allowed, int(limit)))


def quota(mounted: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Returns the limit in cores (seconds of processor time per second) that control groups set for this
    process; None if they set none.

    It is the smallest limit of the process's group and of all groups above: ``cpu.max`` of version 2, or
    ``cpu.cfs_quota_us`` over ``cpu.cfs_period_us`` of version 1. Missing groups are skipped: in a container,
    the mounted folder may be the group itself, while the listed path is the group's path on the host.
    """
    folders = _groups(mounted, own, QUOTA.partition(".")[0])
    return min((limit for folder in folders if (limit := _limit(folder)) is not None), default=None)


def free_bytes(mounted: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Returns the bytes of memory that this process can still allocate: the bytes available on the system, or
    fewer if its control groups leave fewer. Cached files count as free."""
    found = [int(psutil.virtual_memory().available)]
    for folder, (limit, used, whole) in product(_groups(mounted, own, "memory"), MEMORY):
        with suppress(OSError, ValueError):  # no such group, or no limit: "max"
            most, taken = (int((folder / name).read_text(encoding="utf-8")) for name in (limit, used))
            lines = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
            stat = {name: int(value) for name, value in map(str.split, lines)}
            files = sum(stat.get(f"{whole}{part}_file", 0) for part in ("active", "inactive"))
            found.append(most - taken + files)
    return max(0, min(found))


def _groups(mounted: Path, own: Path, controller: str) -> Iterator[Path]:
    """Yields the folders of this process's groups with this controller, and of all groups above them."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        # A line of version 2 names no controller; beside version 1 ("hybrid") it has a separate folder.
        roots = (
            [mounted / controllers, mounted / controller] if controllers else [mounted, mounted / "unified"]
        )
        inside = PurePosixPath(path.lstrip("/"))
        for root in roots:
            yield from (root / group for group in (inside, *inside.parents) if ".." not in group.parts)


def _limit(folder: Path) -> float | None:
    """Returns the limit of one group, in cores; None if it sets none or is missing."""
    try:
        if (version_2 := folder / "cpu.max").exists():
            given, period = version_2.read_text(encoding="utf-8").split()
        else:
            given, period = ((folder / name).read_text(encoding="utf-8").strip() for name in (QUOTA, PERIOD))
        return float(given) / float(period) if given not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
