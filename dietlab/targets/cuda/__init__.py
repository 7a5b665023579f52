"""The target of NVIDIA's GPUs: tiles of thread blocks, whose CUDA C++ TVM generates."""
