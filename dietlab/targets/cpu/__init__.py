"""The target of CPUs: register tiles of vector instructions, which TVM compiles with LLVM."""
