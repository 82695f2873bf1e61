"""Prompts: what a model reads each turn, and how commands are parsed from its replies."""
