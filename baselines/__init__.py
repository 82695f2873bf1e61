"""Baseline trainers: one file per algorithm, one loop, pure estimators."""
