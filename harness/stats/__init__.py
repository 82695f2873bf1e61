"""Statistics: intervals, aggregates over runs, paired comparisons and summaries."""
