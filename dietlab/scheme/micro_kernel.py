"""The micro-kernel, a program for one tile of the output, as all stages see it on any processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

from dietlab.problem import Role

Edge = Literal["even", "rest", "padded", "checked", "partitioned"]
EDGES: tuple[Edge, ...] = ("even", "rest", "padded", "checked", "partitioned")
"""All treatments of the edge tile, see :class:`~dietlab.scheme.Scheme`."""

COMPOSED: tuple[Edge, ...] = ("even", "rest")
"""Treatments without padding: micro-kernels of fewer rows cover the remaining rows."""

Order = Literal["ws", "is"]
ORDERS: tuple[Order, ...] = ("ws", "is")

Kernel = TypeVar("Kernel", bound="MicroKernel")


class MicroKernel(ABC):
    """A program for one ``rows x cols`` tile of the output, as a frozen, hashable, ordered value.

    Each target has its own class. A :class:`~dietlab.scheme.Scheme` says how copies of it cover an output.

    Attributes:
        rows: height of the tile.
        cols: width of the tile.
    """

    rows: int
    cols: int
    example: ClassVar[str]
    """The key of a scheme of this kind, for errors."""
    reserves: ClassVar[bool] = False
    """True if a launch reserves the registers and memory of its tallest tile, even if it runs lower ones."""
    ordered: ClassVar[bool] = True
    """True if a scheme has a loop order; a GPU runs tiles in any order."""

    @property
    def key(self) -> str:
        """The short name in generated code and tables, from which :meth:`parse` makes the micro-kernel
        again."""
        return self.scheme_key("", "")

    @abstractmethod
    def scheme_key(self, order: str, edge: str) -> str:
        """Returns the key of a scheme of this micro-kernel; ``edge`` is empty for local padding."""

    @classmethod
    @abstractmethod
    def parse(cls, key: str) -> tuple[MicroKernel, str, str] | None:
        """Returns three values for the key of a micro-kernel or scheme: the micro-kernel, the loop order and
        the edge. Order or edge is empty if the key lacks it. Returns None for a key of another kind."""

    @property
    def granule(self) -> int:
        """The divisor of every height, in rows."""
        return 1

    @property
    def tile(self) -> dict[Role, int]:
        """Tile extents by role; 1 for a reduction axis that is covered exactly."""
        return {"rows": self.rows, "cols": self.cols, "depth": 1}

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The treatments of the edge tile that its schemes may have."""
        return EDGES

    @property
    def lines(self) -> bool:
        """True if the rows of a tile are neighbours on one line of a convolution's output."""
        return False

    @property
    def composes_columns(self) -> bool:
        """True if narrower tiles compose the columns, as lower ones compose the rows."""
        return False

    @property
    def depth_multiple(self) -> int:
        """The divisor of the reduction's length, in elements."""
        return 1

    @property
    def access_pattern(self) -> Hashable:
        """A value that identifies how operands are read, whatever the sizes. A model cannot predict a pattern
        that it was not fitted on."""
        return ()

    @abstractmethod
    def __lt__(self, other: Any) -> bool:
        """Orders micro-kernels of a kind by their sizes."""

    @property
    def columns(self) -> dict[str, int | str]:
        """The columns of tables: the key as ``micro_kernel``, and every parameter by its name."""
        return {"micro_kernel": self.key, **self.parameters}

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter by its name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.key


@lru_cache(maxsize=1 << 16)  # plans share few micro-kernels, and making one takes longer than a look-up
def with_rows(kernel: Kernel, rows: int) -> Kernel:
    """Returns the micro-kernel with another height.

    Args:
        kernel: the micro-kernel, which is not changed.
        rows: the height, a multiple of its granule.
    """
    return replace(kernel, rows=rows)  # type: ignore[type-var]  # every kind is a dataclass
