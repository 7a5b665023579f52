"""A notebook in JupyterLab or Jupyter Notebook as a person sees it: cells, figures, sliders, buttons."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from browser.lab import Lab

SECONDS = 60.0
"""What nothing that is waited for takes, on a busy machine either, but running whole notebooks."""
SLOW = "[anywidget] Failed to initialize model"
"""What a page says that needs over two seconds for a widget's code, as a cold browser may. Our figures do
without what it then leaves out, and every test looks whether they are drawn."""
LATE = "Comm not found for comm id"
"""What JupyterLab says of a message to a widget that a restart or a reload has just put away. Every test
looks whether the widgets that took its place are drawn and answer."""
EARLY = "Cannot read properties of undefined (reading 'schema')"
"""What Jupyter Notebook may say while it opens: the settings of another part came before those of its keys
(https://github.com/jupyter/notebook/issues/7862). No widget is there yet."""
FORGOTTEN = "Error displaying widget: model not found"
"""What stands below a cell whose widget JupyterLab did not learn of when the page was reloaded, as happens
seldom, on a busy machine. It stays there, though the kernel has the widget and the next reload finds it."""
MISSED = "Error: widget model not found"
"""The console's words for each of :data:`FORGOTTEN`."""
PICTURE_COLOURS = 128
"""Of a screenshot: flat colours and the edges of letters need no more."""
WIDENINGS = 6
"""How often a window is made wider or narrower: scroll bars come and go with its width."""
VIEWPORT = {"width": 1360, "height": 1500}

# The status icon is idle before there is a kernel; what is run then is lost in a dialog.
READY = """() => {
  const panel = window.jupyterapp?.shell.currentWidget;
  const kernel = panel?.sessionContext?.isReady && panel.sessionContext.session?.kernel;
  return kernel && kernel.status === 'idle' && kernel.connectionStatus === 'connected'
    && !document.querySelector('.jp-Dialog');
}"""
KERNEL = "() => window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status"
# A message that is sent while the channels are being connected has no answer.
ANSWERS = """(milliseconds) => Promise.race([
  window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.requestKernelInfo().then(() => true),
  new Promise((resolve) => setTimeout(() => resolve(false), milliseconds))])"""
LOST = 400
"""How often in a row a kernel is seen that is not busy before a run that has not ended is lost: JupyterLab
waits for a message that was sent while the kernel's channels were being connected again. Looks, and not
seconds: of a machine that stood still nothing is known before the kernel had its time."""
LOOK = 50.0
"""Milliseconds between looks."""
ATTEMPTS = 3
"""How often a person reloads a page whose kernel does not answer, or whose cells wait for ever."""
# Every widget that the notebook holds stands below its cell, or the sentence that it was not found.
SETTLED = """() => {
  const cells = window.jupyterapp.shell.currentWidget.content.model.toJSON().cells;
  const widget = 'application/vnd.jupyter.widget-view+json';
  const held = cells.flatMap((cell) => cell.outputs ?? []).filter((output) => widget in (output.data ?? {}));
  const places = [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output.lm-Panel')];
  return places.filter((one) => !['', 'Loading widget...'].includes(one.textContent)).length >= held.length;
}"""
# Not awaited: it takes as long as the notebook.
EXECUTE = """(command) => {
  window.dietlabDone = '';
  window.jupyterapp.commands.execute(command).then(
    () => { window.dietlabDone = 'done'; }, (error) => { window.dietlabDone = `failed: ${error}`; });
}"""
PROBLEMS = """() => {
 const cells = window.jupyterapp.shell.currentWidget.content.model.toJSON().cells;
 return cells.flatMap((cell, number) => {
  if (cell.cell_type !== 'code') return [];
  const errors = cell.outputs.filter((output) => output.output_type === 'error');
  const found = errors.map((error) => `cell ${number}: ${error.ename}: ${error.evalue}`);
  const empty = cell.source.length === 0 || cell.execution_count !== null;
  return empty ? found : [...found, `cell ${number} did not run`];
 });
}"""
UNDRAWN = """(figures) => figures.flatMap((figure, number) =>
  figure._fullLayout && figure.querySelector('svg.main-svg') && figure.offsetHeight > 100
    ? [] : [`figure ${number}: ${figure.textContent}`])"""
SHOWN = """(figure) => JSON.stringify([
  figure.data, figure.layout.title, figure.layout.shapes, figure.layout.annotations])"""
FITTED = """(figures) => figures.every((figure) =>
  Math.abs(figure._fullLayout.width - figure.getBoundingClientRect().width) <= 2
    && Math.abs(figure.offsetHeight - figure._fullLayout.height) <= 8)"""
THEMED = """(figures) => figures.every((figure) =>
  figure._fullLayout.font.color
    === getComputedStyle(figure).getPropertyValue('--jp-ui-font-color1').trim())"""


def until(page: Page, true: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Looks again and again; what it was, once it is true."""
    end = monotonic() + seconds
    while not (found := true()):
        assert monotonic() < end, f"waited {seconds:.0f} s in vain: {what}"
        page.wait_for_timeout(LOOK)
    return found


@dataclass(frozen=True)
class Notebook:
    """An open notebook.

    Attributes:
        complaints: errors on the browser's console, and requests that left this machine.
    """

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, browser: Browser, lab: Lab, name: str) -> Notebook:
        """Opens a notebook of the lab's folder in a window of its own and waits for its kernel."""
        page = browser.new_page(viewport=VIEWPORT)
        page.set_default_timeout(1000 * SECONDS)
        notebook = cls(page, lab.address(name))
        page.on("console", lambda said: notebook._heard(said.type, said.text))
        page.on("pageerror", lambda error: notebook._heard("error", str(error)))
        page.on("request", lambda request: notebook._asked(lab.url, request.url))
        page.goto(notebook.url, wait_until="domcontentloaded")
        notebook._await_kernel()
        return notebook

    def _heard(self, kind: str, text: str) -> None:
        if kind == "error" and not text.startswith((SLOW, LATE, EARLY)):
            self.complaints.append(text[:500])

    def _asked(self, home: str, url: str) -> None:
        local = (home, home.replace("http:", "ws:"), "data:", "blob:")
        if not url.startswith(local):
            self.complaints.append(f"asked for {url[:200]}")

    def run_all(self, seconds: float) -> None:
        self._execute("notebook:run-all-cells")
        self._finish(seconds)

    def restart_and_run_all(self, seconds: float) -> None:
        self._execute("notebook:restart-run-all")
        self.page.locator(".jp-Dialog .jp-mod-accept").click()
        self._finish(seconds)

    def _execute(self, command: str) -> None:
        self.page.evaluate(EXECUTE, command)

    def _finish(self, seconds: float) -> None:
        """Waits until all cells ran; runs them again as a person does if JupyterLab lost one of them."""
        for attempt in range(ATTEMPTS):
            if self._finished(seconds):
                if attempt > 0:
                    self._forgive()  # a kernel that was restarted had none of the saved widgets
                return
            self._reload()
            self._execute("notebook:run-all-cells")
        assert self._finished(seconds), f"JupyterLab lost cells again and again: {self.problems}"

    def _finished(self, seconds: float) -> bool:
        """Waits until all cells ran; False if JupyterLab lost one of them (see :data:`LOST`)."""
        end, idle = monotonic() + seconds, 0
        while not (said := self.page.evaluate("window.dietlabDone")):
            kernel = self.page.evaluate(KERNEL)
            assert monotonic() < end, (
                f"waited {seconds:.0f} s in vain, the kernel is {kernel}: {self.problems}"
            )
            idle = 0 if kernel == "busy" else idle + 1
            if idle > LOST:
                return False
            self.page.wait_for_timeout(LOOK)
        assert said == "done"
        return True

    def _await_kernel(self) -> None:
        """Waits until the kernel answers; a server that has just started may lose the first page's."""
        from playwright.sync_api import TimeoutError as TooLate

        for attempt in range(ATTEMPTS):
            try:
                self.page.wait_for_function(READY, timeout=1000 * SECONDS / 2)
                if self.page.evaluate(ANSWERS, 1000 * SECONDS / 3):
                    return
            except TooLate:
                assert attempt < ATTEMPTS - 1, f"no kernel answers: {self.page.evaluate(KERNEL)}"
            self.page.reload(wait_until="domcontentloaded")
        raise AssertionError("the kernel does not answer")

    @property
    def problems(self) -> list[str]:
        """Errors in outputs, and cells that did not run."""
        found: list[str] = self.page.evaluate(PROBLEMS)
        return found

    def await_figures(self, least: int = 0) -> int:
        """Waits until every figure is drawn, and at least so many are there; how many there are."""
        figures = self.page.locator(".dietlab-figure")
        until(self.page, lambda: figures.count() >= least, f"{least} figures")
        until(self.page, lambda: not figures.evaluate_all(UNDRAWN), "every figure is drawn")
        assert self.page.locator(".jupyter-widgets-error-widget").count() == 0
        return figures.count()

    def save(self) -> None:
        self.page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")

    def reload(self) -> None:
        """Reloads the page as a person does: again if JupyterLab did not learn of the kernel's widgets."""
        from playwright.sync_api import TimeoutError as TooLate

        forgotten = self.page.locator(".jp-OutputArea-output").get_by_text(FORGOTTEN)
        for _ in range(ATTEMPTS):
            self._reload()
            try:
                self.page.wait_for_function(SETTLED)
            except TooLate:
                continue
            if forgotten.count() == 0:
                return
            self._forgive()
        raise AssertionError("JupyterLab forgot the widgets again and again")

    def _reload(self) -> None:
        self.page.reload(wait_until="domcontentloaded")
        self._await_kernel()

    def _forgive(self) -> None:
        """Puts away what the console said of widgets that were not found."""
        self.complaints[:] = [text for text in self.complaints if not text.startswith(MISSED)]

    def theme(self, name: str) -> None:
        """``"Light"`` or ``"Dark"``; waits until every figure follows."""
        change = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
        self.page.evaluate(change, f"JupyterLab {name}")
        light = "() => document.body.dataset.jpThemeLight"
        until(self.page, lambda: self.page.evaluate(light) == str(name == "Light").lower(), "the theme")
        figures = self.page.locator(".dietlab-figure")
        until(self.page, lambda: figures.evaluate_all(THEMED), "figures follow the theme")

    def widen(self, width: int) -> None:
        """Gives the outputs of cells this width in pixels, and waits until every figure has the new one."""
        place = self.page.locator(".jp-Notebook .jp-OutputArea-output").first
        window = dict(self.page.viewport_size or VIEWPORT)
        for _ in range(WIDENINGS):
            missing = round(width - place.evaluate("(one) => one.getBoundingClientRect().width"))
            if missing == 0:
                break
            window["width"] += missing
            self.page.set_viewport_size(window)
            self.page.wait_for_timeout(2 * LOOK)
        figures = self.page.locator(".dietlab-figure")
        until(self.page, lambda: figures.evaluate_all(FITTED), "figures have the new width")
        assert abs(place.evaluate("(one) => one.getBoundingClientRect().width") - width) <= 2

    def close(self) -> None:
        """Ends the kernel too."""
        self.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        self.page.close()

    def output(self, cell: int) -> Widget:
        """The widget below a cell (counted from 0)."""
        return Widget(
            self.page, self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea")
        )


@dataclass(frozen=True)
class Widget:
    """Controls, numbers and figures below a cell."""

    page: Page
    place: Locator

    @property
    def shown(self) -> str:
        """All that its figures show."""
        return "\n".join(figure.evaluate(SHOWN) for figure in self.figures)

    @property
    def figures(self) -> list[Locator]:
        return self.place.locator(".dietlab-figure").all()

    @property
    def text(self) -> str:
        """Numbers and sentences."""
        return "\n".join(self.place.locator(".widget-html").all_inner_texts())

    def control(self, kind: str, label: str) -> Locator:
        """A ``"slider"`` or a ``"dropdown"`` by what stands beside it."""
        named = self.page.locator("label.widget-label", has_text=re.compile(f"^{re.escape(label)}$"))
        return self.place.locator(f".widget-{kind}", has=named).first

    def press_key(self, label: str) -> None:
        """Moves a slider by one step on the keyboard, backwards if it is at its end."""
        handle = self.control("slider", label).locator(".noUi-handle")
        at_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
        handle.press("ArrowLeft" if at_end else "ArrowRight")

    def drag(self, label: str, share: float) -> None:
        """Drags a slider's handle to a share of its track."""
        slider = self.control("slider", label)
        slider.locator(".noUi-handle").hover()  # it waits until nothing moves it any more
        self.page.mouse.down()
        track = slider.locator(".noUi-target").bounding_box()
        assert track
        row = track["y"] + track["height"] / 2
        self.page.mouse.move(track["x"] + share * track["width"], row, steps=8)
        self.page.mouse.up()

    def choose_other(self, label: str) -> None:
        """Chooses the last option of a dropdown, or the first if that is chosen."""
        select = self.control("dropdown", label).locator("select")
        last, chosen = select.evaluate("(select) => [select.options.length - 1, select.selectedIndex]")
        assert last > 0, f"{label} has no other option"
        select.select_option(index=0 if chosen == last else last)

    def press(self, button: str) -> None:
        self.place.get_by_role("button", name=button, exact=True).click()

    def click_point(self, figure: int, axes: str, x: float, y: float) -> None:
        """Clicks a figure where its axes (``""``, ``"2"``, ...) have these values."""
        place = self.figures[figure]
        place.scroll_into_view_if_needed()
        at = place.evaluate(
            """(figure, [axes, x, y]) => {
              const [across, down] = ['xaxis', 'yaxis'].map((name) => figure._fullLayout[name + axes]);
              const box = figure.getBoundingClientRect();
              return [box.x + across._offset + across.d2p(x), box.y + down._offset + down.d2p(y)];
            }""",
            [axes, x, y],
        )
        self.page.mouse.move(*at, steps=3)
        self.page.wait_for_timeout(200)  # plotly looks what is below the pointer before it takes a click
        self.page.mouse.click(*at)

    def await_change(self, read: Callable[[], Any], before: Any, what: str) -> None:
        """Waits until something is another; figures have not lost their place on the page meanwhile."""
        until(self.page, lambda: read() != before, what)
        heights = "(figure) => figure.offsetHeight"
        until(
            self.page,
            lambda: all(f.evaluate(heights) > 100 for f in self.figures),
            "figures have a height",
            5,
        )

    def take_picture(self, path: Path) -> None:
        """What stands below the cell, with the pointer elsewhere; few colours make a small file."""
        self.page.mouse.move(0, 0)
        taken = BytesIO(self.place.locator(".jp-OutputArea-output").first.screenshot())
        with Image.open(taken) as image:
            few = image.convert("RGB").quantize(PICTURE_COLOURS, dither=Image.Dither.NONE)
            few.save(path, "png", optimize=True)

    @property
    def contrast(self) -> float:
        """The least contrast of a figure's text to the page, as web accessibility guidelines count it."""
        return min(float(figure.evaluate(CONTRAST)) for figure in self.figures)


CONTRAST = """(figure) => {
  const luminance = (colour) => {
    const probe = document.createElement('span');
    probe.style.color = colour;
    document.body.append(probe);
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    probe.remove();
    const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const page = luminance(getComputedStyle(document.body).getPropertyValue('--jp-layout-color0').trim());
  const text = luminance(figure._fullLayout.font.color);
  return Math.max(page, text) / Math.min(page, text);
}"""
