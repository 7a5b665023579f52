"""Widgets of notebooks: explorers, the tuning panel, and live figures."""
