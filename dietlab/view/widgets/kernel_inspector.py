"""An inspector of a micro-kernel: its program, the assembly of its inner loop, registers, and its bound."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import DietlabError, SpaceError, require_type
from dietlab.cost import adaptation_cost
from dietlab.cost.bundle import peak_speed
from dietlab.lower.program import machine_code_of, read_as, require_kind, source_of
from dietlab.machine import Hardware
from dietlab.problem import Shape, Workload, largest_shape
from dietlab.scheme import Scheme
from dietlab.view.figures.base import MICRO
from dietlab.view.figures.plans import PARTS
from dietlab.view.lab import lab_imports
from dietlab.view.widgets.arguments import hardware_of, workload_of
from dietlab.view.widgets.choice import Choice

with lab_imports("kernel inspectors"):
    import ipywidgets

if TYPE_CHECKING:
    import pandas as pd

    from dietlab.compare.study import Study

REMEMBERED = 32
"""The most programs that are kept: compiling one takes half a second."""
NOTHING = "No scheme is chosen: choose one in a table of trials, or in another widget with the same choice."
FITTING = "<style>.dietlab-inspector .lm-TabBar-tab { min-width: max-content !important }</style>"
"""A style that makes tabs as wide as their names: ipywidgets gives all tabs one width, which cuts long
names."""
CODE = "max-height:30em;overflow:auto;font-size:12px;line-height:1.35;margin:0"


def frame_kernel(
    workload: Workload, hardware: Hardware, scheme: Scheme | str, shape: Shape | None = None
) -> pd.DataFrame:
    """Returns one row for each part of the bound on a scheme's time: ``part``, ``bound_seconds`` of a call
    and the part's ``share`` (0 to 1). The bound needs no record: multiply-adds run at the processor's peak.

    Args:
        workload: the operator.
        hardware: the processor; it need not be this one.
        scheme: the scheme or its key.
        shape: the shape of the call (default: the largest).

    Raises:
        SpaceError: if the key cannot be read, or no scheme is given.
        BuildError: if the scheme is of another kind of processor.
    """
    import pandas as pd

    found = _scheme(scheme)
    require_kind(hardware, [found])
    at = shape or largest_shape(workload)
    peak = peak_speed(workload, hardware)
    parts = adaptation_cost(workload, hardware).parts(found, at, lambda _: peak)
    rows = [(label, getattr(parts, name)) for name, (label, _) in PARTS.items()]
    frame = pd.DataFrame(rows, columns=["part", "bound_seconds"])
    frame["share"] = frame["bound_seconds"] / frame["bound_seconds"].sum()
    return frame


class KernelInspector(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no types
    """A widget with the sections of a scheme under tabs; it follows a choice. :func:`inspect_kernel` makes
    one.

    Args:
        workload, hardware, shape: as in :func:`inspect_kernel`.

    Attributes:
        choice: the scheme that is shown.
        sections: the texts (HTML) by the names of their tabs.
    """

    def __init__(self, workload: Workload, hardware: Hardware, choice: Choice, shape: Shape | None) -> None:
        self.choice = choice
        self.sections: dict[str, str] = {}
        self._of = (workload, hardware, shape or largest_shape(workload))
        self._title = ipywidgets.HTML()
        names = ("parts of the bound", *read_as(hardware), "registers")
        self._pages = {name: ipywidgets.HTML() for name in names}
        self._tabs = ipywidgets.Tab(children=list(self._pages.values()), titles=names)
        looks = ipywidgets.HTML(FITTING, layout=ipywidgets.Layout(display="none"))
        super().__init__([self._title, self._tabs, looks])
        self.add_class("dietlab-inspector")
        choice.observe(self._show, "key")
        self._show(None)

    def _show(self, _: Any) -> None:
        workload, hardware, shape = self._of
        key = self.choice.key
        if not key:
            self.sections = dict.fromkeys(self._pages, "")
            self._title.value = NOTHING
        else:
            self._title.value = f"<b>{escape(key)}</b>, {escape(str(workload))} on {escape(hardware.name)}"
            texts = (_or_sentence(make, workload, hardware, key, shape) for make in MAKERS)
            self.sections = dict(zip(self._pages, texts, strict=True))
        for name, page in self._pages.items():
            page.value = self.sections[name]

    def _repr_mimebundle_(self, **options: Any) -> Any:
        data = super()._repr_mimebundle_(**options)
        parts = (f"<h4>{name}</h4>{text}" for name, text in self.sections.items())
        page = self._title.value + "".join(parts)
        plain = f"Inspector of {self.choice.key or 'no scheme'}"
        return {**data, "text/html": page, "text/plain": plain}, {}


def inspect_kernel(
    workload: Workload | Study,
    hardware: Hardware | Study | str,
    scheme: Choice | Scheme | str,
    shape: Shape | None = None,
) -> KernelInspector:
    """Shows a scheme's program (TensorIR, or CUDA C++ for a GPU), the assembly of its inner loop with vector
    registers and spills, and the parts of the bound on its time.

    Nothing is run, and the processor need not be this one. Where the compiler is missing, its tab says so.

    Args:
        workload: the operator, or a study of it.
        hardware: the processor for which the scheme is compiled, the name of a preset, or a study's.
        scheme: a scheme, its key, or a :class:`Choice` that other widgets share. The inspector follows a
            choice.
        shape: the shape of the bound (default: the largest).

    Raises:
        SpaceError: if ``scheme`` is none of these, or the key cannot be read.
        WorkloadError: if ``workload`` is neither an operator nor a study.
        HardwareError: if ``hardware`` is no processor, or no preset has the name.
    """
    of = workload_of(workload), hardware_of(hardware)
    if shape is not None:
        require_type("the shape of the bound", shape, Shape, remedy="For example dl.Shape.of(T=64).")
    if isinstance(scheme, Choice):
        return KernelInspector(*of, scheme, shape)
    choice = Choice()
    choice.choose(_scheme(scheme))
    return KernelInspector(*of, choice, shape)


def _scheme(scheme: object) -> Scheme:
    if isinstance(scheme, str):
        return Scheme.from_key(scheme)
    if not isinstance(scheme, Scheme):
        raise SpaceError("an inspector can only show a Scheme, its key or a Choice", repr(scheme))
    return scheme


# --- sections -----------------------------------------------------------------------------------


def _or_sentence(make: Any, workload: Workload, hardware: Hardware, key: str, shape: Shape) -> str:
    try:
        return str(make(workload, hardware, Scheme.from_key(key), shape))
    except DietlabError as error:
        return f"<p>{escape(str(error))}</p>"


def _bound(workload: Workload, hardware: Hardware, scheme: Scheme, shape: Shape) -> str:
    frame = frame_kernel(workload, hardware, scheme, shape)
    facts = [
        (str(row.part), f"{MICRO * row.bound_seconds:.1f} us ({100 * row.share:.0f} %)")
        for row in frame.itertuples()
    ]
    total = f"{MICRO * frame['bound_seconds'].sum():.1f} us"
    return f"<p>No call on {escape(str(shape))} takes less than {total}, of which:</p>{_facts(facts)}"


def _program(workload: Workload, hardware: Hardware, scheme: Scheme, _: Shape) -> str:
    return _code(_source(workload, hardware, scheme))


_source = lru_cache(REMEMBERED)(source_of)
_compiled = lru_cache(REMEMBERED)(machine_code_of)


def _machine_code(workload: Workload, hardware: Hardware, scheme: Scheme, _: Shape) -> str:
    return _code(_compiled(workload, hardware, scheme).text)


def _used(workload: Workload, hardware: Hardware, scheme: Scheme, _: Shape) -> str:
    return _facts([*_compiled(workload, hardware, scheme).uses.items()])


MAKERS = (_bound, _program, _machine_code, _used)
"""The functions that make the sections' texts, in the order of the tabs."""


def _code(text: str) -> str:
    return f"<pre style='{CODE}'>{escape(text)}</pre>"


def _facts(facts: list[tuple[str, str]]) -> str:
    rows = "".join(
        f"<tr><td style='padding-right:2em'>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<table>{rows}</table>"
