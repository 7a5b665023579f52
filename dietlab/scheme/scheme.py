"""The scheme: how copies of a micro-kernel cover an output. A search tries schemes, records measure them and
leaves of the decision tree name them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Generic

from dietlab.base.errors import SpaceError
from dietlab.base.registry import Registry
from dietlab.machine.target import TARGETS, part
from dietlab.problem import Role
from dietlab.scheme.micro_kernel import COMPOSED, ORDERS, Edge, Kernel, MicroKernel, Order, with_rows


@dataclass(frozen=True, order=True)
class Scheme(Generic[Kernel]):
    """A micro-kernel with its treatment of the edge and the loop order around it.

    Args:
        kernel: the micro-kernel of the tallest tile.
        edge: the treatment of the edge tile, which may stick out of the output. *Composition* adds lower
            micro-kernels to cover the rows exactly: ``even`` (``ceil(T / rows)`` tiles whose heights differ
            by at most one granule: 31 = 11 + 10 + 10) or ``rest`` (full tiles and one for the rest: 31 = 14 +
            14 + 3). DietCode uses this micro-kernel only: ``padded`` (local padding: the edge tile is filled
            with zeros when it is fetched, so that the compute stage has no bound check), ``checked`` (bound
            checks in the compute stage) or ``partitioned`` (checks for the edge tile only).
        order: the operand that stays while the other streams, on a CPU. ``ws`` (weight-stationary): for each
            panel of weights, all row tiles; ``is`` (input-stationary): for each row tile, all panels.

    ``key`` reads ``8x32.u4.ws.p0a.even`` for the even scheme of micro-kernel ``8x32.u4.p0a``.

    Raises:
        SpaceError: if there is no such edge or order.
    """

    kernel: Kernel
    edge: Edge = "padded"
    order: Order = "ws"

    def __post_init__(self) -> None:
        if self.edge not in self.kernel.edges or self.order not in ORDERS:
            edges, orders = ", ".join(self.kernel.edges), ", ".join(ORDERS)
            raise SpaceError(
                f"the edge of a scheme of {self.kernel} must be one of {edges}; its order one of {orders}",
                f"{self.edge}, {self.order}",
                "Choose one of them.",
            )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.kernel, self.edge, self.order))

    @cached_property
    def key(self) -> str:
        """Its short name in records and reports."""
        return self.kernel.scheme_key(self.order, "" if self.edge == "padded" else self.edge)

    def __str__(self) -> str:
        return self.key

    @classmethod
    def from_key(cls, key: str) -> Scheme:
        """Returns the scheme of a key, for any target.

        Raises:
            SpaceError: if it is not the key of a scheme.
        """
        found = parsed(key)
        if found is None:
            kernels = ((name, part(name, "space").KERNEL) for name in TARGETS)
            examples = " or ".join(f"{kernel.example} ({name})" for name, kernel in kernels)
            raise SpaceError(f"a scheme's key reads like {examples}", repr(key))
        return found

    @property
    def rows(self) -> int:
        """The height of the tallest tile."""
        return self.kernel.rows

    @property
    def cols(self) -> int:
        """The width of the widest tile."""
        return self.kernel.cols

    @property
    def composed(self) -> bool:
        """True if micro-kernels of fewer rows cover the remaining rows."""
        return self.edge in COMPOSED

    @property
    def heights(self) -> tuple[Scheme[Kernel], ...]:
        """The schemes of all tiles in its plans: itself and, if it is composed, lower ones."""
        if not self.composed:
            return (self,)
        granule = self.kernel.granule
        return tuple(scheme_with(self, rows=rows) for rows in range(granule, self.rows + 1, granule))

    @property
    def cover_tile(self) -> dict[Role, int]:
        """By role, the divisor of the extents that a plan covers: the tile's extent, or less if the scheme is
        composed."""
        tile = self.kernel.tile
        if not self.composed:
            return tile
        return {
            **tile,
            "rows": self.kernel.granule,
            "cols": 1 if self.kernel.composes_columns else self.cols,
        }

    @cached_property
    def family(self) -> Scheme[Kernel]:
        """The representative of all schemes that differ from this one only in height and edge."""
        return scheme_with(self, rows=self.kernel.granule, edge="even")

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter of the micro-kernel, the edge and, on a CPU, the order, by name."""
        order = {"order": self.order} if self.kernel.ordered else {}
        return {**self.kernel.parameters, "edge": self.edge, **order}

    @property
    def columns(self) -> dict[str, int | str]:
        """The columns of tables: the key as ``scheme``, and every parameter by its name."""
        return {"scheme": self.key, **self.parameters}

    def changed(self, **values: Any) -> Scheme[Kernel]:
        """Returns the scheme with other values of some parameters.

        Raises:
            SpaceError: if they contradict each other.
        """
        own = {name: values[name] for name in ("edge", "order") if name in values}
        kernel = {name: value for name, value in values.items() if name not in own}
        return replace(self, kernel=replace(self.kernel, **kernel), **own)  # type: ignore[type-var]


@lru_cache(maxsize=1 << 16)  # stages make the same few schemes again and again
def scheme_with(
    scheme: Scheme[Kernel], *, rows: int | None = None, edge: Edge | None = None
) -> Scheme[Kernel]:
    """Returns the scheme with another height or treatment of the edge.

    Args:
        scheme: the scheme, which is not changed.
        rows: the height, a multiple of the granule; None: its own.
        edge: the treatment of the edge; None: its own.
    """
    kernel = scheme.kernel if rows is None else with_rows(scheme.kernel, rows)
    return replace(scheme, kernel=kernel, edge=scheme.edge if edge is None else edge)


def parsed(key: str) -> Scheme | None:
    """Returns the scheme of a key; None if it is not the key of a scheme."""
    return _parsed(key, Registry.changes)


@lru_cache(maxsize=1 << 14)
def _parsed(key: str, changes: int) -> Scheme | None:
    for name in TARGETS:
        kind: type[MicroKernel] = part(name, "space").KERNEL
        found = kind.parse(key)
        if found is not None and (found[1] or not kind.ordered):
            kernel, order, edge = found
            return Scheme(kernel, edge or "padded", order or "ws")  # type: ignore[arg-type]
    return None
