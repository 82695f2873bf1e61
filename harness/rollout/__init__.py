"""Runs a policy in environments: the loop, the executors that hold environments, and seeding."""
