"""Evaluation and training on a Ray cluster: environment workers, policy replicas, tasks and
connections.

Imported only for `--executor ray`; needs the extra `ray`.
"""
