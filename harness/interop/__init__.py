"""Adapters that pass records and tasks to other tools; each module needs the extra of its name."""
