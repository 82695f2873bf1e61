"""Judge of SWE-Gym: grading of test results, runs of tests, and checks that these are real."""
