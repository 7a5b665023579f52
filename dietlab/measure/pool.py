"""A pool of child processes, each with one request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from dietlab.machine.system import usable_cores
from dietlab.measure.timing.process import WorkerProcess

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class WorkerPool:
    """A pool of ``python -m module`` processes, by default one for each processor that this process may use.
    Each process starts with its first request and is kept. ``scratch`` is the folder of their temporary
    files, which a killed process leaves behind (default: the system's)."""

    def __init__(self, module: str, workers: int | None = None, scratch: Path | None = None) -> None:
        self._count = workers or usable_cores()
        self._open = ExitStack()
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        env = {"TMPDIR": str(scratch)} if scratch else {}
        for _ in range(self._count):
            self._idle.put(self._open.enter_context(WorkerProcess(module, env)))

    def close(self) -> None:
        """Ends the children."""
        self._open.close()

    def each(self, ask: Callable[[WorkerProcess, Item], Answer], items: Iterable[Item]) -> Iterator[Answer]:
        """Yields ``ask(child, item)`` for every item, in the order of items, as soon as each answer is known.
        Items are computed in parallel. After an error no further item begins."""
        with ThreadPoolExecutor(self._count) as threads:
            futures = [threads.submit(self._lent, ask, item) for item in items]
            try:
                for future in futures:
                    yield future.result()
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise

    def _lent(self, ask: Callable[[WorkerProcess, Item], Answer], item: Item) -> Answer:
        worker = self._idle.get()
        try:
            return ask(worker, item)
        finally:
            self._idle.put(worker)
