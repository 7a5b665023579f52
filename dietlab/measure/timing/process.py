"""A child process that answers each line of JSON with a line of JSON: crashes stay in the child.

All generated code and vendor libraries run in such a process: builders, the timing worker, contenders and the
per-shape tuner. A request also carries the objects that were entered here since the last one
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
from typing import IO, Any

from dietlab.base.carried import carried, enter
from dietlab.base.errors import DietlabError, MeasureError

STARTER = "dietlab.measure.timing.worker"
"""The module that runs a worker's module."""

ENTERED = "entered"
"""The field of a request that has the objects entered in this process, or in the client's process."""

STDERR_TAIL = 600
"""The number of characters of a crashed child's last messages that the error quotes."""


class WorkerCrashed(MeasureError):
    """The child ended without an answer; the next request starts a new one."""


class WorkerTimeout(MeasureError):
    """The child did not answer in time and was killed; the next request starts a new one."""


class WorkerRefused(MeasureError):
    """The child answered a request with an error."""


class WorkerProcess:
    """``python -m module`` as a process that answers requests.

    Args:
        module: the module to run, which calls :func:`serve`.
        env: the environment variables that differ from those of this process. They are set before the child
            starts: OpenMP runtimes read their number of threads only then.
    """

    def __init__(self, module: str, env: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._env = {**os.environ, **(env or {})}
        self._child: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._buffer = b""
        self._known: Mapping[str, Any] = {}

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Returns the child's answer, within ``timeout`` seconds.

        Raises:
            WorkerCrashed, WorkerTimeout: if the child has ended.
            WorkerRefused: if the child answers with an error.
        """
        child = self._alive()
        assert child.stdin is not None
        entered = carried()
        if (entered or self._known) and entered is not self._known and ENTERED not in request:
            request, self._known = {**request, ENTERED: entered}, entered
        try:
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            answer: dict[str, Any] = json.loads(self._read_line(child, timeout))
        except (BrokenPipeError, EOFError):
            reason = _exit_reason(child.wait(), self._errors())
            self.close()
            raise WorkerCrashed("the worker must stay alive", reason) from None
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            raise WorkerRefused("the worker must succeed", answer["error"])
        return answer

    def close(self) -> None:
        """Kills the child, which may hang."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                with suppress(BrokenPipeError, AttributeError):
                    stream.close()  # type: ignore[union-attr]
        if self._stderr is not None:
            self._stderr.close()
        self._child, self._stderr, self._buffer = None, None, b""

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            self._stderr = tempfile.TemporaryFile()
            self._known = {}
            self._child = subprocess.Popen(
                [sys.executable, "-m", STARTER, self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=self._env,
                # Ctrl-C must not reach the child: the parent decides what to keep, and ends its children.
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
                    raise WorkerTimeout(f"the worker must answer within {timeout:g} s", "no answer")
                chunk = os.read(child.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise EOFError
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _errors(self) -> str:
        assert self._stderr is not None  # as long as the child is there
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-STDERR_TAIL:]


def _exit_reason(code: int, errors: str) -> str:
    ending = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"{ending}: {errors}" if errors else ending


Handler = Callable[[dict[str, Any]], Mapping[str, Any]]


def serve(handler: Handler) -> None:
    """Answers every line of standard input until it ends, in the child.

    Standard output is used for answers only. Whatever libraries print goes to standard error.
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
        except Exception as error:  # the parent must get any error
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
