"""A cache of large values that are expensive to make."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruByBytes(Generic[Value]):
    """Values by key, made on first use. The least recently used values are dropped while all values together
    exceed ``most_bytes``; the last value always stays. ``bytes_of`` returns a value's present size, which may
    grow."""

    def __init__(self, most_bytes: int, bytes_of: Callable[[Value], int]) -> None:
        self._most_bytes, self._bytes_of = most_bytes, bytes_of
        self._values: dict[Hashable, Value] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Returns the value of ``key``; ``make`` makes a new one."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        while len(self._values) > 1 and sum(map(self._bytes_of, self._values.values())) > self._most_bytes:
            del self._values[next(iter(self._values))]
        return value

    def clear(self) -> None:
        """Drops all values."""
        self._values.clear()
