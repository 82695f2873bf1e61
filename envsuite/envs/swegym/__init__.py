"""SWE-Gym: repositories to repair, from SWE-Gym and SWE-bench records or generated from small
packages.
"""
