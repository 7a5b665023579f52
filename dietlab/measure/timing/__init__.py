"""Checks what a contender computes on one shape and times it, in one way for all contenders and devices."""
