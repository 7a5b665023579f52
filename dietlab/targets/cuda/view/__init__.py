"""Views of thread blocks in waves."""
