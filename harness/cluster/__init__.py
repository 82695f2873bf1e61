"""Evaluation and training on a Ray cluster: the executor and the connection. Imported only for `--executor ray`."""
