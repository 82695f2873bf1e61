"""TextWorld: generated houses, cooking games, mazes and any Z-machine game, on the textworld
engine.
"""
