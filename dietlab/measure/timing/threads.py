"""Pins the threads of a measured program to cores."""

from __future__ import annotations

import os
from pathlib import Path

from dietlab.machine import Hardware
from dietlab.machine.system import usable_cores

TASKS = Path("/proc/self/task")


def host_threads(hardware: Hardware) -> int:
    """Returns the number of host threads of a process that measures a processor: the cores that an operator
    uses on a CPU, else all that this process may use."""
    return hardware.cores if hardware.limits.on_host else usable_cores()


def pool_env(threads: int) -> dict[str, str]:
    """Returns the environment variables of TVM's thread pool for a timing process. Idle threads sleep after
    they have yielded the processor 2,000 times, in some tenths of a millisecond. The default is 300,000
    times: idle threads would take a core from the next timed program."""
    return {"TVM_NUM_THREADS": str(threads), "TVM_THREAD_POOL_SPIN_COUNT": "2000"}


def keep_apart() -> bool:
    """Keeps the calling thread off the cores that other threads of this process are bound to; returns whether
    there are such threads.

    TVM binds each thread of its pool to a core, but not the calling thread. If both share a core, each waits
    for the other's time slice: a call of 50 us takes 4 ms, repeatedly, since the system has no reason to move
    either. Only measuring processes should call this function. It does nothing if the system does not list
    threads.
    """
    if not TASKS.is_dir():
        return False
    mine = os.sched_getaffinity(0)
    others = (_cores_of(int(task.name)) for task in TASKS.iterdir())
    taken = {core for cores in others if len(cores) == 1 and cores != mine for core in cores}
    if mine - taken:
        os.sched_setaffinity(0, mine - taken)
    return bool(taken)


def _cores_of(task: int) -> set[int]:
    """Returns the cores that a thread may run on; empty if the thread has ended."""
    try:
        return os.sched_getaffinity(task)
    except ProcessLookupError:
        return set()
