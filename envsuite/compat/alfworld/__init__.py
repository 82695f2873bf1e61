"""ALFWorld's own interface on the native engine, for code written for the alfworld package.

Change one import and keep the rest of the program:

    from envsuite.compat.alfworld import get_environment  # was alfworld.agents.environment

    env = get_environment("AlfredTWEnv")(config, train_eval="train").init_env(batch_size=64)
    observations, infos = env.reset()
    observations, scores, dones, infos = env.step(["look"] * 64)

Texts, scores, dones, infos and the order of games equal those of alfworld 0.4.2 with textworld 1.7.
Differences are listed in `AlfredTWEnv` and `experts`.
"""

from envsuite.compat.alfworld.batch import AlfworldBatchEnv
from envsuite.compat.alfworld.environment import TASK_TYPES, AlfredTWEnv, get_environment

__all__ = ["TASK_TYPES", "AlfredTWEnv", "AlfworldBatchEnv", "get_environment"]
