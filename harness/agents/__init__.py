"""Software agents of other projects: an environment for mini-swe-agent, and trajectories that are imported.

mini_swe_agent  plays SWE-Gym with mini-swe-agent's own loop and model
trajectories    reads files of SWE-agent, mini-swe-agent and OpenHands
importing       turns them into records to replay, and patches to grade
"""
