"""Pictures that stand beside live figures: plotly's figures redrawn by matplotlib."""
