"""The family of networks of Once-for-All: one trained network, cut to many sizes."""

from __future__ import annotations

from dietlab.problem.networks.walk import Image, Network, Size, Walk

KERNELS, EXPANSIONS, DEPTHS = (3, 5, 7), (3, 4, 6), (2, 3, 4)
"""Each block has one of these kernels and one of these expansions, each stage one of these numbers of blocks
(section 3.2)."""

STAGES = ((24, 2), (40, 2), (80, 2), (112, 1), (160, 2))
"""Output channels and stride of each stage, of width 1.0."""

STEM, LAST = 16, 960
"""Channels of the first layer, and of the last one that sees an image."""

RESOLUTIONS = range(128, 225, 4)
"""Sides of the images, in pixels (section 3.2)."""


def once_for_all(walk: Walk, size: Size) -> None:
    """Calls the convolutions of all networks of the family, each weighted by the share of the networks that
    have it, where every choice is as frequent as the others.

    The squeeze-and-excitation layers and the last 1x1 layer see one pixel, so they are linear layers.
    """
    stem = walk.conv(Image(size, 3), STEM, kernel=3, stride=2)
    image = walk.conv(walk.conv(stem, STEM, kernel=3, groups=STEM), STEM)
    for width, stride in STAGES:
        for block in range(max(DEPTHS)):
            share = sum(block < depth for depth in DEPTHS) / len(DEPTHS)
            image = _block(walk, image, width, 1 if block else stride, share)
    walk.conv(image, LAST)


def _block(walk: Walk, image: Image, width: int, stride: int, share: float) -> Image:
    """Calls one inverted bottleneck with every expansion and kernel.

    Args:
        share: the share of the networks that have the block.
    """
    result = image
    for expansion in EXPANSIONS:
        each = share / len(EXPANSIONS)
        wide = walk.conv(image, expansion * image.channels, calls=each)
        for kernel in KERNELS:
            seen = walk.conv(
                wide, wide.channels, kernel, stride, groups=wide.channels, calls=each / len(KERNELS)
            )
        result = walk.conv(seen, width, calls=each)
    return result


ONCE_FOR_ALL = Network(
    "Cai et al. 2020, Once-for-All: Train One Network and Specialize it for Efficient Deployment, section "
    "3.2; the stages are those of MobileNetV3-Large (Howard et al. 2019, table 1)",
    once_for_all,
    {(side, side): 1.0 for side in RESOLUTIONS},
)
