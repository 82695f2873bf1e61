"""Generalization grids: models evaluated over a grid of settings, seen and unseen."""
