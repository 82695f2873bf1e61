"""Runs of a command: the players of a call, and previews."""
