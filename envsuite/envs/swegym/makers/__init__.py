"""Makers of tasks: planting of bugs in packages, and mining of real ones. Playing and grading import none of them."""
