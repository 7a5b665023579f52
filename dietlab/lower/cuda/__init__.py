"""Lowering to CUDA: source code, the compiler that makes a cubin of it, and what its kernels use."""
