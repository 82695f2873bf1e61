"""Published instances of SWE-Gym and SWE-bench: their records, places to play them, and their logs."""
