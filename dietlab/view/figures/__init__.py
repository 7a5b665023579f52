"""Figures: each in two halves, a tidy table (``frame_x``) and the figure that draws it (``plot_x``)."""
