"""Overcooked: cooks who chop food, fill a bowl and serve it, by macro-actions (TWOSOME, POAD), on our own engine."""
