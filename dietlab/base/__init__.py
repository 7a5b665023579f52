"""The base of everything: errors, events, files, registries, statistics."""
