"""The paper's experiments on this machine: one command, its records, and the paper's claims beside dietlab's
values."""
