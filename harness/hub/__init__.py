"""Uploads of runs and tasks to the Hugging Face hub and to prime's environments hub: `envsuite hub`."""
