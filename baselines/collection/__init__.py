"""Collecting episodes to learn from: which games are played, by which policy, and in which
environments."""
