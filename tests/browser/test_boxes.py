"""The looks for texts that are cut or lie over each other, on pages where it is known which ones do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from browser.boxes import cut_texts, overlaps

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

LONG = "a label that needs some two hundred pixels"
TICK = '<text class="legendtext" x="{}" y="40">{}</text>'


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 800, "height": 400})
    yield opened
    opened.close()


def found(page: Page, inside: str) -> list[str]:
    page.set_content(f'<main style="width:600px;height:300px;font:16px sans-serif">{inside}</main>')
    return cut_texts(page.locator("main"))


@pytest.mark.parametrize(
    ("inside", "told"),
    [
        ('<div style="width:{};overflow:hidden;white-space:nowrap">' + LONG + "</div>", "is cut by"),
        ('<div style="width:{};overflow-x:auto;white-space:nowrap"><b>' + LONG + "</b></div>", "is cut by"),
        (
            '<div style="width:{};overflow:hidden;text-overflow:ellipsis;white-space:nowrap">'
            f"<b>{LONG}</b></div>",
            "is cut by",
        ),
        (
            '<div style="margin-left:calc(600px - {});white-space:nowrap">' + LONG + "</div>",
            "leaves the output",
        ),
        (
            '<select style="width:{}"><option>short</option><option selected>' + LONG + "</option></select>",
            "option",
        ),
        ('<svg width="{}" height="40"><text y="20">' + LONG + "</text></svg>", "leaves its figure"),
    ],
)
def test_a_text_with_too_little_room_is_found(page: Page, inside: str, told: str) -> None:
    assert found(page, inside.format("500px")) == []
    narrow = found(page, inside.format("90px"))
    assert len(narrow) == 1 and told in narrow[0]


def test_a_text_that_is_too_high_is_found(page: Page) -> None:
    high = '<div style="height:{};overflow:hidden"><b style="line-height:24px">one<br>two<br>three</b></div>'
    assert found(page, high.format("80px")) == []
    assert ["is cut by DIV" in one for one in found(page, high.format("40px"))] == [True]


def test_what_is_hidden_or_scrolls_by_design_is_not_told_of(page: Page) -> None:
    assert found(page, f'<p style="width:40px;overflow:hidden;display:none">{LONG}</p>') == []
    assert found(page, f'<p style="width:40px;overflow:hidden;visibility:hidden"><b>{LONG}</b></p>') == []
    assert found(page, f'<pre style="width:90px;overflow:auto">{LONG}</pre>') == []


def test_texts_of_a_figure_that_lie_over_each_other_are_found(page: Page) -> None:
    for apart, number in ((300, 0), (20, 1)):
        texts = TICK.format(10, "one") + TICK.format(10 + apart, "other")
        page.set_content(f'<svg width="600" height="80" style="font:16px sans-serif">{texts}</svg>')
        assert len(overlaps(page.locator("svg"))) == number
