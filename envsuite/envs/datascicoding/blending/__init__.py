"""The cross-validated blend of models, and the optional packages whose models may join it."""
