"""The learned model's features of a CPU scheme: its loops, reuse, registers and bytes by cache
level."""

from __future__ import annotations

from dietlab.machine import Hardware
from dietlab.problem import Workload, static_extent
from dietlab.targets.cpu.kernel import CpuScheme
from dietlab.targets.cpu.limits import cpu_of

CPU_FEATURES = (
    "rows",
    "vectors",
    "unroll",
    "weight_stationary",
    "prefetch",
    "ahead",
    "along_depth",
    "checked",
    "partitioned",
    "accumulators",
    "registers_of_file",
    "loads_per_multiply_add",
    "flops_per_byte",
    "panel_bytes_of_l1",
    "panel_bytes_of_l2",
    "rows_bytes_of_l1",
    "code_vectors",
    "column_waste",
    "passes",
    "unit_rate",
)

REFERENCE_DEPTH = 768
"""Steps that a dynamic reduction axis counts as in features of the caches: a micro-kernel has one throughput
for all depths, so that any number will do that is alike for all; this is the depth of BERT-base's layers."""


def cpu_features(scheme: CpuScheme, workload: Workload, hardware: Hardware) -> list[float]:
    """Returns one number for each of :data:`CPU_FEATURES`; none depends on a dynamic dimension."""
    cpu, kernel = cpu_of(hardware), scheme.kernel
    vectors = kernel.vectors(cpu.lanes)
    whole = static_extent(workload, "depth") or REFERENCE_DEPTH
    # Dynamic columns are wasted as the shape has it, which the adaptation cost counts.
    cols = static_extent(workload, "cols") or kernel.cols
    depth = kernel.block or whole
    accumulators = kernel.rows * vectors
    step_bytes = 4.0 * (kernel.rows + kernel.cols)
    covered = -(-cols // kernel.cols) * kernel.cols
    return [
        kernel.rows,
        vectors,
        kernel.unroll,
        scheme.order == "ws",
        kernel.prefetch,
        kernel.ahead,
        kernel.along == "depth",
        scheme.edge == "checked",
        scheme.edge == "partitioned",
        accumulators,
        kernel.registers(cpu.lanes) / cpu.vector_registers,
        (kernel.rows + vectors) / accumulators,
        2.0 * kernel.rows * kernel.cols / step_bytes,
        4.0 * kernel.cols * depth / cpu.l1d_bytes,
        4.0 * kernel.cols * depth / cpu.l2_bytes,
        4.0 * kernel.rows * depth / cpu.l1d_bytes,
        accumulators * kernel.unroll,
        covered / cols - 1.0,
        whole / depth,
        kernel.facts.rate,
    ]
