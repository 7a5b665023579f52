"""The micro-kernel as all stages see it, for any processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from dietlab.errors import SpaceError
from dietlab.workloads import Role

Edge = Literal["even", "rest", "padded", "checked", "partitioned"]
EDGES: tuple[Edge, ...] = ("even", "rest", "padded", "checked", "partitioned")
COMPOSED: tuple[Edge, ...] = ("even", "rest")
"""Edge treatments without padding: lower micro-kernels cover the remaining rows."""

Kernel = TypeVar("Kernel", bound="MicroKernel")


class MicroKernel(ABC):
    """A program for one ``rows x cols`` tile of the output: a frozen, hashable, ordered value.

    The kinds are :class:`CpuMicroKernel` and :class:`CudaMicroKernel`. ``edge`` is the treatment of tiles
    that would stick out of the output. Composition covers the rows with lower
    micro-kernels beside this one: ``even`` (``ceil(T / rows)`` tiles whose heights differ by at most one
    :attr:`granule`: 31 = 11 + 10 + 10) or ``rest`` (full tiles, then one of what is left: 31 = 14 + 14 +
    3). DietCode's way has this micro-kernel only: ``padded`` (local padding: the edge tile is filled with
    zeros when it is fetched, so that the compute stage has no bound check), ``checked`` (bound checks
    stay in the compute stage) or ``partitioned`` (full tiles without checks, the edge tile with).
    """

    rows: int
    cols: int
    edge: Edge
    reserves: ClassVar[bool] = False
    """True if a launch reserves the registers and memory of its tallest tile, used or not."""

    @property
    @abstractmethod
    def key(self) -> str:
        """The short name in records and generated code."""

    @classmethod
    @abstractmethod
    def parse(cls, key: str) -> MicroKernel | None:
        """Returns the micro-kernel of this kind with that key; None for a key of another kind."""

    @property
    @abstractmethod
    def granule(self) -> int:
        """The number of rows that every height is a multiple of."""

    @property
    @abstractmethod
    def tile(self) -> dict[Role, int]:
        """Tile extents by role; 1 for a reduction axis that is covered exactly."""

    @property
    @abstractmethod
    def cover_tile(self) -> dict[Role, int]:
        """Extents that a plan covers multiples of: smaller than the tile if the plan is composed."""

    @property
    @abstractmethod
    def code(self) -> MicroKernel:
        """The representative of all micro-kernels with the same generated tile, in whatever loops."""

    @property
    @abstractmethod
    def access_pattern(self) -> Hashable:
        """The way its operands are read, whatever the sizes: a model cannot predict one that it never saw."""

    @abstractmethod
    def __lt__(self, other: Any) -> bool:
        """Orders micro-kernels of a kind by their sizes."""

    @property
    def columns(self) -> dict[str, int | str]:
        """The columns of tables: the key as ``micro_kernel``, and every parameter by its name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"micro_kernel": self.key, **values}

    def __str__(self) -> str:
        return self.key

    @classmethod
    def from_key(cls, key: str) -> MicroKernel:
        """Returns the micro-kernel of any kind with that key.

        Raises:
            SpaceError: if it is not a key.
        """
        for kind in MicroKernel.__subclasses__():
            found = kind.parse(key)
            if found is not None:
                return found
        raise SpaceError(
            "a micro-kernel's key reads like 8x32.u4.ws.p0 (CPU) or 128x64x16.t16x16.s3 (CUDA)", repr(key)
        )

    @property
    def composed(self) -> bool:
        """True if rows are covered by this micro-kernel and lower ones."""
        return self.edge in COMPOSED

    @property
    def composes(self) -> tuple[MicroKernel, ...]:
        """The micro-kernels that its plans are made of: itself and, if it is composed, lower ones."""
        if not self.composed:
            return (self,)
        return tuple(with_rows(self, rows) for rows in range(self.granule, self.rows + 1, self.granule))

    @cached_property
    def family(self) -> MicroKernel:
        """The representative of all micro-kernels that differ in height and edge only."""
        return _changed(self, self.granule, "even")


def with_rows(kernel: Kernel, rows: int) -> Kernel:
    """Returns the micro-kernel with another height."""
    changed: Kernel = _changed(kernel, rows, kernel.edge)  # type: ignore[assignment]  # of the same kind
    return changed


def with_edge(kernel: Kernel, edge: Edge) -> Kernel:
    """Returns the micro-kernel with another treatment of the edge tile."""
    changed: Kernel = _changed(kernel, kernel.rows, edge)  # type: ignore[assignment]  # of the same kind
    return changed


@lru_cache(maxsize=1 << 16)  # plans share few micro-kernels, and making one costs more than finding it
def _changed(kernel: MicroKernel, rows: int, edge: Edge) -> MicroKernel:
    return changed_in(kernel, {"rows": rows, "edge": edge})


def changed_in(kernel: Kernel, fields: Mapping[str, Any]) -> Kernel:
    """Returns the micro-kernel with other values of some fields.

    Raises:
        SpaceError: if they do not go together.
    """
    changed: Kernel = replace(kernel, **fields)  # type: ignore[type-var]  # every kind is a dataclass
    return changed
