"""Notebooks and widgets in a real browser: JupyterLab on the loopback address, looked at by Chromium."""
