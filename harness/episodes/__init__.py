"""Finished episodes, stored once and reused by later runs with the same settings."""
