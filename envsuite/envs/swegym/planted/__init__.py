"""Generated tasks of SWE-Gym: small bugs planted in packages, their tests and their statements."""
