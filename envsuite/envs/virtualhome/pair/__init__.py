"""Homes for two agents with split knowledge: each has its own rooms and its own list, and they talk."""
