"""Checks of recorded runs: their files agree, their commands replay, their replies are the model's."""
