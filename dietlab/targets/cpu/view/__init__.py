"""Views of register tiles."""
