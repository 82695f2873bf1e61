"""Making tasks for SWE-Gym.

command  is envsuite swe
tables   prints the yield per package
"""
