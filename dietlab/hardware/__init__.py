"""Descriptions of processors: facts with units that bound the search space."""

from dietlab.hardware.description import CpuLimits, GpuLimits, Hardware

__all__ = ["CpuLimits", "GpuLimits", "Hardware"]
