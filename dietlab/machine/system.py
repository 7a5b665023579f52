"""Facts that Linux tells: the processor's instruction sets, and how much of it this process may use."""

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

SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""The system call on x86-64 that asks for a part of the processor's state, what it asks, and for which part:
the tiles of AMX (Linux's documentation, "Using XSTATE features in user space applications")."""

CGROUPS = Path("/sys/fs/cgroup")
"""Where control groups are mounted: version 2 itself, or a folder for each controller of version 1."""

QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"
"""The files of a group of version 1; their names begin with that of their controller."""

MEMORY = (("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"))
"""The files of a group that say how many bytes it may use and uses, and how the lines of its ``memory.stat``
begin that count a whole hierarchy, of version 2 and 1."""

OWN_CGROUPS = Path("/proc/self/cgroup")
"""The control groups of this process, a line ``number:controllers:path`` for each hierarchy."""


def cpuinfo() -> list[str]:
    """Returns the lines of ``/proc/cpuinfo``.

    Raises:
        HardwareError: on another system than Linux.
    """
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise HardwareError(
            "detection reads /proc/cpuinfo (Linux)",
            platform.system(),
            "Describe the machine with Hardware(...) or use a preset.",
        ) from None


def flags() -> frozenset[str]:
    """Returns the instruction sets that the processor has *and* whose registers the system saves: Linux
    leaves the others out of ``/proc/cpuinfo``.

    Raises:
        HardwareError: on another system than Linux.
    """
    for line in cpuinfo():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def amx_permitted() -> bool:
    """Returns whether the system lets this process use AMX's tiles; asks it to (Linux 5.16 on)."""
    try:
        arch_prctl = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    return bool(arch_prctl(SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0)


def usable_cores(mounted: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Returns how many cores this process can keep busy: those that it may run on, and no more than whole
    ones of its container's quota.

    A quota of 1.5 counts as one core: two threads would both stop for the rest of a period once they have
    used it up, and each waits for the other.
    """
    allowed = len(os.sched_getaffinity(0))
    limit = quota(mounted, own)
    return allowed if limit is None else max(1, min(allowed, int(limit)))


def quota(mounted: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float | None:
    """Returns the processor time a second that the control groups of this process allow, in cores; None if
    they set no limit.

    The least of its group and of all groups above counts: of version 2 ``cpu.max``, of version 1
    ``cpu.cfs_quota_us`` over ``cpu.cfs_period_us``. In a container, where the mounted folder may be the group
    itself and its path that of the host, groups that are not there are passed over.

    Args:
        mounted: the folder where control groups are mounted.
        own: the file that says which are of this process.
    """
    folders = _groups(mounted, own, QUOTA.partition(".")[0])
    return min((limit for folder in folders if (limit := _limit(folder)) is not None), default=None)


def free_bytes(mounted: Path = CGROUPS, own: Path = OWN_CGROUPS) -> int:
    """Returns how much memory this process may still take: what the system has available, and no more than
    its control groups allow. Files that are kept in memory count as free.

    Args:
        mounted, own: as of :func:`quota`.
    """
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
    """Yields the folders of the groups whose controller limits this process, and of those above them."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        # Version 2 has no name, and its own folder beside those of version 1 ("hybrid").
        roots = (
            [mounted / controllers, mounted / controller] if controllers else [mounted, mounted / "unified"]
        )
        inside = PurePosixPath(path.lstrip("/"))
        for root in roots:
            yield from (root / group for group in (inside, *inside.parents) if ".." not in group.parts)


def _limit(folder: Path) -> float | None:
    """Returns the limit of one group, in cores; None if it sets none or is not there."""
    try:
        if (version_2 := folder / "cpu.max").exists():
            given, period = version_2.read_text(encoding="utf-8").split()
        else:
            given, period = ((folder / name).read_text(encoding="utf-8").strip() for name in (QUOTA, PERIOD))
        return float(given) / float(period) if given not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
