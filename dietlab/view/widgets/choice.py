"""A choice that widgets share: the scheme chosen in one is shown in the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from dietlab.base.errors import DietlabError, SpaceError
from dietlab.scheme import MicroKernel, Scheme
from dietlab.view.lab import lab_imports
from dietlab.view.widgets.controls import control_of

with lab_imports("linked widgets"):
    import traitlets

if TYPE_CHECKING:
    from dietlab.view.widgets.explorer import Drawn, Explorer

Read = Callable[["Drawn", Mapping[str, Any]], str]
"""A function that takes what an explorer shows and its controls' values and returns the key of its chosen
scheme, or ``""``."""
Write = Callable[["Drawn", str], Mapping[str, Any]]
"""A function that takes what an explorer shows and a key and returns the values of controls that show this
scheme, empty if no values do."""
Linked = TypeVar("Linked", bound="Explorer")

SIZES = ("rows", "cols", "edge")
"""The controls of an explorer that choose a tile rather than a scheme."""


class Choice(traitlets.HasTraits):  # type: ignore[misc]  # traitlets has no types here
    """One scheme, which can be chosen in any of the widgets that share it. For example::

        choice = dl.Choice()
        dl.trials_table(run, choice)
        dl.inspect_kernel(workload, hardware, choice)

    Attributes:
        key: the key of the chosen scheme; empty while none is chosen.
    """

    key = traitlets.Unicode("")

    @traitlets.validate("key")  # type: ignore[untyped-decorator]
    def _valid(self, proposal: Any) -> str:
        return "" if proposal["value"] == "" else Scheme.from_key(proposal["value"]).key

    @property
    def scheme(self) -> Scheme | None:
        """The chosen scheme; None while none is."""
        return Scheme.from_key(self.key) if self.key else None

    @property
    def micro_kernel(self) -> MicroKernel | None:
        """The micro-kernel of the chosen scheme; None while none is chosen."""
        return None if self.scheme is None else self.scheme.kernel

    def choose(self, scheme: Scheme | str | None) -> None:
        """Chooses a scheme (or the scheme of a key) for all widgets; None clears the choice.

        Raises:
            SpaceError: if ``scheme`` is neither a scheme nor a key that can be read.
        """
        if scheme is not None and not isinstance(scheme, (Scheme, str)):
            raise SpaceError(
                "a choice must be a scheme or its key", repr(scheme), 'For example "6x16.u4.ws.p0.even".'
            )
        self.key = "" if scheme is None else scheme if isinstance(scheme, str) else scheme.key

    def link(self, explorer: Linked) -> Linked:
        """Links an explorer that was made without this choice, and returns it. An explorer with a control
        ``scheme`` then shows the chosen scheme; one with ``rows``, ``cols`` and ``edge``, such as
        :func:`dietlab.padding_explorer`, shows the scheme's tile.

        Raises:
            SpaceError: if the explorer has none of these controls.
        """
        controls = getattr(explorer, "controls", {})
        if "scheme" in controls:
            self.tie(explorer, lambda _, values: _key(values["scheme"]), lambda _, key: {"scheme": key})
        elif all(name in controls for name in SIZES):
            self.tie(explorer, self._with_tile, _tile)
        else:
            raise SpaceError(
                "only an explorer with a control for schemes can be linked",
                f"controls {', '.join(controls) or 'of none'}",
                "dispatch_explorer() and others take choice=.",
            )
        return explorer

    def tie(self, explorer: Explorer, read: Read, write: Write) -> None:
        """Links an explorer: ``read`` gives the scheme chosen in it, ``write`` shows a scheme chosen
        elsewhere.

        A scheme that the explorer cannot show leaves it unchanged."""
        busy = False

        def chosen_there(_: Any) -> None:
            if not busy:
                self.key = read(explorer.drawn, explorer.values) or self.key

        def chosen_elsewhere(change: Any) -> None:
            nonlocal busy
            values = write(explorer.drawn, change["new"]) if change["new"] else {}
            accepted = all(control_of(explorer.controls[name]).accepts(values[name]) for name in values)
            if busy or not values or not accepted:
                return
            if read(explorer.drawn, explorer.values) == change["new"]:
                return
            busy = True
            try:
                with suppress(DietlabError):  # a value that a control does not take beside the others
                    explorer.set(**values)
            finally:
                busy = False

        explorer.live.observe(chosen_there, "figure_json")
        self.observe(chosen_elsewhere, "key")
        chosen_elsewhere({"new": self.key})

    def _with_tile(self, drawn: Drawn, values: Mapping[str, Any]) -> str:
        """Returns the key of the chosen scheme with the explorer's tile, or ``""`` if there is no such
        micro-kernel. Without a chosen scheme of the drawn kind, returns the drawn scheme's key."""
        chosen = self.scheme
        try:
            if chosen is None or not _alike(chosen, drawn.scheme):
                return drawn.scheme
            return chosen.changed(**{name: values[name] for name in SIZES}).key
        except DietlabError:  # no micro-kernel has this tile with the rest of the chosen one
            return ""


def _alike(scheme: Scheme, key: str) -> bool:
    """Returns whether a scheme and a key have micro-kernels of the same kind."""
    return bool(key) and type(scheme.kernel) is type(Scheme.from_key(key).kernel)


def _tile(drawn: Drawn, key: str) -> Mapping[str, Any]:
    """Returns the sizes and the edge of a scheme; empty if the drawn scheme is of another kind."""
    scheme = Scheme.from_key(key)
    return {name: getattr(scheme, name) for name in SIZES} if _alike(scheme, drawn.scheme) else {}


def _key(text: Any) -> str:
    """Returns the text if it is a scheme's key, else ``""``."""
    try:
        return Scheme.from_key(str(text)).key
    except DietlabError:
        return ""
