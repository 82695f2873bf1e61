"""Training in several processes: collectives and fully sharded models."""
