"""ResNet-50, and a detector that stands on it."""

from __future__ import annotations

from collections.abc import Iterator

from dietlab.problem.networks.walk import Image, Network, Size, Walk, moved

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
"""The width inside the bottlenecks of each stage, and the number of bottlenecks."""

EXPANSION = 4
"""Output channels of a bottleneck for each channel inside."""


def backbone(walk: Walk, size: Size) -> Iterator[Image]:
    """Calls the convolutions of ResNet-50 and yields the output of each stage.

    The stride stands at a bottleneck's 3x3 layer, as in torchvision (called v1.5), not at its first 1x1
    layer, as in the paper.
    """
    stem = walk.conv(Image(size, 3), 64, kernel=7, stride=2)
    image = Image(moved(stem.size, kernel=3, stride=2, padding=1), 64)  # the largest of 3 x 3
    for stage, (width, blocks) in enumerate(STAGES):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            if not block:
                walk.conv(image, EXPANSION * width, stride=stride)  # the shortcut
            inside = walk.conv(walk.conv(image, width), width, kernel=3, stride=stride)
            image = walk.conv(inside, EXPANSION * width)
        yield image


def resnet50(walk: Walk, size: Size) -> None:
    """Calls the convolutions of ResNet-50."""
    for _ in backbone(walk, size):
        pass


PYRAMID = 256
"""Channels of the feature pyramid."""

ANCHORS = 3
"""Boxes that the proposal head judges at each position of a level: one for each aspect ratio."""

PADDED_TO = 32
"""The divisor of an image's padded sides: the pyramid doubles its levels, each to exactly the next."""


def mask_rcnn(walk: Walk, size: Size) -> None:
    """Calls the convolutions of Mask R-CNN on ResNet-50 that see the whole image: backbone, feature pyramid
    and proposal head. What follows sees proposals, all of one size."""
    padded = tuple(-(-side // PADDED_TO) * PADDED_TO for side in size)
    levels = []
    for image in backbone(walk, padded):
        levels.append(walk.conv(walk.conv(image, PYRAMID), PYRAMID, kernel=3))
    top = levels[-1]
    levels.append(Image(moved(top.size, kernel=1, stride=2, padding=0), PYRAMID))  # every second pixel
    for level in levels:
        seen = walk.conv(level, PYRAMID, kernel=3)
        walk.conv(seen, ANCHORS)
        walk.conv(seen, 4 * ANCHORS)


SIDES = (128, 149, 160, 175, 192, 213, 224, 245, 256, 277, 288, 300, 309, 320)
"""Sides of square images, in pixels: all multiples of 32 from 128 to 320, and as many sides between them."""

DETECTED = (
    (800, 800),
    (800, 1067),
    (800, 1199),
    (800, 1333),
    (750, 1333),
    (1067, 800),
    (1199, 800),
    (1333, 800),
)
"""Sizes of a detector's images: the short side is 800 pixels, unless the long one would exceed 1333. They are
those of images of 1:1, 4:3, 640 x 427, 5:3 and 16:9, wide or tall. How often each occurs is not known."""

RESNET50 = Network(
    "He et al. 2016, Deep Residual Learning for Image Recognition, table 1; the stride stands at the 3x3 "
    "layers, as in torchvision",
    resnet50,
    {(side, side): 1.0 for side in SIDES},
    batches=(1, 8),
)
MASK_RCNN = Network(
    "He et al. 2017, Mask R-CNN, section 3.1, with the feature pyramid of Lin et al. 2017, Feature Pyramid "
    "Networks for Object Detection, sections 3 and 4.1",
    mask_rcnn,
    dict.fromkeys(DETECTED, 1.0),
)
