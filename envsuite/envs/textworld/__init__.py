"""TextWorld: generated households, cooking, mazes, and any Z-machine game of the user's, on the textworld engine."""
