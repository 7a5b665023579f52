"""Evaluation on a GPU, which differs from a CPU's in the worker only.

Contenders work on PyTorch's tensors, each in a separate process, and answer the same questions as those of
a CPU (:mod:`dietlab.timing.bench`). Here stand only their names: importing this package loads no library
of a GPU.

==================  =========  =====================================================================
contender           kind       what it is
==================  =========  =====================================================================
``cublas``          plain      PyTorch's ``mm``, ``addmm`` or ``bmm``
``cublaslt``        plain      the same through cuBLASLt, which takes its heuristic's first choice
``cublaslt-tuned``  tuned      cuBLASLt with the fastest of its heuristic's list, for each shape
``torch-compile``   compiled   one program for all lengths, out of Inductor
``triton``          tuned      the blocked product of Triton's tutorial, its configurations tried for each
                               shape
``ansor``           scheduler  MetaSchedule's best program for each shape that was tuned; no bfloat16
==================  =========  =====================================================================

float32 is multiplied as float32: TF32 is off everywhere.
"""

from __future__ import annotations

GPU_VENDORS = ("cublas", "cublaslt", "cublaslt-tuned", "torch-compile", "triton")
"""Contenders on a GPU that are not made of our library."""

WORKER = "dietlab.evaluation.gpu.worker"
