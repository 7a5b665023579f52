"""Descriptions of processors: facts with units that bound the search space."""

from dietlab.hardware.description import CpuLimits, GpuLimits, Hardware
from dietlab.hardware.roofline import Roofline

__all__ = ["CpuLimits", "GpuLimits", "Hardware", "Roofline"]
