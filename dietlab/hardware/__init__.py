"""Descriptions of processors: facts with units that bound the search space."""

from dietlab.hardware.description import CpuLimits, GpuLimits, Hardware
from dietlab.hardware.roofline import Roofline, above_roofline

__all__ = ["CpuLimits", "GpuLimits", "Hardware", "Roofline", "above_roofline"]
