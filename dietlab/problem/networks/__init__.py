"""The convolutions of published networks, and the images that they meet. Nothing is downloaded."""

from __future__ import annotations

from dietlab.base.errors import WorkloadError, closest
from dietlab.problem.networks.once_for_all import ONCE_FOR_ALL
from dietlab.problem.networks.resnet import MASK_RCNN, RESNET50
from dietlab.problem.networks.speech import SPEECH
from dietlab.problem.networks.walk import Network

NETWORKS: dict[str, Network] = {
    "resnet50": RESNET50,
    "once-for-all": ONCE_FOR_ALL,
    "mask-rcnn": MASK_RCNN,
    **SPEECH,
}
"""Networks of convolutions by name."""


def network_named(name: str) -> Network:
    """Returns one of :data:`NETWORKS`, or raises :class:`WorkloadError`."""
    if name not in NETWORKS:
        rule = f"a network of convolutions is one of {', '.join(NETWORKS)}"
        raise WorkloadError(rule, repr(name), closest(name, NETWORKS))
    return NETWORKS[name]
