"""Runs a policy in environments: the loop, and the executors that hold environments."""
