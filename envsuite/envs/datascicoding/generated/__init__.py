"""Generated tables: data sets drawn from structural causal models whose best attainable score is known."""
