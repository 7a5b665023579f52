"""The cost model of a CPU: register tiles, and how much computing hides the fetch of weights."""

from dietlab.targets.cpu.adaptation import CpuAdaptation
from dietlab.targets.cpu.features import CPU_FEATURES

DEALT = 1.0
"""All of the space: what the access patterns differ in, how a core fetches and loops, is hardly expected."""

FEATURES, adaptation = CPU_FEATURES, CpuAdaptation
