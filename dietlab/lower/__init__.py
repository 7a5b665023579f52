"""Lowering: the only place that writes TensorIR. Needs apache-tvm."""
