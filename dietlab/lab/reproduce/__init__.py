"""The paper's experiments on this machine: one command, its records, and its claims beside what was found."""
