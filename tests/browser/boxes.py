"""Text that is cut or lies over other text, found from the boxes that the page itself gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator

# Boxes are rounded to whole pixels, and letters of one line may touch.
SLACK = 1.5
"""Pixels by which text may leave the box that it is in."""

OVER = 0.25
"""The share of the smaller of two texts that may lie below the other: boxes of text have air around it."""

CUT = """(place, slack) => {
  const found = [];
  const all = place.getBoundingClientRect();
  const outside = (box, frame) => box.left < frame.left - slack || box.right > frame.right + slack
    || box.top < frame.top - slack || box.bottom > frame.bottom + slack;
  const words = (node) => [...node.childNodes].filter((one) => one.nodeType === Node.TEXT_NODE)
    .map((one) => one.textContent).join('').trim();
  const hides = (style) => style.overflowX !== 'visible' || style.overflowY !== 'visible';
  for (const node of place.querySelectorAll('*')) {
    const said = words(node), style = getComputedStyle(node);
    if (!said || style.visibility === 'hidden' || !node.getClientRects().length) continue;
    if (['STYLE', 'SCRIPT', 'OPTION', 'TITLE'].includes(node.tagName.toUpperCase())) continue;
    if (node.closest('pre')) continue; // a program scrolls
    if (node.closest('.modebar, .noUi-base, .jupyter-widget-Collapse-contents, .hoverlayer')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const svg = node.closest('svg');
    const name = `${node.tagName.toLowerCase()} "${said.slice(0, 60)}"`;
    if (svg) {
      if (outside(box, svg.getBoundingClientRect())) found.push(`${name} leaves its figure`);
      continue;
    }
    if (outside(box, all)) found.push(`${name} leaves the output`);
    for (let up = node; up !== place; up = up.parentElement) {
      const frame = up.getBoundingClientRect();
      if (hides(getComputedStyle(up)) && (box.left < frame.left - slack || box.right > frame.right + slack
          || box.top < frame.top - 4 || box.bottom > frame.bottom + 4)) {
        found.push(`${name} is cut by ${up.className || up.tagName}`);
        break;
      }
    }
  }
  for (const select of place.querySelectorAll('select')) {
    const style = getComputedStyle(select), pen = document.createElement('canvas').getContext('2d');
    pen.font = style.font;
    const chosen = select.selectedOptions[0]?.textContent ?? '';
    const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (pen.measureText(chosen).width > room + slack) found.push(`option "${chosen}" is cut`);
  }
  return found;
}"""

OVERLAPS = """(figure, [share, least]) => {
  const kinds = '.gtitle, .xtitle, .ytitle, .x2title, .y2title, .x3title, .y3title, .legendtext, '
    + '.annotation-text, .xtick text, .ytick text, .x2tick text, .y2tick text, .x3tick text, .y3tick text';
  const texts = [...figure.querySelectorAll(kinds)].filter((one) => one.textContent.trim())
    .map((one) => [one.textContent.trim().slice(0, 60), one.getBoundingClientRect(), one])
    .filter(([, box]) => box.width > 0);
  const found = [];
  texts.forEach(([said, a], number) => texts.slice(number + 1).forEach(([other, b]) => {
    const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (width <= least || height <= least) return;
    const smaller = Math.min(a.width * a.height, b.width * b.height);
    if (width * height > share * smaller) found.push(`"${said}" lies over "${other}"`);
  }));
  return found;
}"""


def cut_texts(place: Locator) -> list[str]:
    """Texts below a cell that leave the box that they are in, with what cuts them."""
    found: list[str] = place.evaluate(CUT, SLACK)
    return found


def overlaps(figure: Locator) -> list[str]:
    """Pairs of titles, labels of ticks, legends and notes of a figure that lie over each other."""
    found: list[str] = figure.evaluate(OVERLAPS, [OVER, SLACK])
    return found
