"""Stage 1: builds the space of schemes that fit the hardware, with the reasons why others do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from dietlab.base.cards import Card, Carded, Cell, Fold, Listing, Quantity, cell_text, counted
from dietlab.base.errors import SpaceError, require_names, require_type
from dietlab.machine import Hardware
from dietlab.problem import Workload, require_workload
from dietlab.scheme.micro_kernel import EDGES, Edge, MicroKernel
from dietlab.scheme.scheme import Scheme
from dietlab.scheme.target import Limit, space_target

if TYPE_CHECKING:
    import pandas as pd

Cover = Literal["composed", "paper"]
"""Ways to cover a shape. ``composed``: exactly, by several micro-kernels. ``paper``: by one micro-kernel with
local padding (DietCode)."""


@dataclass(frozen=True)
class Rejection:
    """The candidates that a limit rejected; a candidate counts for the first limit that it exceeds.

    Args:
        reason: the exceeded resource in words.
        count: the number of candidates.
        most: the largest value that fits.
        unit: the unit of the values.
        nearest_miss: the candidate that exceeded the limit least.
        nearest_value: the value of the nearest miss.
    """

    reason: str
    count: int
    most: float
    unit: str
    nearest_miss: Scheme
    nearest_value: float


SIZES = 10
"""The largest number of values of a parameter that a card lists; more values are shown as a range."""


@dataclass(frozen=True, repr=False)
class Space(Carded):
    """The search space of one workload on one processor.

    ``schemes`` are in ascending order and serve *every* shape; their sizes follow from the hardware, not from
    factors of a shape (paper, section 3.1).

    Args:
        workload: the operator.
        hardware: the processor.
        rejected: the rejected candidates by limit.
    """

    workload: Workload
    hardware: Hardware
    schemes: tuple[Scheme, ...]
    rejected: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        return len(self.schemes)

    def __iter__(self) -> Iterator[Scheme]:
        return iter(self.schemes)

    def __contains__(self, scheme: object) -> bool:
        return scheme in self._members

    @cached_property
    def _members(self) -> frozenset[Scheme]:
        return frozenset(self.schemes)

    @cached_property
    def micro_kernels(self) -> tuple[MicroKernel, ...]:
        """The micro-kernels of the schemes' tallest tiles, in ascending order."""
        return tuple(sorted({scheme.kernel for scheme in self.schemes}))

    def restricted_to(self, schemes: Iterable[Scheme]) -> Space:
        """Returns the space with only some of its schemes, for example those that were recorded.

        Raises:
            SpaceError: if ``schemes`` is empty, or one is not in the space.
        """
        kept = tuple(sorted(set(schemes)))
        others = [scheme.key for scheme in kept if scheme not in self]
        if others or not kept:
            raise SpaceError(
                "a space can only be restricted to some of its schemes",
                f"{', '.join(others[:3])}{' ...' if len(others) > 3 else ''}" or "none",
                "Were they recorded on other hardware, or for another operator?",
            )
        return replace(self, schemes=kept)

    @property
    def rejections(self) -> pd.DataFrame:
        """A table with a row for each ``reason``: the number of ``rejected`` candidates, the limit (``most``)
        with its ``unit``, and the key and the value of the nearest miss."""
        from dietlab.base.frames import WholeTexts

        return WholeTexts(map(_rejection_cells, self.rejected), columns=list(REJECTION_COLUMNS))

    def to_frame(self) -> pd.DataFrame:
        """Returns a table with a row for each scheme: its key as ``scheme``, and a column for each
        parameter."""
        import pandas as pd

        return pd.DataFrame(scheme.columns for scheme in self.schemes)

    @property
    def card(self) -> Card:
        """Its card in a notebook: counts, and sections with sizes, schemes and rejected candidates."""
        facts = [counted(len(self), "scheme"), counted(len(self.micro_kernels), "micro-kernel")]
        if self.rejected:
            count = sum(rejection.count for rejection in self.rejected)
            facts.append(Quantity(f"{count:,}", "candidates rejected"))
        sections = (
            Fold("Sizes", lambda: sizes_table(self.schemes), unfolded=True),
            Fold("Schemes", lambda: parameter_table(self.schemes)),
            Fold("Rejected candidates", lambda: Listing(REJECTION_HEADER, self.rejected, _rejection_cells)),
            Fold("Processor", self.hardware.table),
        )
        return Card("Space", f"{self.workload} on {self.hardware.name}", tuple(facts), sections)


