"""Search strategies, one a file, and their names."""
