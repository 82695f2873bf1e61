"""Homes drawn from a seed, in which people keep things where they are usual, and goals need a look around."""
