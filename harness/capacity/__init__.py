"""What a run will take, before it is made: measured profiles of the families, and a simulation of cluster and run."""
