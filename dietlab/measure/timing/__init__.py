"""Checks and times a contender on one shape, in the same way for all contenders and devices."""
