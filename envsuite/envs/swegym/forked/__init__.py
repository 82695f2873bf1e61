"""Sabotaged tests in forks of the pytest that ran the submission's tests: `plan` draws them, `plugin` runs them."""
