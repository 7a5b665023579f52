"""Measurements that others made and published: read, chosen from, and judged like our own."""
