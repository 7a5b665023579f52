"""Trials and their records: one line of JSON for each measurement or failure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, Protocol, get_args

from dietlab.base.contracts import is_number
from dietlab.base.errors import DietlabError, RecordError
from dietlab.base.events import PhaseSeconds
from dietlab.base.files import READING_ERRORS, reason_of
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme

Status = Literal["ok", "build_failed", "wrong", "crashed", "timeout", "refused"]
STATUSES: tuple[str, ...] = get_args(Status)

LEAST_SECONDS = 1e-10
"""The least time of a call, in seconds: one clock cycle at 10 GHz. No processor has that clock, and a call
takes several cycles."""

MOST_SECONDS = 86_400.0
"""The longest time of a call, in seconds: a day. A runner stops a candidate after minutes."""

TEXTS = ("reason", "code_hash", "at", "device")
"""The fields of a record that are texts of any kind."""

SEARCH = "search"
"""The first stage of tuning, which tries schemes of the whole space."""

DECIDE = "decide"
"""The second stage of tuning, which measures plans that compete for a shape, if the library depends on which
is faster."""


@dataclass(frozen=True)
class Trial:
    """A scheme to build once and to time on some shapes.

    Args:
        scheme: the scheme.
        shapes: the shapes of its calls.
    """

    scheme: Scheme
    shapes: tuple[Shape, ...]


_ROUND = re.compile(r"([a-z]+)(?: (\d+))?(?:\.(\d+)|(, resumed))?")


@dataclass(frozen=True, order=True)
class Round:
    """Trials that were proposed together and timed in turns, as in ``search 16`` or ``decide 2``.

    Args:
        stage: the stage of tuning: ``search`` or ``decide``; older files also have ``confirm``, ``verify``
            and ``check``.
        number: for ``search``, the number of schemes tried before; for ``decide``, the number of the round,
            from 1.
        part: 0 for a whole round. The parts after an interruption are numbered from 1. For an older
            ``check``, the number of its round.
    """

    stage: str
    number: int = 0
    part: int = 0

    def __str__(self) -> str:
        number = f" {self.number}" if self.number or self.stage == "search" else ""
        return f"{self.stage}{number}{f'.{self.part}' if self.part else ''}"

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Round:
        """Returns the round of a name.

        Raises:
            RecordError: if the text is not the name of a round.
        """
        match = _ROUND.fullmatch(text)
        if not match:
            raise RecordError("a round reads like search 16 or decide 2", repr(text))
        stage, number, part, resumed = match.groups()
        return cls(stage, int(number or 0), int(part or bool(resumed)))


@dataclass(frozen=True)
class Record:
    """The measurement, or failure, of one scheme on one shape.

    Args:
        scheme: the scheme.
        shape: the shape of its calls.
        status: ``ok``, or the kind of failure; ``reason`` explains it in words.
        seconds: the seconds of one call: the mean over the two fastest of several blocks of calls (before
            2026-11-28, of the fastest block). On one core this is thread CPU time, on several cores
            wall-clock time. None unless ``ok``.
        spread: the median of the blocks over ``seconds``, minus 1: the noise of the machine.
        phases: the wall-clock seconds that this record took, by phase.
        code_bytes: the number of bytes of machine code in the scheme's own library.
        code_hash: a text that is equal for equal machine code.
        at: the time of the measurement in UTC (ISO 8601).
        resources: on a GPU, the resources of the compiled scheme: the ``registers`` of a thread,
            ``spill_bytes``, the ``shared_bytes`` of a block, and ``blocks_per_sm``, the number of blocks that
            fit a multiprocessor.
        cached_seconds: the seconds of one call with operands in the last-level cache and cold private caches.
            None if not measured: on a GPU, for a slow program, or if ``seconds`` already is with operands in
            cache.
        asked_by: the round of tuning that requested it, if any. Records of one round and shape were timed
            in turns, next to each other, so their ratios are not affected by changes of the machine
            between rounds.
        device: the name of the server that measured; empty for this machine.

    Raises:
        RecordError: for an unknown status, a time, a spread or a size of code that no machine can measure,
            or an ``at`` that is no time.
    """

    scheme: Scheme
    shape: Shape
    status: Status
    seconds: float | None = None
    spread: float = 0.0
    reason: str = ""
    phases: PhaseSeconds = field(default_factory=PhaseSeconds)
    code_bytes: int = 0
    code_hash: str = ""
    at: str = ""
    resources: Mapping[str, int] = field(default_factory=dict, hash=False)
    cached_seconds: float | None = None
    asked_by: Round | None = None
    device: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise RecordError(f"a record's status must be one of {', '.join(STATUSES)}", repr(self.status))
        for name in ("seconds", "cached_seconds"):
            seconds = getattr(self, name)
            if seconds is not None and not is_number(seconds, LEAST_SECONDS, MOST_SECONDS):
                raise RecordError(
                    f"a call must take from {LEAST_SECONDS:g} s, a cycle of the fastest clock, to "
                    f"{MOST_SECONDS:g} s, a day",
                    f"{name} {seconds!r}",
                )
        if not is_number(self.spread, 0):
            raise RecordError("the spread of a record must be a finite number, 0 or more", repr(self.spread))
        size: object = self.code_bytes
        if not isinstance(size, int) or not is_number(size, 0):
            raise RecordError("the code_bytes of a record must be a whole number, 0 or more", repr(size))
        if self.at and not _is_time(self.at):
            raise RecordError("the time of a record must be in ISO 8601, or empty", repr(self.at))

    @property
    def ok(self) -> bool:
        """True if the measurement succeeded."""
        return self.status == "ok"

    def gflops(self, workload: Workload) -> float:
        """Returns useful GFLOP/s, without padding; 0 for a failure."""
        return workload.flops(self.shape) / self.seconds / 1e9 if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the record as a JSON value; empty optional fields are left out."""
        value: dict[str, Any] = {
            "scheme": self.scheme.key,
            "shape": self.shape.to_json(),
            "status": self.status,
            "seconds": self.seconds,
            "spread": round(self.spread, 4),
            "phases": {k: v for k, v in self.phases.to_json().items() if v},
            "code_bytes": self.code_bytes,
            "code_hash": self.code_hash,
            "at": self.at,
        }
        value |= {"cached_seconds": self.cached_seconds} if self.cached_seconds else {}
        value |= {"asked_by": str(self.asked_by)} if self.asked_by else {}
        value |= {"device": self.device} if self.device else {}
        value |= {"resources": dict(self.resources)} if self.resources else {}
        return {**value, "reason": self.reason} if self.reason else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Record:
        """Returns the record of a JSON value made by ``to_json``.

        Raises:
            RecordError: if a field is missing or of the wrong kind.
        """
        try:
            texts = {name: value.get(name, "") for name in TEXTS}
            if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
                raise RecordError(f"{', '.join(TEXTS)} of a record must be texts", ", ".join(wrong))
            return cls(
                # Older files call it micro_kernel.
                scheme=Scheme.from_key(value["micro_kernel" if "micro_kernel" in value else "scheme"]),
                shape=Shape.from_json(value["shape"]),
                status=value["status"],
                seconds=value["seconds"],
                cached_seconds=value.get("cached_seconds"),
                asked_by=Round.parse(asked_by) if (asked_by := value.get("asked_by")) else None,
                spread=value.get("spread", 0.0),
                phases=PhaseSeconds.from_json(value.get("phases", {})),
                code_bytes=value.get("code_bytes", 0),
                resources={str(k): int(v) for k, v in value.get("resources", {}).items()},
                **texts,
            )
        except DietlabError as wrong:
            raise RecordError(wrong.invariant, f"{wrong.value} in {value!r:.200}", wrong.remedy) from None
        except READING_ERRORS as wrong:
            raise RecordError(
                "a record must have all its fields", f"{reason_of(wrong)} in {value!r:.200}"
            ) from None


