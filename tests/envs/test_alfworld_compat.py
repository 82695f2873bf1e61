"""`envsuite.compat.alfworld` behaves like the alfworld package; `make equivalence` compares more."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

if importlib.util.find_spec("alfworld") is None:
    pytest.skip("the package alfworld is not installed", allow_module_level=True)

from benchmarks.alfworld_compat import AFTER_THE_END, MAX_STEPS, compare, make_job, open_batch
from envsuite.compat.alfworld import AlfredTWEnv, get_environment
from envsuite.envs.alfworld.games.game import AlfworldGame
from envsuite.envs.alfworld.games.generator import GeneratorSettings, generate
from envsuite.errors import DataError, UsageError

KINDS = ("pick_and_place_simple", "look_at_obj_in_light", "pick_two_obj_and_place", "pick_heat_then_place_in_recep")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data folder with eight generated games in the layout of the official ones."""
    root = tmp_path_factory.mktemp("data") / "json_2.1.1"
    for seed in range(8):
        task_type = KINDS[seed % 4]
        made = generate(seed, GeneratorSettings((task_type,), receptacles=6, objects=5))
        target, goal = made.name.split("/")[1].split("-")[1], made.name.split("/")[1].split("-")[3]
        is_look = task_type == "look_at_obj_in_light"
        folder = root / ("train" if seed < 6 else "valid_seen") / f"{task_type}-{seed}" / "trial_1"
        folder.mkdir(parents=True)
        (folder / "game.tw-pddl").write_text(made.text)
        parameters = {
            "object_target": target,
            "parent_target": "" if is_look else goal,
            "toggle_target": goal if is_look else "",
            "mrecep_target": "",
            "object_sliced": False,
        }
        (folder / "traj_data.json").write_text(json.dumps({"task_type": task_type, "pddl_params": parameters}))
    return root


@pytest.fixture
def config(root):
    """Returns a configuration like ALFWorld's base_config.yaml for the generated games."""
    return {
        "dataset": {
            "data_path": str(root / "train"),
            "eval_id_data_path": str(root / "valid_seen"),
            "eval_ood_data_path": str(root / "valid_unseen"),
            "num_train_games": -1,
            "num_eval_games": -1,
        },
        "env": {"task_types": [1, 2, 3, 4, 5, 6], "expert_type": "planner", "domain_randomization": False},
        "general": {"training_method": "dagger"},
        "dagger": {"training": {"max_nb_steps_per_episode": 50}},
        "rl": {"training": {"max_nb_steps_per_episode": 20}},
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "batch_size"), [("no expert", 1), ("randomized", 3)])
def test_results_equal_those_of_the_alfworld_package(root, kind, batch_size):
    pytest.importorskip("fast_downward")
    games = sorted(str(path) for path in (root / "train").rglob("game.tw-pddl"))[:3]
    count, won, differences = compare(make_job(games, batch_size, kind, seed=1))
    rounds = 3 // batch_size
    assert count == rounds * batch_size * (1 + MAX_STEPS + AFTER_THE_END)
    assert won >= 1
    assert differences == []


def test_the_comparison_detects_a_difference(root, monkeypatch):
    pytest.importorskip("fast_downward")
    from benchmarks import alfworld_compat

    def spoil(batch, tapes, play=alfworld_compat.play):
        results = play(batch, tapes)
        results[-1][0][0] += "."
        return results

    monkeypatch.setattr(alfworld_compat, "play", spoil)
    games = sorted(str(path) for path in (root / "train").rglob("game.tw-pddl"))[:1]
    _, _, differences = compare(make_job(games, 1, "no expert"))
    assert len(differences) == 1


def test_games_follow_the_order_of_os_walk_and_the_limits(config, root):
    env = get_environment("AlfredTWEnv")(config, train_eval="train")
    walked = [
        os.path.join(folder, "game.tw-pddl") for folder, _, names in os.walk(root / "train", topdown=False) if names
    ]
    assert env.game_files == walked and env.num_games == 6
    config["dataset"]["num_train_games"] = 2
    assert AlfredTWEnv(config).game_files == walked[:2]
    assert AlfredTWEnv(config, "eval_in_distribution").num_games == 2
    config["env"]["task_types"] = [2]
    assert all("look_at_obj_in_light" in path for path in AlfredTWEnv(config).game_files)


def test_every_epoch_plays_each_game_once_in_the_order_of_textworld(config):
    utils = pytest.importorskip("textworld.gym.envs.utils")
    config["general"]["training_method"] = "dqn"
    env = AlfredTWEnv(config)
    batch = env.init_env(4)
    assert batch.seed(7) == [7]
    rng = np.random.RandomState(7)
    order = list(env.game_files)
    rng.shuffle(order)
    expected = utils.shuffled_cycle(order, rng=rng)
    batch.skip(5)
    for _ in range(5):
        next(expected)
    for _ in range(6):
        _, infos = batch.reset()
        assert infos["extra.gamefile"] == [next(expected) for _ in range(4)]


