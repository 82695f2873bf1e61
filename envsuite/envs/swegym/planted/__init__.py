"""Bugs planted in packages: the packages, the tasks, their issue texts, and the problem that grades a repair."""
