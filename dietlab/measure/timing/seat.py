"""A contender's process, which is opened again after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.measure.timing.disturbance import Pace
from dietlab.measure.timing.process import WorkerCrashed, WorkerProcess, WorkerTimeout


class Seat:
    """A contender's process and its ``pace``. After a crash or a hang, the process is opened again for the
    next request.

    Args:
        request: the opening request (:mod:`dietlab.measure.timing.bench`).
        module: the module that the process runs.
        env: the environment variables of the process.
        seconds: the longest time to wait for an answer.
        open_seconds: the longest time to wait for the first answer, which includes importing libraries.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        module: str,
        env: Mapping[str, str],
        *,
        seconds: float,
        open_seconds: float,
    ) -> None:
        self._request = request
        self._worker = WorkerProcess(module, env)
        self._seconds, self._open_seconds = seconds, open_seconds
        self._open = False
        self.pace = Pace()

    def open(self) -> dict[str, Any]:
        """Returns the answer to the opening request."""
        answer = self._worker.ask(self._request, self._open_seconds)
        self._open = "absent" not in answer
        return answer

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the contender's answer.

        Raises:
            MeasureError: if the contender crashes, hangs, refuses or cannot be opened again.
        """
        if not self._open:
            answer = self.open()
            if "absent" in answer:
                raise MeasureError("a contender that crashed must open again", answer["absent"])
        try:
            return self._worker.ask(request, self._seconds)
        except (WorkerCrashed, WorkerTimeout):
            self._open = False
            raise

    def close(self) -> None:
        """Ends the process; the next request starts it again."""
        self._worker.close()
        self._open = False

    def __enter__(self) -> Seat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
