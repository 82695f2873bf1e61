"""Networks of a learner: the language model, critic, adapters, and their float32 copies."""