def test_the_planner_wins_and_finished_games_repeat_their_result(config):
    batch = AlfredTWEnv(config).init_env(4)
    _, infos = batch.reset()
    last = {}
    for _ in range(30):
        plans = infos["extra.expert_plan"]
        assert infos.get("policy_commands") == plans
        texts, scores, dones, infos = batch.step([plan[0] if plan else "look" for plan in plans])
        for game, done in enumerate(dones):
            result = texts[game], scores[game], infos["won"][game], infos["admissible_commands"][game]
            assert last.setdefault(game, result) == result if done else game not in last
    assert scores == (1, 1, 1, 1) and dones == (True,) * 4 and infos["extra.gamefile"] == [None] * 4


def test_the_step_limit_ends_a_game_and_any_path_is_playable(config, tmp_path):
    config["general"]["training_method"] = "dqn"
    env = AlfredTWEnv(config)
    path = tmp_path / "mine.tw-pddl"
    path.write_text(generate(20, GeneratorSettings(receptacles=6, objects=5)).text)
    env.game_files = [str(path)]
    batch = env.init_env(1)
    texts, infos = batch.reset()
    assert texts[0].startswith("-= Welcome") and infos["extra.gamefile"] == [str(path)]
    assert "extra.expert_plan" not in infos
    for turn in range(1, 21):
        _, scores, dones, _ = batch.step(["look"])
        assert (scores, dones) == ((0,), (turn == 20,))


def test_domain_randomization_renumbers_objects_in_training_only(config):
    config["env"]["domain_randomization"] = True
    path = AlfredTWEnv(config).game_files[0]
    plain = AlfworldGame.load(path)
    names = {AlfworldGame.load(path, lambda ids: ids.reverse()).receptacles, plain.receptacles}
    assert len(names) == 2 and len({frozenset(group) for group in names}) == 1
    assert AlfredTWEnv(config).init_env(1).domain_randomization
    assert not AlfredTWEnv(config, "eval_in_distribution").init_env(1).domain_randomization


def test_bad_configurations_are_rejected_in_one_line(config):
    batch = AlfredTWEnv(config).init_env(2)
    batch.reset()
    cases = [
        (lambda: get_environment("AlfredThorEnv"), UsageError, "only 'AlfredTWEnv'"),
        (lambda: AlfredTWEnv(config, "test"), UsageError, "eval_in_distribution"),
        (lambda: AlfredTWEnv(config, "eval_out_of_distribution"), DataError, "dataset.eval_ood_data_path"),
        (lambda: batch.step("look"), UsageError, "a list of 2 commands"),
        (lambda: batch.step(["look"]), UsageError, "a list of 2 commands"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    for section, key, value in (("general", "training_method", "ppo"), ("env", "expert_type", "oracle")):
        with pytest.raises(UsageError, match=value):
            AlfredTWEnv({**config, section: {**config[section], key: value}}).init_env(1)


def test_a_game_can_be_open_while_the_handcoded_expert_of_a_bigger_batch_plays(config):
    config["env"]["expert_type"] = "handcoded"
    batch = AlfredTWEnv(config).init_env(3)
    _, infos = batch.reset()
    assert infos["extra.expert_plan"] == [["look"]] * 3
    commands = [plan[0] for plan in infos["extra.expert_plan"]]
    for _ in range(10):
        *_, infos = batch.step(commands)
        commands = [plan[0] for plan in infos["extra.expert_plan"]]
        assert all(command in listed for command, listed in zip(commands, infos["admissible_commands"], strict=True))


def test_without_an_expert_neither_textworld_nor_alfworld_is_imported(config, root):
    code = (
        "import json, os, sys\n"
        "from envsuite.compat.alfworld import get_environment\n"
        "config = json.loads(sys.argv[1])\n"
        "batch = get_environment('AlfredTWEnv')(config, train_eval='train').init_env(2)\n"
        "batch.reset(), batch.step(['look', 'inventory'])\n"
        "print([name for name in ('textworld', 'alfworld', 'fast_downward') if name in sys.modules], end='')\n"
    )
    config["general"]["training_method"] = "dqn"
    done = subprocess.run([sys.executable, "-c", code, json.dumps(config)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]"


def test_open_batch_builds_both_classes_alike(root):
    games = sorted(str(path) for path in (root / "train").rglob("game.tw-pddl"))
    batch = open_batch(AlfredTWEnv, make_job(games, 2, "handcoded"))
    assert batch.batch_size == 2 and batch.expert_type == "handcoded"
