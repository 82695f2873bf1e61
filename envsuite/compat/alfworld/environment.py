"""`get_environment` and `AlfredTWEnv`: the configuration and the game files of a split."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envsuite.compat.alfworld.batch import AlfworldBatchEnv
from envsuite.compat.alfworld.experts import EXPERT_TYPES
from envsuite.envs.alfworld.games.data import read_game
from envsuite.errors import DataError, UsageError

TASK_TYPES = {
    1: "pick_and_place_simple",
    2: "look_at_obj_in_light",
    3: "pick_clean_then_place_in_recep",
    4: "pick_heat_then_place_in_recep",
    5: "pick_cool_then_place_in_recep",
    6: "pick_two_obj_and_place",
}
"""ALFWorld's numbers of task types, as in `config["env"]["task_types"]`."""
DATA_PATHS = {
    "train": "data_path",
    "eval_in_distribution": "eval_id_data_path",
    "eval_out_of_distribution": "eval_ood_data_path",
}
"""`train_eval` -> key of the folder in `config["dataset"]`"""


def get_environment(env_type: str) -> type[AlfredTWEnv]:
    """Returns the environment class of a name; only the text environment exists here."""
    if env_type == "AlfredTWEnv":
        return AlfredTWEnv
    raise UsageError(f"Environment {env_type!r} is not available: envsuite has only 'AlfredTWEnv'.")


class AlfredTWEnv:
    """The games of a split, filtered by a configuration of the alfworld package.

    `game_files` may be edited before `init_env`; any path to a game file is allowed. Unlike the
    stock class, this one prints nothing, and a missing folder is an error instead of an empty list.
    """

    def __init__(self, config: Mapping[str, Any], train_eval: str = "train") -> None:
        if train_eval not in DATA_PATHS:
            raise UsageError(f"train_eval={train_eval!r} is not one of {', '.join(DATA_PATHS)}.")
        self.config = config
        self.train_eval = train_eval
        self.game_files: list[str] = []
        self.num_games = 0
        self.collect_game_files()

    def collect_game_files(self, verbose: bool = False) -> None:
        """Fills `game_files` in the order of the stock class, which is that of `os.walk`.

        Raises DataError if the folder is missing or a file in it cannot be read.
        """
        key = DATA_PATHS[self.train_eval]
        root = os.path.expandvars(self._setting("dataset", key))
        if not os.path.isdir(root):
            raise DataError(f"Folder {root} does not exist: correct dataset.{key}, or set the variables in it.")
        numbers = self._setting("env", "task_types")
        task_types = {TASK_TYPES[number] for number in numbers if number in TASK_TYPES}
        if not task_types:
            raise UsageError(f"env.task_types={list(numbers)} names no task type: use numbers from 1 to 6.")
        self.game_files = [path for path in _walk(root) if _is_selected(path, task_types)]
        limit = self._setting("dataset", "num_train_games" if self.train_eval == "train" else "num_eval_games")
        if limit > 0:
            self.game_files = self.game_files[:limit]
        self.num_games = len(self.game_files)
        if verbose:
            print(f"{self.num_games} games in {root}")

    def init_env(self, batch_size: int) -> AlfworldBatchEnv:
        """Returns an environment that plays `batch_size` games at once."""
        method = self._setting("general", "training_method")
        if method not in ("dqn", "dagger"):
            raise UsageError(f"general.training_method={method!r} is not one of dqn, dagger.")
        training = self._setting("rl" if method == "dqn" else "dagger", "training")
        is_train = self.train_eval == "train"
        expert_type = ""
        if method == "dagger" and is_train:
            expert_type = self._setting("env", "expert_type")
            if expert_type not in EXPERT_TYPES:
                raise UsageError(f"env.expert_type={expert_type!r} is not one of {', '.join(EXPERT_TYPES)}.")
        return AlfworldBatchEnv(
            self.game_files,
            batch_size,
            max_episode_steps=training["max_nb_steps_per_episode"],
            expert_type=expert_type,
            domain_randomization=is_train and bool(self._setting("env", "domain_randomization")),
        )

    def _setting(self, section: str, key: str) -> Any:
        """Returns an entry of the configuration. Raises UsageError if it is missing."""
        try:
            return self.config[section][key]
        except (KeyError, TypeError):
            raise UsageError(
                f"The configuration has no {section}.{key}: load it from alfworld's base_config.yaml."
            ) from None


def _walk(root: str) -> list[str]:
    """Returns the paths of game files beside a `traj_data.json`, bottom-up."""
    paths = []
    for folder, _, names in os.walk(root, topdown=False):
        if "traj_data.json" in names and "movable" not in folder and "Sliced" not in folder:
            paths.append(os.path.join(folder, "game.tw-pddl"))
    return paths


def _is_selected(path: str, task_types: set[str]) -> bool:
    """Tests whether a game exists, has one of the task types, and is marked as solvable."""
    annotation = Path(path).with_name("traj_data.json")
    try:
        task_type = json.loads(annotation.read_text())["task_type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{annotation} has no readable task_type ({error}): download the data again.") from error
    if task_type not in task_types or not os.path.exists(path):
        return False
    return bool(json.loads(read_game(Path(path))).get("solvable", False))
