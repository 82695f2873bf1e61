"""Published instances of SWE-Gym and SWE-bench: their records, setups, test runs and logs."""
