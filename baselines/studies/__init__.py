"""Studies: training runs that compare settings, their learning curves, and tiny models to train."""
