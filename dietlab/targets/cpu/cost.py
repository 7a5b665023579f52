"""The cost model of a CPU: register tiles, and how much computing hides the fetch of weights."""

from dietlab.targets.cpu.adaptation import CpuAdaptation

adaptation = CpuAdaptation
