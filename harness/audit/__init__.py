"""The audit board: what it takes to evaluate published checkpoints under their own prompts: `envsuite-audit`."""
