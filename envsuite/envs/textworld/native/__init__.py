"""Plays generated games without compiling them: listed commands are answered from the game's logic."""
