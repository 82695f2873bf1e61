"""Environments of generated games whose rooms follow the counts of their floor plans (version 1)."""

from __future__ import annotations

from envsuite.envs.alfworld.env import AlfworldEnv
from envsuite.envs.alfworld.knobs import COUNTED_KNOBS
from envsuite.envs.alfworld.vector import AlfworldVectorEnv


class CountedAlfworldEnv(AlfworldEnv):
    """A generated household task per episode. Rules: docs/envs/alfworld.md."""

    knobs = COUNTED_KNOBS
    generator_version = 1


class CountedAlfworldVectorEnv(AlfworldVectorEnv):
    """`num_envs` such games at once."""

    env_class = CountedAlfworldEnv
