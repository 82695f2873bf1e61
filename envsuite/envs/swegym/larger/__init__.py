"""Larger generated tasks: compounds of independent bugs, lost branches, wrong refactorings, missing features."""