def _is_time(text: str) -> bool:
    try:
        # Python 3.10 does not know the Z of UTC.
        return bool(datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text))
    except ValueError:
        return False


def each_once(records: Iterable[Record]) -> tuple[Record, ...]:
    """Returns each measurement once, without its round: a replay returns the same measurement in several
    rounds."""
    return tuple(dict.fromkeys(replace(record, asked_by=None) for record in records))


def by_shape(records: Iterable[Record]) -> dict[Shape, list[Record]]:
    """Returns the records of each shape."""
    found: dict[Shape, list[Record]] = {}
    for record in records:
        found.setdefault(record.shape, []).append(record)
    return found


class Measures(Protocol):
    """The smallest interface of a runner: ``tune(runner=...)`` takes any object with ``measure``. Records may
    come in any order, as soon as they are known. Other members of :class:`Runner` are used if the object has
    them."""

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        """Returns one record for every shape of every trial. A failed candidate gets a record and raises no
        error. A runner that really measures should time trials of the same shape in turns."""


class Runner(Measures, Protocol):
    """A runner that also says what it can measure, and where."""

    @property
    def pairs(self) -> Collection[tuple[Scheme, Shape]] | None:
        """The pairs of a scheme and a shape that the runner can measure, as in a replay (None: all)."""

    @property
    def devices(self) -> int:
        """The number of devices that the runner measures on at the same time."""

    def close(self) -> None:
        """Ends the processes that the runner started; the runner can be used again."""
