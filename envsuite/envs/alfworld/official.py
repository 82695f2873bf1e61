"""Environments of the official splits: only the knobs that apply to official games, and one split each."""

from __future__ import annotations

from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.envs.alfworld.knobs import game_knobs


class AlfworldTrain(AlfworldEnv):
    """The training games."""

    knobs = game_knobs(("train",))


class AlfworldValidSeen(AlfworldEnv):
    """The validation games in rooms of the training set."""

    knobs = game_knobs(("valid_seen",))


class AlfworldValidUnseen(AlfworldEnv):
    """The validation games in rooms that training does not use."""

    knobs = game_knobs(("valid_unseen",))
