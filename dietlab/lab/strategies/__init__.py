"""Search strategies on recorded surveys, on simulated fleets, and from one processor to another."""
