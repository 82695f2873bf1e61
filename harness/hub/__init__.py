"""Uploads of runs and tasks to the Hugging Face hub: `envsuite hub`."""
