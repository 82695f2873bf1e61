"""Evaluation and training past one machine, on Ray: environment workers, policy replicas, and joining a cluster.

Imported only for `--executor ray`; needs the extra `ray`.
"""
