"""A child process that answers one JSON line for each JSON line: crashes stay in the child.

Everything that runs generated code or a vendor's library does so here: builders, the timing
worker, contenders and the per-shape tuner. A request also tells what was entered here since the last one
(:mod:`dietlab.base.carried`); nothing else is pickled.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any

from dietlab.base.carried import carried, enter
from dietlab.base.errors import DietlabError, MeasureError

STARTER = "dietlab.measure.timing.worker"
"""The module that runs a worker's module."""

ENTERED = "entered"
"""Where a request has what was entered in the process that asks, or in the one that it asks for."""

STDERR_TAIL = 600
"""Characters of a crashed child's last messages that its error quotes."""


class WorkerCrashed(MeasureError):
    """The child ended without an answer; the next question starts a fresh one."""


class WorkerTimeout(MeasureError):
    """The child did not answer in time and was killed; the next question starts a fresh one."""


class WorkerRefused(MeasureError):
    """Raised when the child answers a request with an error."""


class WorkerProcess:
    """``python -m module`` as a question-and-answer service.

    Args:
        module: what to run; it calls :func:`serve`.
        env: variables that differ from this process's, set before the child starts (threads of
            OpenMP runtimes can only be set that way).
    """

    def __init__(self, module: str, env: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._env = {**os.environ, **(env or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._stderr = tempfile.TemporaryFile()
        self._buffer = b""
        self._told: Mapping[str, Any] = {}

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Returns the child's answer, within ``timeout`` seconds.

        Raises:
            WorkerCrashed, WorkerTimeout: the child is gone.
            WorkerRefused: the child lives and reports an error.
        """
        child = self._alive()
        assert child.stdin is not None
        entered = carried()
        if (entered or self._told) and entered is not self._told and ENTERED not in request:
            request, self._told = {**request, ENTERED: entered}, entered
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            answer: dict[str, Any] = json.loads(self._read_line(child, timeout))
        except (BrokenPipeError, EOFError):
            code = child.wait()
            self.close()
            raise WorkerCrashed("the worker lives", _exit_reason(code, self._errors())) from None
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            raise WorkerRefused("the worker succeeds", answer["error"])
        return answer

    def close(self) -> None:
        """Ends the child (it may be hanging, so it is killed)."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                with suppress(BrokenPipeError, AttributeError):
                    stream.close()  # type: ignore[union-attr]
        self._child, self._buffer = None, b""

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._stderr = tempfile.TemporaryFile()
            self._told = {}
            self._child = subprocess.Popen(
                [sys.executable, "-m", STARTER, self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=self._env,
                # Ctrl-C is the parent's business: it decides what to keep and ends its children.
                start_new_session=True,
            )
        return self._child

    def _read_line(self, child: subprocess.Popen[bytes], timeout: float) -> bytes:
        assert child.stdout is not None
        deadline = monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - monotonic())):
                    raise WorkerTimeout(f"the worker answers within {timeout:g} s", "no answer")
                chunk = os.read(child.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise EOFError
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _errors(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-STDERR_TAIL:]


def _exit_reason(code: int, errors: str) -> str:
    ending = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"{ending}: {errors}" if errors else ending


Handler = Callable[[dict[str, Any]], Mapping[str, Any]]


def serve(handler: Handler) -> None:
    """Serves the child's side: answers every line of standard input until it ends.

    Standard output is kept for answers; whatever libraries print goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if ENTERED in request:
                enter(request.pop(ENTERED))
            answer = dict(handler(request))
        except DietlabError as error:
            answer = {"error": str(error)}
        except Exception as error:  # the parent must hear of anything that went wrong
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
