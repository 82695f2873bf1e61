"""Capacity planning: measured profiles of the families, and a simulation of runs on a cluster."""
