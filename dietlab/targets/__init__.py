"""The targets: one folder for each kind of processor, found by its name (:mod:`dietlab.hardware.target`).

Each module is the part of one stage and satisfies the stage's protocol. No stage imports them.
"""
