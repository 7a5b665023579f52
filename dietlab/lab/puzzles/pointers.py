"""Puzzle 15: the address that a row of a convolution reads at a tap."""

from __future__ import annotations

from random import Random
from typing import Any

from dietlab.lab.puzzles.answers import kind, number, said, whole_numbers
from dietlab.lab.puzzles.pictures import Given, Picture, Point
from dietlab.lab.puzzles.puzzle import Puzzle
from dietlab.problem.dims import Window

HEIGHT, WIDTH, CHANNELS = 2, 3, 2
"""Sizes of the picture's image: lines, pixels of a line, and channels."""

Case = tuple[int, ...]
"""The arguments of a case, in their order."""


def _pointer(
    row: int, tap: int, H: int, W: int, C: int, kernel: int, stride: int, padding: int
) -> int | None:
    down, across = (Window("", size, kernel, stride, padding, padding) for size in (H, W))
    image, pixel = divmod(row, down.positions(H) * across.positions(W))
    out_line, out_column = divmod(pixel, across.positions(W))
    tap_line, tap_column = divmod(tap, kernel)
    line = down.over(H, tap_line).start + out_line * stride - padding
    column = across.over(W, tap_column).start + out_column * stride - padding
    inside = 0 <= line < H and 0 <= column < W
    return ((image * H + line) * W + column) * C if inside else None


def _drawn(random: Random) -> Case:
    """Returns a case within one of the first three images."""
    kernel, stride, padding = random.choice((1, 2, 3, 5)), random.randint(1, 2), random.randint(0, 2)
    least = max(1, kernel - 2 * padding)
    height, width = (random.randint(least, least + 6) for _ in range(2))
    window = Window("", 1, kernel, stride, padding, padding)
    rows = window.positions(height) * window.positions(width)
    row, tap = random.randrange(3 * rows), random.randrange(kernel * kernel)
    return row, tap, height, width, random.choice((1, 3, 64)), kernel, stride, padding


def _wrong_pointer(given: Given, found: Any, expected: int | None) -> str:
    """Returns a text that says what lies where an answer points to."""
    if found is None:
        return "" if expected is None else f"expected the address {expected}, got {kind(found)}"
    number(found)
    (place,) = whole_numbers([found], "a whole number, or None beyond the image")
    if expected is None:
        return f"expected None, since the tap lies beyond the image, got {said(place)}"
    if place == expected:
        return ""
    got = f"expected the address {expected}, got {said(place)}"
    pixel, channel = divmod(place, given["C"])
    if channel:
        return f"{got}, which is channel {channel} of a pixel, not its first"
    line, column = divmod(pixel, given["W"])
    image, line = divmod(line, given["H"])
    return f"{got}, which is line {line}, column {column} of image {image}"


def _address(given: Given, value: Any) -> list[Point]:
    return [] if value is None else [(given["tap"], given["row"], number(value))]


POINTER = Puzzle(
    name="pointer",
    hints=(
        "Which output pixel is the row? `divmod` by the pixels of an output, then by those of its line.",
        "Which line and column of the kernel is the tap? `divmod(tap, kernel)`.",
        "The tap meets line `out_line * stride + tap_line - padding`; columns follow the same formula.",
        "Before line `h`, column `w` of image `n` lie `(n * H + h) * W + w` pixels of `C` elements each.",
    ),
    reference=_pointer,
    arguments="row tap H W C kernel stride padding",
    tried=lambda random: (
        *((row, 4, 7, 7, 64, 3, 1, 1) for row in (0, 1, 7, 48)),
        *(
            (row, tap, 7, 7, 64, 3, 1, 1)
            for row, tap in ((0, 0), (0, 8), (8, 0), (6, 5), (7, 3), (48, 8), (46, 8))
        ),
        *((row, 4, 7, 7, 64, 3, 1, 1) for row in (49, 97)),
        *((row, tap, 6, 9, 3, 3, 2, 1) for row, tap in ((0, 4), (5, 4), (14, 8))),
        *(_drawn(random) for _ in range(200)),
    ),
    fault=_wrong_pointer,
    shown=[(row, tap, HEIGHT, WIDTH, CHANNELS, 3, 1, 1) for row in range(HEIGHT * WIDTH) for tap in range(9)],
    picture=Picture(
        f"Addresses: {HEIGHT} x {WIDTH} pixels, {CHANNELS} channels, kernel 3, padding 1",
        "tap",
        "row",
        _address,
        "grid",
        "address",
    ),
    praise="A tile needs a few such addresses, or one and a distance, and no copy of the image.",
)
