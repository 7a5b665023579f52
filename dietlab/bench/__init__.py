"""The bench: a whole table of workloads, contenders, cache states and threads, with targets."""