REJECTION_COLUMNS = ("reason", "rejected", "most", "unit", "nearest_miss", "nearest_value")

REJECTION_HEADER = ("reason", "rejected", "at most", "unit", "nearest miss", "has")


def _rejection_cells(one: Rejection) -> tuple[Cell, ...]:
    return one.reason, one.count, one.most, one.unit, one.nearest_miss.key, one.nearest_value


def parameter_table(values: Sequence[MicroKernel] | Sequence[Scheme]) -> Listing:
    """Returns a card's table of micro-kernels or schemes with their parameters.

    Args:
        values: micro-kernels or schemes of one target, in the order of the rows.
    """
    header = tuple(values[0].columns) if values else ()
    return Listing(header, values, lambda value: tuple(value.columns.values()))


def sizes_table(schemes: Sequence[Scheme]) -> Listing:
    """Returns a card's table of parameters: the number of values of each, and the values."""
    rows = [scheme.parameters for scheme in schemes]
    names = list(rows[0] if rows else {})
    found = [(name, {row[name] for row in rows}) for name in names]
    return Listing(("parameter", "values", "which"), found, lambda p: (p[0], len(p[1]), _listed(p[1])))


def _listed(values: set[Any]) -> str:
    ordered = [cell_text(value) for value in sorted(values)]
    return ", ".join(ordered) if len(ordered) <= SIZES else f"{ordered[0]} to {ordered[-1]}"


def build_space(workload: Workload, hardware: Hardware, edges: Iterable[Edge] = ("even",)) -> Space:
    """Builds the space of all schemes that fit a processor, for every shape of ``workload`` at once.

    Args:
        workload: the operator, with the ranges of its dynamic dimensions.
        hardware: the processor.
        edges: the treatments of the edge tile to include; several are needed only to compare them.
            ``("padded",)`` is DietCode's space: one micro-kernel for each shape, with local padding.

    Raises:
        SpaceError: if nothing fits, ``hardware`` is no processor, or a treatment of the edge tile is unknown.
        WorkloadError: if ``workload`` is no operator, or contradicts itself.
    """
    require_type(
        "the second argument of build_space",
        hardware,
        Hardware,
        SpaceError,
        "The order is build_space(workload, hardware).",
    )
    require_workload(workload)
    require_names("treatments of the edge tile", EDGES, edges, SpaceError, at_least=1)
    return _built(workload, hardware, tuple(edges))


@lru_cache(maxsize=16)  # each stage of a study builds its space, and a GPU's takes a second
def _built(workload: Workload, hardware: Hardware, edges: tuple[Edge, ...]) -> Space:
    target = space_target(hardware.kind)
    limits = target.limits(workload, hardware)
    kept: list[Scheme] = []
    misses: dict[str, list[tuple[float, Scheme]]] = {limit.reason: [] for limit in limits}
    for scheme in target.candidates(workload, hardware, edges):
        broken = next((limit for limit in limits if limit.excess(scheme) > 0), None)
        if broken is None:
            kept.append(scheme)
        else:
            misses[broken.reason].append((broken.excess(scheme), scheme))
    if not kept:
        reasons = ", ".join(f"{reason} ({len(found):,})" for reason, found in misses.items() if found)
        raise SpaceError(
            f"at least one scheme for {workload} must fit {hardware.name}",
            f"none; rejected candidates: {reasons}",
            "Take another processor, or an operator of another type or size.",
        )
    rejected = tuple(_rejection(limit, misses[limit.reason]) for limit in limits if misses[limit.reason])
    return Space(workload, hardware, tuple(sorted(kept)), rejected)


def edges_of(cover: Cover, workload: Workload, hardware: Hardware) -> tuple[Edge, ...]:
    """Returns the treatments of the edge tile for a way to cover the rows.

    Args:
        cover: ``"composed"`` for tiles of several heights. ``"paper"`` for DietCode's local padding, or for
            loop partitioning if the target has no local padding for the operator.
        workload, hardware: the operator and the processor.
    """
    if cover == "composed":
        return ("even",)
    return ("padded",) if space_target(hardware.kind).pads(workload) else ("partitioned",)


def _rejection(limit: Limit, misses: list[tuple[float, Scheme]]) -> Rejection:
    _, nearest = min(misses)
    return Rejection(limit.reason, len(misses), limit.most, limit.unit, nearest, limit.measure(nearest))
