"""Trajectories of software agents of other projects.

trajectories    reads files of SWE-agent, mini-swe-agent and OpenHands
importing       turns them into records to replay, and patches to grade
"""
