"""Studies: several training runs side by side, their learning curves, and tiny models to train."""
