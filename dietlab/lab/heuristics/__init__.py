"""NVIDIA's choices of tiles (nvMatmulHeuristics) beside ours."""
