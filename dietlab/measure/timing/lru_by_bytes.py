"""A cache of values that are expensive to make and large to keep."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LruByBytes(Generic[Value]):
    """Values by key, made when they are first asked for. Those that were not asked for longest go when all
    together are larger than ``most_bytes``; the last one always stays.

    Args:
        bytes_of: how large a value is now; it may grow while it is kept.
    """

    def __init__(self, most_bytes: int, bytes_of: Callable[[Value], int]) -> None:
        self._most_bytes, self._bytes_of = most_bytes, bytes_of
        self._values: dict[Hashable, Value] = {}

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Returns the value of ``key``."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        while len(self._values) > 1 and sum(map(self._bytes_of, self._values.values())) > self._most_bytes:
            del self._values[next(iter(self._values))]
        return value

    def clear(self) -> None:
        """Lets go of all values."""
        self._values.clear()
