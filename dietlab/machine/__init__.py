"""Descriptions of processors: numbers with units that bound the search space."""

from dietlab.machine.description import Hardware
from dietlab.machine.roofline import Roofline, above_roofline

__all__ = [
    "Hardware",
    "Roofline",
    "above_roofline",
]
