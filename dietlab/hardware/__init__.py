"""Descriptions of processors: facts with units that bound the search space."""

from dietlab.hardware.cpu_limits import CpuLimits
from dietlab.hardware.cpu_units import UNITS, CpuUnit, UnitFacts
from dietlab.hardware.description import Hardware
from dietlab.hardware.gpu_limits import GpuLimits
from dietlab.hardware.roofline import Roofline, above_roofline

__all__ = [
    "UNITS",
    "CpuLimits",
    "CpuUnit",
    "GpuLimits",
    "Hardware",
    "Roofline",
    "UnitFacts",
    "above_roofline",
]
