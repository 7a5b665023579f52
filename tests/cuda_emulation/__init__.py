"""CUDA without a GPU: generated kernels run on the processor, under a stub driver if TVM launches them."""
