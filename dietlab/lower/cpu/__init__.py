"""TensorIR for CPUs: register tiles, packed panels, one function for each tile."""
