"""Language models in this process: weights, chat templates, caches and decoding. Imports torch."""
