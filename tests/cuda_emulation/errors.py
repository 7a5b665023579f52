"""What goes wrong in the emulator: a source it cannot translate, or a kernel that a GPU would not run."""

from __future__ import annotations

from dietlab.base.errors import DietlabError


class EmulatorError(DietlabError, RuntimeError):
    """A program that cannot be emulated, or one that breaks a rule of CUDA while it runs."""
