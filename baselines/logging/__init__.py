"""Checkpoints, metric trackers and progress display."""
