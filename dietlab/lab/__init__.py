"""The laboratory beside the library: the course, the paper's experiments, whole models, judges of
strategies."""
