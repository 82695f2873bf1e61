"""Repositories to mend: SWE-Gym and SWE-bench records, and tasks generated from small packages."""
